"""The examples of the guide for those who extend raysweep pass the suites that it names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from raysweep.documents.text import read_yaml
from raysweep.specs import SweepSpec

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs/guides/extending.md"
SWEEP = """
import raysweep as rs
from raysweep.simulate import Kill, simulate

spec = rs.SweepSpec.from_yaml('''
name: mine
trainable: "not:run"
param_space: {x: {uniform: [0, 1]}, layers: {randint: [1, 9]}}
metric: loss
mode: min
num_samples: 12
seed: 7
max_concurrent_trials: 1
search: {mutate: {n_startup_trials: 4}}
scheduler: {threshold: {bound: 2.0, grace_period: 2}}
stop: {trial: {training_iteration: 4}}
''')


def curve(config, iteration):
    return {"loss": config["x"] + config["layers"] / iteration}


whole = simulate(spec, curve).outcome
killed = simulate(spec, curve, kills=[Kill(when="after", append=9)]).outcome
shown = [[(trial.config, trial.state, trial.metrics) for trial in each.trials] for each in (whole, killed)]
assert shown[0] == shown[1]
assert killed.generation == 2
text = str(spec.json_schema())
assert "The worst value with which a trial continues." in text, "the schema knows the scheduler's options"
assert "How many trials are random." in text, "the schema knows the searcher's options"
for given, said in (
    ({"scheduler": {"threshold": {}}}, "scheduler.threshold.bound"),
    ({"scheduler": "treshold"}, "did you mean 'threshold'"),
    ({"search": {"mutate": {"n_startup_trials": 0}}}, "search.mutate.n_startup_trials"),
    ({"search": "mutate", "metric": ["a", "b"], "mode": ["min", "min"]}, "mutate searches by one metric"),
    ({"search": {}, "metric": ["a", "b"], "mode": ["min", "min"]}, "threshold compares trials by one"),
):
    try:
        rs.SweepSpec.from_any(spec.to_dict() | given)
    except rs.SpecError as error:
        assert said in str(error), str(error)
    else:
        raise AssertionError(f"{given} is accepted")
print(whole.counts)
"""


def files() -> dict[str, str]:
    """The guide's files: blocks that begin with the same name follow each other."""
    found: dict[str, str] = {}
    for name, block in re.findall(r"```python\n# (\w+\.py)[^\n]*\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        found[name] = found.get(name, "") + block + "\n\n"
    return found


def test_the_examples_pass_their_suites(tmp_path: Path) -> None:
    """As a user runs them: in a process of their own, from a folder of their own."""
    for name, text in files().items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 33
    assert "failed" not in done.stdout


def test_the_yaml_is_a_specs() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    fields = {"name": "s", "trainable": "m:f", "param_space": {"x": {"uniform": [0, 1]}}, "metric": "m"}
    given = read_yaml(block)
    assert isinstance(given, dict)
    spec = SweepSpec.from_any({**fields, "mode": "min", **given})
    assert (spec.scheduler.is_plugin, spec.search.is_plugin) == (True, True)


@pytest.mark.parametrize("name", sorted(files()))
def test_the_examples_are_files(name: str) -> None:
    compile(files()[name], name, "exec")


def own_files() -> dict[str, str]:
    """The files of the engine that the guide writes, by path."""
    found = re.findall(
        r"```python\n# ((?:schedulers|search)/\w+\.py)\n(.*?)```", GUIDE.read_text(), re.DOTALL
    )
    assert len(found) == 4
    return dict(found)


def test_a_policy_of_raysweep_is_one_file_and_one_line_of_a_registry(tmp_path: Path) -> None:
    """A copy of the engine with what the guide writes, and nothing else, runs a sweep with both policies."""
    engine = tmp_path / "raysweep"
    shutil.copytree(ROOT / "engine/raysweep", engine, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in own_files().items():
        if name.endswith("registry.py"):
            lines = (engine / name).read_text().rstrip()
            assert lines.endswith("\n}")
            text = f"{lines[:-1]}{text}}}\n"
        else:
            assert not (engine / name).exists()
        (engine / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", SWEEP],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "completed" in done.stdout
    assert "stopped" in done.stdout
