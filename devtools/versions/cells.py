"""The versions that are tested, and the sample of tests of each: a row of docs/versions.md is a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from raysweep.tested import TRAINS_SINCE

PYTHON: Final = "3.11"
NEWEST_RAY: Final = "ray[default,train]==2.60.0"
NEWEST: Final = ("optuna", "ray", "typer")
"""Packages that are the newest in a row whose other packages are those of an earlier day."""

Sample = Mapping[str, Sequence[str]]
"""For each part of raysweep the arguments of pytest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One version of one product, in an environment of its own."""

    product: str
    """`ray`, `airflow`, `prefect`, `python`, `optuna` or `torch`."""
    version: str
    extras: str
    """Of raysweep, comma-separated."""
    packages: Sequence[str]
    """Requirements beside raysweep and its extras."""
    sample: Sample
    python: str = PYTHON
    is_pinned: bool = True
    """True if constraints.txt holds for all packages that the cell does not name."""
    unpinned: tuple[str, ...] = ()
    """The beginnings of names of packages for which constraints.txt does not hold all the same."""
    until: str = ""
    """Packages are those of that day, but for `NEWEST`: an old Airflow does not run with the newest of all
    that it requires, and is installed with a constraints file of its own age. Empty: the newest."""
    requires: Mapping[str, str] = field(default_factory=dict)
    """Parts that this version lacks, each with the version that has it: the sample tests the refusal."""

    @property
    def minor(self) -> str:
        """Major and minor version."""
        return ".".join(self.version.split(".")[:2])

    @property
    def name(self) -> str:
        """Such as `ray-2.50`: the environment is `.venv-versions-ray-2.50`."""
        return f"{self.product}-{self.minor}"


_CONTRACTS: Final = ("tests/unit/raycompat", "tests/engine/test_raycompat.py")
_SWEEPS: Final = (
    "tests/engine/test_reports.py::test_a_waiting_report_returns_when_it_is_durable",
    "tests/engine/test_checkpoints.py::test_the_last_and_the_best_are_kept",
    "tests/engine/test_stopping.py::test_asha_stops_a_trial_at_its_next_report",
    "tests/engine/test_failures.py::test_a_trial_in_its_own_process_goes_on_from_its_checkpoint[sigkill]",
    "tests/engine/test_resume.py::test_a_killed_driver_changes_nothing_in_the_end[18]",
)
_GANGS: Final = (
    "tests/engine/test_gangs.py::test_each_rank_knows_its_place_and_the_same_processes_serve_all_trials[worker]",
    "tests/engine/test_gangs.py::test_a_killed_rank_costs_one_attempt_and_the_gang_resumes_from_its_newest_checkpoint",
    "tests/engine/test_gangs.py::test_a_gang_that_no_cluster_of_this_size_can_hold_is_refused_before_anything_starts",
)
_TUNE: Final = (
    "tests/engine/test_tune_trainables.py::test_a_function_of_tune_resumes_after_sigkill[process]",
)
_STOPPED_JOB: Final = (
    "tests/jobs/test_driver.py"
    "::test_a_stopped_job_has_cancelled_its_sweep_and_leaves_nothing[stop_by_client-forever-worker]"
)
_TWO_WITH_DATA: Final = (
    "tests/engine/test_train_runs.py"
    "::test_two_trials_with_datasets_have_each_row_once_where_all_cpus_are_held_by_trials"
)
_DDP: Final = (
    "tests/engine/test_gangs.py"
    "::test_ddp_under_asha_with_a_rank_killed_completes_with_equal_weights_on_all_ranks"
)
_JOBS: Final = (
    _STOPPED_JOB,
    "tests/jobs/test_client_side.py::test_run_sweep_at_an_address_brings_its_code_and_shows_no_secret",
)
_TRAIN: Final = (
    "tests/engine/test_training.py::test_two_workers_report_checkpoint_and_leave_nothing_behind",
    "tests/engine/test_training.py::test_a_killed_run_goes_on_from_its_newest_checkpoint",
)
_TRAIN_RUNS: Final = (
    "tests/engine/test_train_runs.py::test_a_run_reports_for_its_trial_and_leaves_nothing_behind",
    _TWO_WITH_DATA,
)
_REFUSED: Final = ("tests/unit/test_training_version.py",)
RAY_SAMPLE: Final[Sample] = {
    "sweeps": _SWEEPS,
    "gangs": _GANGS,
    "jobs": _JOBS,
    "Tune's trainables": _TUNE,
    "contracts": _CONTRACTS,
    "training steps": _TRAIN,
    "Train runs in trials": _TRAIN_RUNS,
}
OLD_RAY_SAMPLE: Final[Sample] = {**RAY_SAMPLE, "training steps": _REFUSED, "Train runs in trials": _REFUSED}
AIRFLOW_SAMPLE: Final[Sample] = {
    "operators": (
        "tests/unit/airflow/test_parsing.py",
        "tests/unit/airflow/test_templates.py",
        "tests/unit/airflow/test_documents.py",
        "tests/unit/airflow/test_attempts.py",
        "tests/unit/airflow/test_compat.py",
    ),
    "DAG files": ("tests/airflow/test_dags.py",),
    "a DAG run": ("tests/airflow/test_local.py::test_the_night_without_servers",),
}
PREFECT_SAMPLE: Final[Sample] = {
    "tasks and blocks": ("tests/prefect/test_parts.py",),
    "a flow": ("tests/prefect/test_nightly.py::test_a_night_of_commands_needs_no_trainable",),
    "command line": ("tests/unit/cli/test_trials.py",),
}
PYTHON_SAMPLE: Final[Sample] = {
    "core": (
        "tests/unit/core/test_step.py",
        "tests/unit/worker/process",
        "tests/unit/worker/test_link.py",
        "tests/unit/worker/test_machine.py",
        "tests/unit/worker/test_session.py",
    ),
    "sweeps": _SWEEPS,
    "training steps": _TRAIN[:1],
}
_UNCONSTRAINED: Final = "tests/unit/search/test_optuna_tpe.py::test_constraints_require_optuna_5"
OPTUNA_SAMPLE: Final[dict[str, Sequence[str]]] = {
    "searchers": ("tests/unit/search/test_optuna_tpe.py",),
    "constraints": ("tests/unit/search/test_constraints.py",),
}
TORCH_SAMPLE: Final[Sample] = {
    "searchers": ("tests/unit/search/test_gp.py",),
    "gangs": (_DDP,),
    "training steps": ("tests/engine/test_training.py::test_torch_workers_share_a_process_group",),
}
CORE: Final[Mapping[str, Sequence[str]]] = {
    "ray": ("sweeps", "gangs", "jobs", "Tune's trainables"),
    "airflow": ("operators", "DAG files", "a DAG run"),
    "prefect": ("tasks and blocks", "a flow"),
    "python": ("core", "sweeps"),
    "optuna": ("searchers",),
    "torch": ("gangs",),
}
"""The parts that have to pass before a version counts as tested; old versions may lack the others."""
LABELS: Final = {
    "ray": "Ray",
    "airflow": "Airflow",
    "prefect": "Prefect",
    "python": "Python",
    "optuna": "Optuna",
    "torch": "PyTorch",
}

_RAYS: Final = ("2.50.1", "2.53.0", "2.54.1", "2.56.1", "2.58.1", "2.60.0")
_TRAIN_PARTS: Final = ("training steps", "Train runs in trials")
_AIRFLOWS: Final[Mapping[str, tuple[str, Sequence[str]]]] = {
    # A newer FastAPI refuses requests of Airflow 3.0 as they have no content type.
    "3.0.6": ("2026-03-15", ["fastapi<0.120", "sqlalchemy<2"]),
    "3.1.8": ("2026-04-30", []),
    "3.2.2": ("2026-06-30", []),
    "3.3.2": ("", []),
}
"""Each with the day of its packages, and what its own constraints file says beside."""
_OLDER_SERVER: Final = "fastapi<0.125"
"""The servers of Prefect 3.4 to 3.6 answer 500 with the newest FastAPI and Starlette."""
_PREFECTS: Final[Mapping[str, Sequence[str]]] = {
    "3.4.25": [_OLDER_SERVER, "typer<0.20"],
    "3.5.0": [_OLDER_SERVER, "typer<0.20"],
    "3.6.29": [_OLDER_SERVER],
    "3.7.8": [],
    "3.8.8": [],
    "3.9.1": [],
}
"""Each with the packages that it does not run with in their newest versions."""
_PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
_OPTUNAS: Final = ("4.9.0", "5.0.0")
_TORCHES: Final[Mapping[str, Sequence[str]]] = {
    "2.6.0": ["sympy==1.13.1"],  # moto asks for a newer one
    "2.13.0": [],
    "2.15.0": [],
}
"""Each with packages that stand above what others require."""


def _trains(ray: str) -> bool:
    """True if training works on this Ray."""
    major, minor = ray.split(".")[:2]
    return (int(major), int(minor)) >= TRAINS_SINCE


CELLS: Final[Sequence[Cell]] = (
    *(
        Cell(
            product="ray",
            version=version,
            extras="ray,torch",
            packages=(f"ray[default,train,tune]=={version}", "lightgbm"),
            sample=RAY_SAMPLE if _trains(version) else OLD_RAY_SAMPLE,
            requires={} if _trains(version) else dict.fromkeys(_TRAIN_PARTS, "{}.{}".format(*TRAINS_SINCE)),
        )
        for version in _RAYS
    ),
    *(
        Cell(
            product="airflow",
            version=version,
            extras="ray,airflow",
            packages=(f"apache-airflow=={version}", *pins),
            sample=AIRFLOW_SAMPLE,
            is_pinned=False,
            until=until,
        )
        for version, (until, pins) in _AIRFLOWS.items()
    ),
    *(
        Cell(
            product="prefect",
            version=version,
            extras="ray,prefect",
            packages=(f"prefect=={version}", *pins),
            sample=PREFECT_SAMPLE,
            is_pinned=False,
        )
        for version, pins in _PREFECTS.items()
    ),
    *(
        Cell(
            product="python",
            version=version,
            extras="ray",
            packages=(NEWEST_RAY,),
            sample=PYTHON_SAMPLE,
            python=version,
        )
        for version in _PYTHONS
    ),
    *(
        Cell(
            product="optuna",
            version=version,
            extras="ray,search",
            packages=(f"optuna=={version}", NEWEST_RAY),
            sample=OPTUNA_SAMPLE if version >= "5" else OPTUNA_SAMPLE | {"constraints": (_UNCONSTRAINED,)},
            requires={} if version >= "5" else {"constraints": "5.0"},
        )
        for version in _OPTUNAS
    ),
    *(
        Cell(
            product="torch",
            version=version,
            extras="ray,gp",
            packages=(f"torch=={version}", NEWEST_RAY, *pins),
            sample=TORCH_SAMPLE,
            unpinned=("cuda-", "nvidia-", "sympy", "triton"),  # each PyTorch has its own
        )
        for version, pins in _TORCHES.items()
    ),
)
TESTERS: Final = (
    "hypothesis",
    "moto[s3,server]",
    "playwright",
    "psutil",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
)
