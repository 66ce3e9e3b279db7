"""What of a spec with a command is refused, in one line with field, value and fix."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.specs import SweepSpec, TrainSpec
from raysweep.specs.changes import changes
from raysweep.specs.code_digest import code_digest_of
from raysweep.specs.outline import outline, outline_changes
from raysweep.specs.trial.program import RUNNER

SPACE: dict[str, Any] = {"lr": {"uniform": [0, 1]}, "model": {"width": {"choice": [1, 2]}}}


def make(command: Any = ("train.sh", "{args}"), **fields: Any) -> SweepSpec:
    plain = {"name": "s", "param_space": SPACE, "metric": "loss", "mode": "min"}
    return SweepSpec(**{**plain, "command": command, **fields})


@pytest.mark.parametrize(
    ("command", "fields", "message"),
    [
        ([], {}, "command: is empty; write a list such as"),
        ([" "], {}, "command[0]: names no program"),
        ("train.sh --x", {}, "got the text 'train.sh --x'; write [train.sh, --x]"),
        (["a", True], {}, "command[1]: expected text, got True"),
        (["a", "--x={args}"], {}, "command[1]: '--x={args}' has {args}, which is several arguments"),
        (["a", "{lrr}"], {}, "has the unknown placeholder {lrr}; use one of lr, model.width, args"),
        (["a", "{lr}"], {}, 'the parameter model.width does not reach the program; add "{model.width}"'),
        (["a"], {"trainable": "m:f"}, "command: cannot be combined with trainable; give one of them"),
        (None, {"trainable": "m:f", "program": {}}, "program: requires command"),
        (None, {"trainable": RUNNER}, f"command: {RUNNER} runs a command"),
        (["a", "{args}"], {"program": {"metrics": {}}}, "program.metrics: names no source"),
        (["a"], {"program": {"metrics": {"jsonl": "x", "stdout": "(?P<x>.)"}}}, "has jsonl and stdout"),
        (["a"], {"program": {"metrics": {"stdout": "loss"}}}, "metrics.stdout: 'loss' has no named group"),
        (["a"], {"program": {"metrics": {"stdout": "("}}}, "is not a regular expression"),
        (["a"], {"program": {"metrics": {"jsonl": "{nope}/x"}}}, "metrics.jsonl: '{nope}/x' has the unknown"),
        (["a"], {"program": {"environment": {"A": "{args}"}}}, "environment.A: '{args}' has {args}, which"),
        (["a"], {"program": {"stop": {"signal": "SIGTREM"}}}, "stop.signal: 'SIGTREM' is not a signal; did"),
        (["a"], {"program": {"checkpoints": {"marker": "done"}}}, "checkpoints.marker: requires folder"),
        (["a"], {"program": {"checkpoints": {"resume": "'x"}}}, "program.checkpoints.resume"),
        (["a"], {"scaling": {"num_workers": 2, "backend": "gloo"}}, "scaling.backend: cannot be combined"),
        (["a", "{args}"], {"param_space": {"args": 1}}, "{args} is a parameter and a placeholder of its own"),
    ],
)  # fmt: skip
def test_bad_commands_are_one_line(command: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as error:
        make(command, **fields)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("space", "program", "message"),
    [
        (
            ["path"],
            {},
            "the parameter path would replace the variable PATH, which programs need; rename it, or name",
        ),
        (["raysweep_emit"], {}, "would replace the variable RAYSWEEP_EMIT"),
        (["ld_preload"], {}, "would replace the variable LD_PRELOAD"),
        (["python.path"], {}, "the parameter python.path would replace the variable PYTHON_PATH"),
        (["cuda-visible-devices"], {}, "would replace the variable CUDA_VISIBLE_DEVICES"),
        (["a_b", "a-b"], {}, "the parameters a_b and a-b are one variable, A_B; rename one of them"),
        (["lr", "LR"], {}, "the parameters lr and LR are one variable, LR"),
        (
            ["lr"],
            {"environment": {"LR": "1"}},
            "program.environment.LR: replaces the variable of the parameter lr",
        ),
        (
            ["größe"],
            {"arguments": "hydra"},
            "arguments: hydra cannot read the parameter 'größe' as a key; rename it",
        ),
        (["a b"], {"arguments": "hydra"}, "hydra cannot read the parameter 'a b' as a key"),
        (["a.b", "NEST"], {"arguments": "flags"}, "command: two parameters have the path a.b; rename one"),
    ],
)
def test_names_that_a_program_cannot_have_are_one_line(
    space: list[str], program: dict[str, Any], message: str
) -> None:
    names = {name: 1 for name in space if name != "NEST"} | ({"a": {"b": 2}} if "NEST" in space else {})
    with pytest.raises(SpecError) as error:
        make(["x"], param_space=names, program={"arguments": "environment"} | program)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("space", "program"),
    [
        ({"path": "x"}, {"environment": {"RUN_PATH": "{path}"}}),
        ({"lr": 1}, {"environment": {"LR": "x{lr}"}}),
        ({"omp_num_threads": 1, "env": "CartPole"}, {}),
        ({"+db/model@pkg": "x", "++model.width": 1, "layers.0": 2}, {"arguments": "hydra"}),
    ],
)
def test_names_that_a_program_can_have(space: dict[str, Any], program: dict[str, Any]) -> None:
    make(["x"], param_space=space, program={"arguments": "environment"} | program)


def test_a_training_has_one_program() -> None:
    with pytest.raises(SpecError, match=r"scaling.num_workers: has 2 workers, and a command runs in one"):
        TrainSpec(command=["train.sh"], scaling={"num_workers": 2})
    spec = TrainSpec(command=["train.sh", "--lr", "{lr}", "{args}"])
    assert TrainSpec.from_json(spec.to_json()) == spec


def test_a_spec_with_a_command_is_written_without_a_trainable_and_read_back() -> None:
    spec = make(program={"checkpoints": "checkpoint-*", "stop": {"signal": "int"}})
    assert "trainable" not in spec.to_dict()
    assert SweepSpec.from_yaml(spec.to_yaml()) == spec
    assert spec.trainable == RUNNER
    assert spec.what_runs == "train.sh '{args}'"
    assert spec.program is not None
    assert (spec.program.checkpoints.folder, spec.program.stop.signal) == ("checkpoint-*", "SIGINT")


def test_a_command_and_a_trainable_replace_each_other() -> None:
    spec = make(program={"arguments": "hydra"})
    plain = spec.replace(trainable="m:f")
    assert (plain.command, plain.program) == (None, None)
    assert plain.replace(command=["x"]).trainable == RUNNER
    assert spec.replace(num_samples=3).command == spec.command


def test_another_command_is_another_search() -> None:
    one, two = make(), make(["other.sh", "{args}"])
    for found in (changes(one, two), outline_changes(outline(one), outline(two))):
        assert any("command" in each for each in found.unsafe)
    assert changes(one, one.replace(trainable="m:f")).unsafe
    assert not changes(one, make())


def test_the_script_is_part_of_the_digest_of_the_code(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = make(["python", "train.py", "{args}"])
    assert code_digest_of(spec) == ""
    (tmp_path / "train.py").write_text("one")
    first = code_digest_of(spec)
    (tmp_path / "train.py").write_text("two")
    assert first.startswith("program:")
    assert code_digest_of(spec) not in ("", first)
