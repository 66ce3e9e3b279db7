"""The guide about commands: its specs are valid, its scripts run, its tables are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from raysweep.programs.plan import plan_of
from raysweep.programs.runner import Program
from raysweep.specs import SweepSpec, TrainSpec
from raysweep.specs.trial.program import BUILT_IN, MetricsSource, ProgramSpec, ProgramStop
from raysweep.specs.trial.service import ServiceSpec
from raysweep.testing import run_trial

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs/guides/programs.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", GUIDE, re.DOTALL)
SPECS = [text for language, text in BLOCKS if language == "yaml"]
GIVES_UP = 'raysweep emit --infeasible "needs 90 GB"\n'
SCRIPTS = [text for language, text in BLOCKS if language == "bash" and text != GIVES_UP]


def test_its_specs_are_valid() -> None:
    assert [SweepSpec.from_yaml(text).name for text in SPECS[:2]] == ["digits", "fine-tune"]
    assert TrainSpec.from_yaml(SPECS[2]).name == "digits-full"
    assert len(SPECS) == 3


@pytest.mark.parametrize("script", SCRIPTS)
def test_its_scripts_run(script: str) -> None:
    spec = SweepSpec(
        name="s", command=["bash", "-c", script, "x"], param_space={"lr": 1}, metric="loss", mode="min"
    )
    (attempt,) = run_trial(Program(plan_of(spec)), {"lr": 1})
    assert attempt.end == "returned", attempt.error
    assert [row["step"] for row in attempt.reports] == list(range(1, len(attempt.reports) + 1))
    assert len(attempt.reports) >= 3


def test_a_program_says_that_its_config_cannot_work() -> None:
    assert ("bash", GIVES_UP) in BLOCKS
    command = ["bash", "-c", GIVES_UP, "x"]
    spec = SweepSpec(name="s", command=command, param_space={"lr": 1}, metric="loss", mode="min")
    (attempt,) = run_trial(Program(plan_of(spec)), {"lr": 1}, max_failures=1)
    assert attempt.error is not None
    assert attempt.error["origin"] == "infeasible"
    assert attempt.error["message"] == "needs 90 GB"


def test_the_guide_about_servers_has_the_example() -> None:
    page = (ROOT / "docs/guides/inference-server.md").read_text()
    specs = [SweepSpec.from_yaml(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    assert specs[0] == SweepSpec.from_yaml((ROOT / "examples/serve/sweep.yaml").read_text())
    assert specs[1].program is not None
    assert specs[1].program.service is not None
    found = re.findall(r"`(\w+)[`: ]|^ +(\w+):", page, re.MULTILINE)
    assert set(ServiceSpec.model_fields) <= {name for names in found for name in names}


def test_the_guide_about_hugging_face_has_the_example() -> None:
    page = (ROOT / "docs/guides/hugging-face.md").read_text()
    sweep, train = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert SweepSpec.from_yaml(sweep) == SweepSpec.from_yaml(
        (ROOT / "examples/finetune/sweep.yaml").read_text()
    )
    assert TrainSpec.from_yaml(train).name == "finetune-full"


def test_it_names_every_placeholder_and_option() -> None:
    assert {name for name in BUILT_IN if f"`{{{name}}}`" not in GUIDE} == set()
    assert {name for name in ProgramSpec.model_fields if f"program.{name}" not in GUIDE} == set()
    assert {name for name in MetricsSource.model_fields if f"{{{name}: " not in GUIDE} == set()
    assert {name for name in ProgramStop.model_fields if name not in GUIDE} == set()
