"""Modules that a trial goes into: whenever they are imported, and never while none is there."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from raysweep.worker.process.import_hooks import Door, Doors

NAME = "imported_late_or_never"


@pytest.fixture
def doors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Doors[str]:
    (tmp_path / f"{NAME}.py").write_text("inside = None\nat_import = inside\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    return Doors(Door(NAME, enter, leave))


def enter(module: ModuleType, who: str) -> None:
    module.inside = who  # type: ignore[attr-defined]


def leave(module: ModuleType) -> None:
    module.inside = None  # type: ignore[attr-defined]


def imported() -> str | None:
    found: str | None = importlib.import_module(NAME).inside
    return found


def test_one_that_is_inside_when_a_module_is_imported_is_in_it(doors: Doors[str]) -> None:
    doors.enter("first")
    doors.leave()
    doors.enter("second")
    assert imported() == "second"
    doors.leave()
    assert imported() is None
    doors.enter("third")
    assert imported() == "third"


def test_a_module_that_is_imported_between_two_is_entered_by_the_next_alone(doors: Doors[str]) -> None:
    doors.enter("first")
    doors.leave()
    assert imported() is None
    doors.enter("second")
    assert imported() == "second"


def test_a_module_that_is_imported_once_more_is_entered_once_more(
    doors: Doors[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    doors.enter("first")
    assert imported() == "first"
    doors.leave()
    monkeypatch.delitem(sys.modules, NAME)
    doors.enter("second")
    assert imported() == "second"
    doors.leave()
    assert imported() is None
