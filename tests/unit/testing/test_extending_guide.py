"""The examples of the guide for those who extend raysweep pass the suites that it names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

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


def test_the_yaml_is_a_specs() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    fields = {"name": "s", "trainable": "m:f", "param_space": {"x": {"uniform": [0, 1]}}, "metric": "m"}
    given = read_yaml(block)
    assert isinstance(given, dict)
    spec = SweepSpec.from_any({**fields, "mode": "min", **given})
    assert (spec.scheduler.is_plugin, spec.search.is_plugin) == (True, True)


def call(*command: object, cwd: Path, packages: Path | None = None, timeout: float = 100) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if packages is not None:
        env["PYTHONPATH"] = str(packages)
    ran = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the guide's package is installed from its wheel."""
    project, packages = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("packages")
    (block,) = re.findall(r"```toml\n# pyproject.toml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (project / "pyproject.toml").write_text(block)
    (project / "my_policies.py").write_text(files()["my_policies.py"])
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    call(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", "dist", ".", cwd=project)
    (wheel,) = (project / "dist").glob("*.whl")
    call(*pip, "install", "--no-deps", "--no-index", "--target", packages, wheel, cwd=project)
    return packages


def test_the_examples_pass_their_suites(packages: Path, tmp_path: Path) -> None:
    """As a user runs them: in a process and a folder of their own, the policies from a wheel."""
    for name, text in files().items():
        if name != "my_policies.py":
            (tmp_path / name).write_text(text)
    test = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path)
    done = call(sys.executable, *test, cwd=tmp_path, packages=packages)
    passed = re.search(r"(\d+) passed", done)
    assert passed is not None
    assert int(passed[1]) >= 33


NAMED: Final = """
name: named
trainable: "named:train"
param_space: {x: {uniform: [0, 1]}, layers: {randint: [1, 9]}}
metric: loss
mode: min
num_samples: 6
seed: 7
isolation: inline
max_concurrent_trials: 1
search: climber
scheduler: {median: {grace: 2, max_t: 9}}
"""
NAMED_TRAINABLE: Final = """
import raysweep as rs

def train(config):
    for step in range(1, 10):
        rs.report({"loss": (config["x"] - 0.3) ** 2 + config["layers"] / step})
"""
RESUMED: Final = """
import ray
import raysweep as rs

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)

spec = rs.SweepSpec.from_any("named.yaml")
assert (spec.scheduler.kind, spec.search.kind) == ("my_policies:Median", "my_policies:Climber")

def shown(outcome):
    return [(trial.config, trial.state, trial.metrics) for trial in outcome.trials]

whole = rs.run_sweep(spec.replace(storage_path="whole"), key="k")
first = rs.run_sweep(spec.replace(storage_path="parts", num_samples=3), key="k")
again = rs.run_sweep(spec.replace(storage_path="parts"), key="k")
assert (len(first), len(again), again.generation) == (3, 6, 2)
assert shown(again) == shown(whole)
print(sorted(whole.counts))
"""


def named(folder: Path) -> Path:
    (folder / "named.yaml").write_text(NAMED)
    (folder / "named.py").write_text(NAMED_TRAINABLE)
    return folder


def test_a_package_from_a_wheel_is_found_by_its_names(packages: Path, tmp_path: Path) -> None:
    plan = ("plan", "named.yaml", "--storage", tmp_path / "store", "--cluster", "1xCPU4")
    shown = call(sys.executable, "-m", "raysweep.cli", *plan, cwd=named(tmp_path), packages=packages)
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "from scheduler my_policies:Median: median of my-policies 0.1.0" in lines
    assert "from search my_policies:Climber: climber of my-policies 0.1.0" in lines


@pytest.mark.ray
def test_a_sweep_with_a_package_from_a_wheel_is_resumed(packages: Path, tmp_path: Path) -> None:
    done = call(sys.executable, "-c", RESUMED, cwd=named(tmp_path), packages=packages)
    assert "stopped" in done


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
            before, end, after = (engine / name).read_text().partition("\n}\n")  # that of KINDS
            assert "FORMER" not in before
            text = f"{before}\n{text.rstrip()}{end}{after}"
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
