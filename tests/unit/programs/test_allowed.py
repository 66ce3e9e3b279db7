"""`RAYSWEEP_PROGRAMS`: which programs a command may start, where it is asked for and where it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from raysweep.errors import TrainableImportError
from raysweep.programs.allowed import check_program, listed
from raysweep.programs.plan import Plan
from raysweep.programs.runner import Program
from raysweep.testing import run_trial


@pytest.fixture(autouse=True)
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAYSWEEP_PROGRAMS", raising=False)
    monkeypatch.delenv("RAYSWEEP_TRAINABLES", raising=False)


@pytest.mark.parametrize(
    ("programs", "trainables", "command", "is_allowed"),
    [
        ("", "", "bash", True),
        ("bash", "", "bash", True),
        ("python, bash", "my_project", "bash", True),
        ("python", "", "bash", False),
        ("", "my_project", "bash", False),
        ("/opt/*", "", "/opt/models/train", True),
        ("/opt/*", "", "/bin/opt/x", False),
        ("bash", "", "{program}", False),
    ],
)
def test_lists(
    programs: str, trainables: str, command: str, is_allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYSWEEP_PROGRAMS", programs)
    monkeypatch.setenv("RAYSWEEP_TRAINABLES", trainables)
    if is_allowed:
        check_program([command], is_local=False)
    else:
        with pytest.raises(TrainableImportError, match=r"command: .*RAYSWEEP_PROGRAMS"):
            check_program([command], is_local=False)


def test_the_list_of_the_controller_holds_where_the_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker gets the controller's `RAYSWEEP_TRAINABLES`, and its programs with the plan."""
    plan = Plan(command=("bash", "-c", "raysweep emit loss=1"))
    monkeypatch.setenv("RAYSWEEP_TRAINABLES", "my_project")
    assert run_trial(Program(replace(plan, allowed="bash")), {})[0].end == "returned"
    for allowed in ("", "python"):
        (attempt,) = run_trial(Program(replace(plan, allowed=allowed)), {})
        assert attempt.error is not None
        assert attempt.error["type"] == "TrainableImportError"
    monkeypatch.setenv("RAYSWEEP_PROGRAMS", "python")  # the node's own
    assert run_trial(Program(replace(plan, allowed="bash")), {})[0].end == "failed"
    assert listed() == "python"


def test_a_script_that_cannot_be_run_says_how_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\n")
    with pytest.raises(TrainableImportError, match=r"write \./train.sh"):
        check_program(["train.sh"], is_local=True)
    with pytest.raises(TrainableImportError, match=r"chmod \+x ./train.sh"):
        check_program(["./train.sh"], is_local=True)
    script.chmod(0o755)
    check_program(["./train.sh"], is_local=True)
    with pytest.raises(TrainableImportError, match=r"there is no program '\./other.sh' in"):
        check_program(["./other.sh"], is_local=True)
