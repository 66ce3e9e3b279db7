"""Fixtures of a small sweep spec, and of the line that refuses one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.specs import SweepSpec


@pytest.fixture
def fields() -> dict[str, Any]:
    """The least that a sweep needs."""
    return {
        "name": "flights",
        "trainable": "examples.flights:train",
        "param_space": {"lr": {"loguniform": [1e-4, 1e-1]}},
        "metric": "auc",
        "mode": "max",
    }


@pytest.fixture
def spec(fields: dict[str, Any]) -> SweepSpec:
    return SweepSpec(**fields)


@pytest.fixture
def refusal(fields: dict[str, Any]) -> Callable[..., str]:
    """The one line with which a sweep of these fields is refused; the same for the dict and for the call."""

    def refuse(**changes: Any) -> str:
        given = {**fields, **changes}
        with pytest.raises(SpecError) as by_call:
            SweepSpec(**given)
        with pytest.raises(SpecError) as by_dict:
            SweepSpec.from_any(given)
        text = str(by_call.value)
        assert str(by_dict.value) == text
        assert "\n" not in text
        assert by_call.value.exit_code == 2
        assert by_call.value.fix
        return text

    return refuse
