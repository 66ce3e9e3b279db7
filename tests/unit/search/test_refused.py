"""A search that cannot walk a grid, or whose package is missing, says so."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.search import Searcher, make_searcher
from raysweep.specs import SweepSpec

SPACE: dict[str, Any] = {"x": {"uniform": [0, 1]}, "y": {"uniform": [-2, 2]}}


def make(search: Any, space: dict[str, Any] = SPACE) -> Searcher:
    fields: dict[str, Any] = {"name": "s", "trainable": "m:f", "metric": "m", "mode": "min"}
    return make_searcher(SweepSpec(**fields, param_space=space, num_samples=64, search=search), 3)


@pytest.mark.parametrize("kind", ["gp", "cma_es", "auto", "tpe"])
def test_grid_search_is_refused(kind: str) -> None:
    with pytest.raises(
        SpecError, match=rf"param_space\.g: grid_search cannot .* the {kind} search; .*choice"
    ):
        make(kind, SPACE | {"g": {"grid_search": [1, 2]}})


@pytest.mark.parametrize(
    ("kind", "package", "extra"),
    [
        ("cma_es", "cmaes", "search"),
        ("gp", "torch", "gp"),
        ("gp", "scipy", "gp"),
        ("auto", "optuna", "ray"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, kind: str, package: str, extra: str
) -> None:
    for name in ("cma", "gp", "auto", "tpe", "optuna_model", "optuna_params"):
        monkeypatch.delitem(sys.modules, f"raysweep.search.models.{name}", raising=False)
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        SpecError, match=rf"search: {kind} needs .*not installed; pip install raysweep\[{extra}\]"
    ):
        make(kind)
