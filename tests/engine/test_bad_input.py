# ruff: noqa: E501  (one case a line)
"""Bad input that only Ray, or a worker, can tell: one line, exit code 2, and nothing stays in the storage."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysweep.cli import main
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.specs import SweepSpec, sweep_id
from raysweep.storage.objects.opening import open_store
from tests.engine.conftest import INLINE

pytestmark = pytest.mark.ray

ROOT = Path(__file__).parents[2]
SWEEP: dict[str, Any] = {
    "name": "bad",
    "trainable": "examples.quick:quadratic",
    "param_space": {"x": {"uniform": [0, 1]}},
    "metric": "loss",
    "mode": "min",
    "num_samples": 3,
    "failure": {"backoff_initial_s": 0.05},
}
TRAIN: dict[str, Any] = {"name": "bad", "trainable": "examples.quick:steps", "failure": {"max_failures": 0}}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    (folder / "other").mkdir(parents=True)
    (folder / "other" / "file").write_text("x")
    return folder


def listing(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*") if path.name != "store.json")


@pytest.fixture
def refusal(
    ray_cluster: object, tmp_path: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """The line with which a command on the shared Ray is refused."""

    def refuse(
        command: str, fields: dict[str, Any], *options: str, has_run: bool = False, code: int = 2
    ) -> str:
        before = listing(store)
        (tmp_path / "spec.json").write_text(json.dumps(fields))
        capsys.readouterr()
        ended = main([command, str(tmp_path / "spec.json"), "--storage", str(store), *options])
        captured = capsys.readouterr()
        errors = [line for line in captured.err.splitlines() if line.startswith("error: ")]
        assert ended == code, captured
        assert captured.err == f"{errors[0]}\n"
        kept = [name for name in listing(store) if name.startswith(f"{store}/aside")]
        assert [name for name in listing(store) if name not in kept] == before
        assert any(name.endswith("sweep.json") for name in kept) == has_run, "what has run is kept, aside"
        return errors[0].removeprefix("error: ")

    return refuse


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"trainable": "examples.quick:quadratc"}, "trainable", "did you mean 'quadratic'?"),
        pytest.param({"trainable": "math:pi"}, "trainable", "'math:pi' is a float, which cannot be called; name a function or a class", marks=pytest.mark.slow),
        ({"trainable": "tests.engine.cannot_be_imported:train"}, "trainable", "RuntimeError: not today"),
        ({"resources": {"cpu": 1000}}, "resources.cpu", "one trial asks for 1000 CPU; the largest node has 2; ask for at most 2"),
        ({"resources": {"gpu": 64}}, "resources.gpu", "one trial asks for 64 GPU"),
        ({"resources": {"custom": {"tpu": 1}}}, "resources.custom.tpu", "no node offers 'tpu': add one that does"),
        ({"resources": {"memory": 2**60}}, "resources.memory", "the largest node has"),
        ({"resources": {"bundles": [{"CPU": 1}, {"CPU": 1}], "strategy": "STRICT_SPREAD"}}, "resources", "choose another strategy"),
        ({"resources": {"bundles": [{"CPU": 2}, {"CPU": 1}]}}, "resources", "which the cluster cannot hold"),
        ({"resources": {"label_selector": {"zone": "moon"}}}, "resources.label_selector", "no live node has the labels {'zone': 'moon'}"),
    ],
)  # fmt: skip
def test_sweeps(refusal: Callable[..., str], changes: dict[str, Any], field: str, said: str) -> None:
    line = refusal("sweep", {**SWEEP, **changes}, "--key", "k")
    assert line.startswith(f"{field}: ")
    assert said in line


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"scaling": {"num_workers": 999}}, "scaling", "set num_workers to 2 or less"),
        ({"scaling": {"resources": {"custom": {"tpu": 1}}}}, "scaling", "add nodes that have it"),
        ({"trainable": "examples.quick:stepz"}, "trainable", "did you mean 'steps'?"),
        ({"trainable": "math:pi"}, "trainable", "'math:pi' is a float, which cannot be called"),
    ],
)
def test_training(refusal: Callable[..., str], changes: dict[str, Any], field: str, said: str) -> None:
    line = refusal("train", {**TRAIN, **changes}, "--key", "k")
    assert line.startswith(f"{field}: ")
    assert said in line


def test_the_key_of_an_unfinished_sweep_with_another_spec(refusal: Callable[..., str], store: Path) -> None:
    spec = SweepSpec.from_any({**SWEEP, "storage_path": str(store)})
    folder = SweepFolder(open_store(str(store)), sweep_id("bad", "k"))
    folder.write_spec_if_absent(SweepRecord(digest=spec.digest(), key="k", seed=1, spec=spec.to_dict()))
    line = refusal("sweep", {**SWEEP, "metric": "auc", "mode": "max"}, "--key", "k", code=4)
    assert 'was started with another spec: metric: "loss" -> "auc" | mode: "min" -> "max"' in line


def test_a_time_that_is_never_reported(refusal: Callable[..., str]) -> None:
    spec = {**SWEEP, **INLINE, "scheduler": {"asha": {"time_attr": "epoch"}}}
    line = refusal("sweep", spec, "--key", "k", has_run=True)
    # Whichever reports first.
    assert re.match(r"scheduler\.asha\.time_attr: 'epoch' was never reported by trial [012]; ", line)


def test_the_mended_spec_may_have_the_same_key(
    refusal: Callable[..., str], tmp_path: Path, store: Path
) -> None:
    line = refusal("sweep", {**SWEEP, **INLINE, "metric": "los"}, "--key", "k", has_run=True)
    assert line.startswith("metric: ")
    assert "set metric to a name that the trainable reports" in line
    assert f"what has run is kept in {store}/aside/" in line
    (tmp_path / "mended.json").write_text(json.dumps({**SWEEP, **INLINE}))
    assert main(["sweep", str(tmp_path / "mended.json"), "--storage", str(store), "--key", "k"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"mode": "maximum"}, "error: mode: 'maximum' is not known here; did you mean 'max'?\n"),
        ({"trainable": "no_such_module:train"}, "error: trainable: no module 'no_such_module'; install it, or put its folder on PYTHONPATH\n"),
        ({"resources": {"cpu": 1000}}, "error: resources.cpu: one trial asks for 1000 CPU; the largest node has 2; ask for at most 2\n"),
        ({"trainable": "math:pi"}, "error: trainable: 'math:pi' is a float, which cannot be called; name a function or a class\n"),
    ],
)  # fmt: skip
def test_in_a_process_of_its_own_with_a_ray_of_its_own(
    tmp_path: Path, store: Path, changes: dict[str, Any], line: str
) -> None:
    """Nothing else is on either output: neither Ray's warnings nor a log line."""
    before = listing(store)
    (tmp_path / "spec.json").write_text(json.dumps({**SWEEP, **changes}))
    command = [sys.executable, "-m", "raysweep.cli", "sweep", str(tmp_path / "spec.json")]
    done = subprocess.run(
        [*command, "--storage", str(store), "--num-cpus", "2"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (2, line)
    assert [part for part in done.stdout.splitlines() if "started bad-" not in part] == []
    assert listing(store) == before
