from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from raysweep.cli import main
from raysweep.runs.ownership import sweep_claim
from tests.unit.verify.stored import Stored, copy_of, store_sweep


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Cli = Callable[..., Ran]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    def run(*arguments: Any) -> Ran:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Stored]:
    """By whether it has ended: a stored sweep that nobody changes."""
    return {
        is_ended: store_sweep(tmp_path_factory.mktemp("pristine"), is_ended=is_ended)
        for is_ended in (True, False)
    }


@pytest.fixture
def ended(pristine: dict[bool, Stored], tmp_path: Path) -> Stored:
    """A copy of one that has ended."""
    return copy_of(pristine[True], tmp_path / "store")


@pytest.fixture
def unfinished(pristine: dict[bool, Stored], tmp_path: Path) -> Stored:
    """A copy of one whose controller is gone."""
    return copy_of(pristine[False], tmp_path / "store")


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is there whose first heartbeat could be waited for."""
    monkeypatch.setattr(sweep_claim, "FIRST_BEAT_S", 0.0)
