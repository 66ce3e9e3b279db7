"""Trainings on a real local Ray, beside what was recorded of them.

After a change that is meant, RAYSWEEP_GOLDEN=write writes the records: look at the diff.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from raysweep.cli import main
from raysweep.raycompat.tokens import is_open
from tests.engine.recorded_trainings import (
    SCENARIOS,
    Trainings,
    by_command,
    is_killed,
)
from tests.sampling import first_of

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("ray_cluster"),
    # Ray Train, which here runs in this process, uses pydantic's older names.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
]
RECORDS = Path(__file__).parents[1] / "golden" / "trainings"


@pytest.fixture
def trainings(tmp_path: Path) -> Trainings:
    return Trainings(tmp_path)


def check(name: str, trainings: Trainings) -> None:
    path = RECORDS / f"{name}.json"
    found = trainings.record()
    if os.environ.get("RAYSWEEP_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(found)
    assert found.decode() == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", first_of(SCENARIOS))
def test_a_training_is_as_it_was_recorded(trainings: Trainings, name: str) -> None:
    SCENARIOS[name](trainings)
    check(name, trainings)


@pytest.mark.slow
@pytest.mark.servers
def test_a_killed_training_ends_as_it_was_recorded(
    trainings: Trainings, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_open(address):  # from Ray 2.60 an embedded Ray has a token, which is taken only for `auto`
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
    is_killed(trainings, address)
    check("is-killed", trainings)


@pytest.mark.slow
def test_the_command_is_as_it_was_recorded(trainings: Trainings, capsys: pytest.CaptureFixture[str]) -> None:
    def cli(*arguments: Any) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    by_command(trainings, cli)
    check("by-command", trainings)
