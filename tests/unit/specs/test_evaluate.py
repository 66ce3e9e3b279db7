"""Evaluation apart from training in a spec: what it reads, what it refuses, and what the guide says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from raysweep.cluster.ray.preflight import Node, count_trials
from raysweep.errors import InfeasibleResourcesError, SpecError
from raysweep.programs.plan import plan_of_evaluation
from raysweep.specs import SweepSpec
from raysweep.specs.changes import changes
from raysweep.specs.trial.evaluate import EvaluateSpec
from tests.unit.core.toys import make_spec

GUIDE = (Path(__file__).parents[3] / "docs/guides/evaluation.md").read_text(encoding="utf-8")


DRIVER = {"num_workers": 2, "driver": {}}


def judge(checkpoint: Path, config: dict[str, Any], iteration: int) -> dict[str, float]:
    return {"acc": 1.0}


def test_it_reads_what_it_writes() -> None:
    short = make_spec(evaluate="judges:judge")
    assert short.evaluate is not None
    assert (short.evaluate.trainable, short.evaluate.slots, short.evaluate.tries) == ("judges:judge", 1, 3)
    command = make_spec(evaluate={"command": ["python", "e.py", "{checkpoint}", "{x}", "{iteration}"]})
    of_python = make_spec(evaluate=judge)
    by_trainer = make_spec(evaluate="validation_config", scaling=DRIVER)
    assert by_trainer.to_dict()["evaluate"]["trainable"] == "validation_config"
    for spec in (short, command, of_python, by_trainer):
        assert SweepSpec.from_yaml(spec.to_yaml()).digest() == spec.digest()
    assert command.evaluate is not None
    assert command.evaluate.is_program
    plan = plan_of_evaluation(command.evaluate)
    assert not plan.adds_args, "the config need not reach what evaluates"


def test_a_spec_without_it_has_the_digest_that_it_had_before() -> None:
    assert "evaluate" not in make_spec().to_dict()


@pytest.mark.parametrize(
    ("evaluate", "fields", "refusal"),
    [
        ({}, {}, "evaluate: names nothing that evaluates"),
        ({"slots": 2}, {}, "evaluate: names nothing that evaluates"),
        ({"trainable": "a:b", "command": ["c"]}, {}, "evaluate.command: cannot be combined with trainable"),
        ({"trainable": "a:b", "slots": 0}, {}, "evaluate.slots"),
        ({"trainable": "a:b", "every": 0}, {}, "evaluate.every"),
        ({"trainable": "a:b", "resources": {"cpu": 0}}, {}, "evaluate.resources: asks for nothing"),
        ({"trainable": "a:b", "max_concurrent": 2}, {}, "slots"),
        ({"command": ["c", "{nothing}"]}, {}, r"evaluate.command\[1\].*unknown placeholder \{nothing\}"),
        (
            "a:b",
            {"scaling": {"num_workers": 2}},
            "evaluate: cannot be combined with scaling without a driver",
        ),
        ("validation_config", {}, "evaluate.trainable: validation_config requires scaling with a driver"),
        (
            {"trainable": "validation_config", "every": 2},
            {"scaling": DRIVER},
            "evaluate.every: cannot be combined with trainable: validation_config",
        ),
        ("a:b", {"isolation": "inline", "max_concurrent_trials": 1}, "evaluate: cannot .* isolation: inline"),
        ("a:b", {"checkpoint": {"upload": "latest"}}, "evaluate: cannot .* checkpoint.upload: latest"),
        ("a:b", {"stop": {"trial_time_s": 5}}, "evaluate: cannot be combined with stop.trial_time_s"),
    ],
)
def test_bad_input_is_one_line(evaluate: Any, fields: dict[str, Any], refusal: str) -> None:
    with pytest.raises(SpecError, match=refusal) as caught:
        make_spec(evaluate=evaluate, **fields)
    assert "\n" not in str(caught.value)


def test_how_much_is_evaluated_at_once_may_change_and_what_evaluates_may_not() -> None:
    old = make_spec(evaluate={"trainable": "a:b"})
    safe = {"trainable": "a:b", "slots": 3, "tries": 1, "timeout_s": 9.0, "ahead": 0}
    assert not changes(old, old.replace(evaluate=safe)).unsafe
    for unsafe in ({"trainable": "a:c"}, {"trainable": "a:b", "every": 2}, None):
        assert changes(old, old.replace(evaluate=unsafe)).unsafe


def test_trials_have_the_room_that_evaluations_leave() -> None:
    nodes = [
        Node(name="gpu", total={"CPU": 8, "GPU": 2}, labels={}),
        Node(name="cpu", total={"CPU": 8}, labels={}),
    ]
    spec = make_spec(resources={"cpu": 4, "gpu": 1})
    assert count_trials(spec, nodes) == 2
    judged = spec.replace(evaluate={"trainable": "a:b", "slots": 2, "resources": {"cpu": 4}})
    assert count_trials(judged, nodes) == 2, "they have the node without GPUs"
    assert count_trials(judged.replace(evaluate={"trainable": "a:b", "resources": {"gpu": 1}}), nodes) == 1
    large = {"trainable": "a:b", "resources": {"cpu": 9}}
    with pytest.raises(InfeasibleResourcesError, match=r"evaluate\.resources"):
        count_trials(judged.replace(evaluate=large), nodes)
    all_gpus = {"trainable": "a:b", "resources": {"gpu": 1}, "slots": 2}
    with pytest.raises(InfeasibleResourcesError, match="beside 2 evaluations of"):
        count_trials(judged.replace(evaluate=all_gpus), nodes)


def test_the_guide_has_each_option_and_a_spec_that_is_valid() -> None:
    assert {name for name in EvaluateSpec.model_fields if f"`{name}`" not in GUIDE} == set()
    text, added = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    assert SweepSpec.from_yaml(text).evaluate is not None
    spec = make_spec(**yaml.safe_load(added))
    assert spec.evaluate is not None
    assert spec.evaluate.is_by_trainer


def test_the_guides_function_evaluates(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("0.5")
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    scope: dict[str, Any] = {}
    exec(code, scope)
    assert scope["evaluate"](tmp_path, {}, 3) == {"acc": 0.5, "eval_step": 3}
