# ruff: noqa: E501  (programs in strings)
"""`import raysweep` is quick and needs nothing heavy; every public name can be had."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
import time

import pytest

import raysweep

HEAVY = ("ray", "airflow", "prefect", "optuna", "obstore", "numpy", "pandas", "torch", "lightgbm", "yaml")
BLOCKED = f"""
import sys
HEAVY = {HEAVY!r}

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in HEAVY:
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)

sys.meta_path.insert(0, Blocker())
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_specs_outcomes_and_errors_work_where_nothing_heavy_is_installed() -> None:
    printed = run(
        BLOCKED
        + """
import raysweep as rs
spec = rs.SweepSpec(name="n", trainable="m:f", param_space={"a": {"uniform": [0, 1]}, "b": {"choice": [1, 2]}},
                    metric="x", mode="max", search="tpe", resources={"cpu": 1})
assert rs.SweepSpec.from_json(spec.to_json()) == spec
assert spec.json_schema()
import random
assert set(spec.space.sample(random.Random(0))) == {"a", "b"}
rs.TrainSpec(trainable="m:f", scaling={"num_workers": 2})
rs.SweepOutcome(sweep_id="s", name="n", status="completed", metric="x", mode="max", started_at=0, ended_at=1).to_json()
rs.TrainOutcome, rs.TrialOutcome, rs.SpecError, rs.Resources, rs.Scaling
print(rs.__version__, sorted(set(sys.modules) & set(HEAVY)))
"""
    )
    assert printed == f"{raysweep.__version__} []"


def test_a_sweep_that_shows_nothing_does_without_rich() -> None:
    printed = run(
        """
import os, sys
from raysweep.run import _showing
with _showing("n", None) as table:
    print(table, "rich" in sys.modules)
os.environ["TTY_COMPATIBLE"] = "1"
with _showing("n", None) as table:
    assert table is not None
with _showing("n", False) as table:
    print(table)
"""
    )
    first, *_, last = printed.splitlines()
    assert first == "None False"
    assert last.endswith("None")


def test_the_room_of_laws_is_had_by_its_name_and_loads_numpy_where_it_fits() -> None:
    printed = run(
        "import sys, raysweep as rs; fit = rs.transfer.fit; print('numpy' in sys.modules)\n"
        "trials = [{'scale': {'rows': r}, 'config': {'a': a / 9}, 'score': a} for r in (1, 2) for a in range(9)]\n"
        "law = fit(trials, space={'a': {'uniform': [0, 1]}}, mode='min')\n"
        "print(law.at({'rows': 4}).verdict, 'ray' in sys.modules)"
    )
    assert printed.splitlines() == ["False", "edge False"]
    blocked = run(
        BLOCKED
        + """
import raysweep as rs
try:
    rs.transfer.fit([], space={}, mode="min")
except rs.SpecError as error:
    print(error)
"""
    )
    assert blocked == "transfer: a law needs NumPy, which is not installed; pip install raysweep[search]"


def test_import_alone_loads_nothing() -> None:
    loaded = run(
        "import sys; before = set(sys.modules); import raysweep;"
        "print(sorted(m for m in set(sys.modules) - before if m.split('.')[0] in ('pydantic', 'raysweep', 'orjson')))"
    )
    assert loaded == "['raysweep']"


@pytest.mark.parametrize("module", ["worker.actor", "worker.process.fork_server", "worker.output.log_store"])
def test_a_worker_s_start_loads_no_models(module: str) -> None:
    """They take a second, and each fork of a process that has them takes longer."""
    heavy = ("pydantic", "asyncio", "raysweep.specs", "raysweep.outcome")
    code = f"import sys, raysweep.{module}; print([name for name in {heavy} if name in sys.modules])"
    assert run(code) == "[]"


def test_what_talks_to_clusters_is_not_loaded_for_sweeps_that_run_here() -> None:
    code = "import sys, raysweep.step, raysweep.jobs.client; print('httpx' in sys.modules)"
    assert run(code) == "False"


def test_import_is_quick() -> None:
    code = "import time; t = time.perf_counter(); import raysweep; print(time.perf_counter() - t)"
    # The best of three: others use this machine too.
    assert min(float(run(code)) for _ in range(3)) <= 0.3


def test_the_public_names_are_few() -> None:
    assert set(raysweep.__all__) == {
        *("SweepSpec", "TrainSpec", "Resources", "Scaling"),
        *("run_sweep", "run_training", "load", "sweeps", "from_tuner"),
        *("report", "get_checkpoint", "new_checkpoint", "get_context", "should_checkpoint"),
        *("StoredSweep", "SweepOutcome", "TrainOutcome", "TrialOutcome"),
        *("Infeasible", "RaysweepError", "SpecError", "SweepFailedError", "TrialStopped"),
        "__version__",
    }


def test_no_room_of_the_engine_has_the_name_of_a_public_function() -> None:
    """An import of `raysweep.report` as a module would put it in the place of the function, in all of the process."""
    rooms = {module.name for module in pkgutil.iter_modules(raysweep.__path__)}
    assert not rooms & set(raysweep.__all__)


def test_every_public_name_can_be_had() -> None:
    started = time.monotonic()
    for name in raysweep.__all__:
        assert getattr(raysweep, name) is not None
        assert name in dir(raysweep)
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("sweep_spec", ""),
        ("_sweep_spec", ""),
        ("SweepHeldError", ": raysweep.SweepHeldError is raysweep.errors.SweepHeldError"),
        ("ErrorInfo", ": raysweep.ErrorInfo is raysweep.outcome.ErrorInfo"),
    ],
)
def test_a_name_that_is_not_there(name: str, where: str) -> None:
    with pytest.raises(AttributeError, match=f"^module 'raysweep' has no attribute '{name}'{where}$"):
        getattr(raysweep, name)


def test_the_table_of_names_is_what_type_checkers_see() -> None:
    """The names stand three times in the file: for type checkers, for `import *`, and in the table."""
    import ast
    from pathlib import Path

    tree = ast.parse(Path(raysweep.__file__).read_text(encoding="utf-8"))
    (guarded,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.name: node.module
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == raysweep._HOME
    assert {*seen, "__version__"} == set(raysweep.__all__)


def test_the_package_is_typed_and_says_its_version() -> None:
    from importlib.metadata import version
    from importlib.resources import files

    assert files("raysweep").joinpath("py.typed").is_file()
    assert raysweep.__version__ == version("raysweep")
