"""Options that several commands share, and groups of options that belong together."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

if TYPE_CHECKING:
    from raysweep.cli.commands.running.sweep import How
    from raysweep.cli.job_messages import JobHow

Task = Callable[[], int]

Key = Annotated[
    Optional[str],  # noqa: UP045  typer reads the annotation at run time
    typer.Option(
        metavar="KEY",
        help="Names the run: the same name and key is the same run. Default: the spec itself.",
    ),
]
Storage = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="URL", help="The storage, in place of the spec's storage_path."),
]
StoredAt = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--storage", metavar="URL", help="The storage of sweeps. Default: ~/raysweep."),
]
Address = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="ADDRESS",
        help='A Ray cluster: http://head:8265 (its Jobs API), "auto", host:port, or rayjob:MANIFEST, '
        "which is brought up for the run on Kubernetes. Default: one of our own; without Ray, this machine.",
    ),
]
Here = Annotated[bool, typer.Option("--here", help="Run on this machine, without Ray.")]
JobsAddress = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="URL", help="The Jobs API of the cluster that runs it: http://head:8265."),
]
WorkingDir = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="FOLDER", help="Send this folder; the job runs in it."),
]
PyModules = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--py-module", metavar="PATH", help="Send this package or file. Repeatable."),
]
Env = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        metavar="NAME[=VALUE]",
        help="Set a variable of driver and trials; without a value, to what it is here. Repeatable.",
    ),
]
Lease = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(metavar="SECONDS", help="End it, resumably, once it has had no follower for SECONDS."),
]
Detach = Annotated[bool, typer.Option("--detach", help="Submit it and do not wait.")]
ResumeCancelled = Annotated[bool, typer.Option("--resume-cancelled", help="Resume one that was cancelled.")]
DriverResources = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--driver-resource", metavar="NAME=N", help="A resource of the driver: CPU=1, memory=2e9. Repeatable."
    ),
]
DriverLabels = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--driver-label", metavar="NAME=VALUE", help="A label of the driver's node. Repeatable."),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="JSON, and nothing else, on standard output; the rest on stderr.")
]
FirstRow = Annotated[
    int,
    typer.Option(
        "--from", min=0, metavar="N", help="With --json: leave out the first N rows of a long list."
    ),
]
SpecFile = Annotated[str, typer.Argument(metavar="SPEC", help="A .yaml or .json file.")]
TuneProgram = Annotated[
    bool, typer.Option("--tune", help="SPEC is a Python program that calls Ray Tune; run it here as it is.")
]
ProgramArguments = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Argument(
        metavar="[-- ARGUMENT...]", help="Arguments of the program, after --.", show_default=False
    ),
]
SweepName = Annotated[
    str, typer.Argument(metavar="SWEEP", help="NAME@latest, an id, its beginning, or the folder's URI.")
]
Takeover = Annotated[
    bool, typer.Option("--takeover", help="Take the sweep from a controller that seems to live.")
]
NumCpus = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(min=1, metavar="N", help="CPUs of a Ray of our own. Default: the machine's."),
]
Settings = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Change a field of the spec: num_samples=10. Repeatable."
    ),
]
BudgetKey = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--budget-key", metavar="NAME", help="Count against this caller's budget: see `raysweep budget`."
    ),
]
PlanToken = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--plan", metavar="TOKEN", help="Run just what `plan --json` has shown: refused if it has changed."
    ),
]


def with_budget_key(settings: list[str] | None, key: str | None) -> list[str]:
    """The settings, with the budget key as the last of them: it holds whatever the others say."""
    return [*(settings or ()), *([] if key is None else [f"stop.budget_key={json.dumps(key)}"])]


class SpecKind(StrEnum):
    """The kinds of runs of a job."""

    sweep = "sweep"
    train = "train"


class ExportKind(StrEnum):
    """The targets of an export."""

    csv = "csv"
    parquet = "parquet"
    optuna = "optuna"
    mlflow = "mlflow"


class SchemaKind(StrEnum):
    """The documents that have a schema."""

    sweep = "sweep"
    train = "train"
    pipeline = "pipeline"


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place where a command runs: this machine, a Ray of our own, a cluster, or a job of one."""

    address: Address = None
    here: Here = False
    as_json: AsJson = False
    working_dir: WorkingDir = None
    env: Env = None
    detach: Detach = False

    @property
    def where(self) -> str | None:
        """The address that both options give."""
        if self.here and self.address not in (None, "here"):
            raise typer.BadParameter("--here cannot be combined with --address")
        return "here" if self.here else self.address

    def how(self, num_cpus: float | None, *, takeover: bool = False) -> How:
        """As `raysweep.cli.commands.running.sweep` takes it."""
        from raysweep.cli.commands.running.sweep import How

        return How(address=self.where, is_json=self.as_json, takeover=takeover, num_cpus=num_cpus)

    def job(self, driver: Driver | None = None, **more: Any) -> JobHow:
        """The options of a job; `more` as `job_how` takes it."""
        from raysweep.cli.job_messages import job_how

        told = {} if driver is None else driver.options
        return job_how(working_dir=self.working_dir, env=self.env, detach=self.detach, **told, **more)


@dataclass(frozen=True, kw_only=True)
class Driver:
    """The things that a new job takes along, and the resources of its driver."""

    py_modules: PyModules = None
    driver_resources: DriverResources = None
    driver_labels: DriverLabels = None

    @property
    def options(self) -> dict[str, Any]:
        """As `job_how` takes them."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


PlannedCluster = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--cluster",
        metavar="NODES",
        help="Plan for a cluster of these nodes: 8xH100,2xCPU64 (one node of 8 GPUs, two of 64 CPUs).",
    ),
]
StepSeconds = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        "--step-seconds",
        metavar="S",
        help="Seconds from report to report; without max_t, of a whole trial. Default: by earlier nights.",
    ),
]
EarlierNights = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option("--nights", metavar="N", help="The number of earlier nights that count. Default: 3."),
]


def _is_group(annotation: Any) -> bool:
    return is_dataclass(annotation)


def grouped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command take groups of options as one parameter each; typer sees the options."""
    signature = inspect.signature(function, eval_str=True)
    annotated = {name: each.annotation for name, each in signature.parameters.items()}
    groups = {name: kind for name, kind in annotated.items() if _is_group(kind)}
    members = {name: inspect.signature(group, eval_str=True).parameters for name, group in groups.items()}

    @functools.wraps(function)
    def with_groups(**given: Any) -> Any:
        for name, group in groups.items():
            given[name] = group(**{member: given.pop(member) for member in members[name]})
        return function(**given)

    kind = inspect.Parameter.KEYWORD_ONLY
    seen: dict[str, inspect.Parameter] = {}
    for name, each in signature.parameters.items():
        seen |= members.get(name, {name: each})
    plain = [each.replace(kind=kind) for each in seen.values()]
    with_groups.__signature__ = signature.replace(parameters=plain)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {each.name: each.annotation for each in plain}
    return with_groups
