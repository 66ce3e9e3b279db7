"""The examples of the guide do what it says."""

from __future__ import annotations

from types import ModuleType

import pytest

import raysweep as rs
from raysweep.simulate import Simulated
from tests.unit.testing.guide import blocks
from tests.unit.testing.guide import example as example  # a fixture


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
