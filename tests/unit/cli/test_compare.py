"""`raysweep compare`: two sweeps by their common seeds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.pages.sweeps import store

Cli = Callable[..., Any]
SPEC: dict[str, Any] = {
    "param_space": {"rate": 0.1, "fold": {"grid_search": [0, 1, 2, 3, 4, 5]}},
    "search": "grid",
    "num_samples": 1,
    "scheduler": "fifo",
}


@pytest.fixture
def compared(cli: Cli, tmp_path: Path) -> Callable[..., Any]:
    """Two stored sweeps: each fold has its own level, and the new one `gain` more in each."""

    def run(gain: float, *flags: str, **changes: Any) -> Any:
        def curve(by: float) -> Callable[..., Any]:
            def one(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
                fold = config["fold"]
                auc = fold + (by + 0.01 * (fold % 3) if by else 0.0)
                return {"auc": auc} if iteration == 1 else None

            return one

        root = tmp_path / "store"
        if not root.exists():
            store(root, curve(0.0), name="base", **SPEC)
            store(root, curve(gain), name="change", **SPEC | changes)
        return cli("compare", "base", "change", *flags, "--storage", root)

    return run


def test_a_gain_in_each_fold_is_a_gain(compared: Callable[..., Any]) -> None:
    ran = compared(0.1, "--by", "fold", "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert (found["verdict"], found["test"], found["common"]) == ("better", "paired", 6)
    assert found["improvement"] == pytest.approx(0.11)
    assert (found["metric"], found["by"], found["base"]["config"]) == ("auc", ["fold"], {"rate": 0.1})
    assert found["base"]["sweep_id"].startswith("base-")
    assert found["new"]["sweep_id"].startswith("change-")
    said = compared(0.1, "--by", "fold").out
    assert said.startswith("better: better by 0.11")
    assert "by fold: 6 in common" in said


def test_unpaired_it_is_hidden_by_the_folds(compared: Callable[..., Any]) -> None:
    found = json.loads(compared(0.1, "--json").out)
    assert (found["verdict"], found["test"]) == ("undecided", "unpaired")


def test_a_sweep_beside_itself_decides_nothing(
    cli: Cli, compared: Callable[..., Any], tmp_path: Path
) -> None:
    compared(0.1)
    found = json.loads(
        cli("compare", "base", "base", "--by", "fold", "--json", "--storage", tmp_path / "store").out
    )
    assert (found["verdict"], found["why"]) == ("undecided", "they are the same runs")


def test_other_metrics_are_refused(compared: Callable[..., Any]) -> None:
    ran = compared(0.1, "--by", "fold", mode="min")
    assert ran.code == 2
    assert "ranked by auc (max) and auc (min)" in ran.err


def test_a_trial_that_is_none_is_refused(cli: Cli, compared: Callable[..., Any], tmp_path: Path) -> None:
    compared(0.1)
    ran = cli("compare", "base#x", "change", "--storage", tmp_path / "store")
    assert ran.code == 2
    assert "write NAME@KEY#3" in ran.err
