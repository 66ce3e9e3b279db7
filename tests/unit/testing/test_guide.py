"""The examples of the guide do what it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import raysweep as rs
from raysweep.simulate import Simulated

GUIDE = Path(__file__).parents[3] / "docs/guides/testing.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The guide's test file, imported as a user's would be."""
    (tmp_path / "test_training.py").write_text("\n\n".join(blocks()[:2]))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "test_training", raising=False)
    import test_training  # type: ignore[import-not-found]

    found: ModuleType = test_training
    return found


@pytest.mark.faults
def test_the_example_without_ray(example: ModuleType) -> None:
    example.test_it_goes_on_where_it_was()
    example.test_it_ends_when_it_is_told_to()


def test_the_example_in_virtual_time(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {}
    exec(blocks()[2], namespace)
    simulated = namespace["simulated"]
    assert isinstance(simulated, Simulated)
    assert len(simulated.outcome) == 100
    assert len(simulated.fired) == 1
    assert "hours" in capsys.readouterr().out
    assert rs.SweepOutcome.from_json(simulated.outcome.to_json()) == simulated.outcome
