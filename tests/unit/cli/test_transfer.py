"""`raysweep transfer`: the law of a stored sweep, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysweep.outcome import SweepOutcome
from tests.unit.pages.sweeps import store
from tests.unit.training.drifting import SWEEP, drifting

Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> SweepOutcome:
    return store(tmp_path_factory.mktemp("swept"), drifting, **SWEEP)[1]


def test_a_row_for_each_parameter_and_the_verdict_with_its_reasons(cli: Cli, swept: SweepOutcome) -> None:
    ran = cli("transfer", swept.uri, "--scale", "rows=64000")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].split() == [
        "parameter", "rows=1000", "rows=4000", "rows=16000", "law", "carried", "80", "%",
    ]  # fmt: skip
    lr = next(line.split() for line in lines if line.startswith("lr "))
    optima = [float(each) for each in lr[1:5]]
    assert optima == sorted(optima, reverse=True)
    assert next(line.split() for line in lines if line.startswith("act ")) == ["act", *["same"] * 4, "relu"]
    assert "verdict  carries" in ran.out
    assert "because  the ranks of configs agree between scales" in ran.out


def test_the_same_as_json(cli: Cli, swept: SweepOutcome) -> None:
    said = json.loads(cli("transfer", swept.uri, "--scale", "rows=64000", "--json").out)
    assert said["verdict"] == "carries"
    assert said["target"] == {"rows": 64000}
    assert said["scales"] == [{"rows": 1000}, {"rows": 4000}, {"rows": 16000}]
    row = next(each for each in said["parameters"] if each["parameter"] == "lr")
    assert row["interval"][0] < row["carried"] < row["interval"][1]
    assert len(row["optima"]) == 3


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (["rows"], "--scale: expected NAME=SIZE, got 'rows'"),
        (["rows=many"], "--scale: expected NAME=SIZE, got 'rows=many'"),
        (["rows=-3"], "--scale: expected a number > 0, got -3"),
        (["lines=3"], "'lines' is not a scale of the trials (rows)"),
    ],
)
def test_bad_sizes_are_one_line(cli: Cli, swept: SweepOutcome, sizes: list[str], message: str) -> None:
    ran = cli("transfer", swept.uri, *(part for size in sizes for part in ("--scale", size)))
    assert ran.code == 2
    assert message in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_a_sweep_of_one_scale_has_no_law(cli: Cli, tmp_path: Path) -> None:
    _, outcome = store(tmp_path, drifting, **SWEEP | {"scales": (), "scale": {"rows": 1000}})
    ran = cli("transfer", outcome.uri, "--scale", "rows=64000")
    assert ran.code == 2
    assert "a law needs two scales or more" in ran.err


def test_a_sweep_without_scales_has_no_law(cli: Cli, tmp_path: Path) -> None:
    def flat(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
        return {"loss": config["lr"]} if iteration == 1 else None

    _, outcome = store(tmp_path, flat, **SWEEP | {"scales": (), "num_samples": 3})
    ran = cli("transfer", outcome.uri, "--scale", "rows=64000")
    assert ran.code == 2
    assert "names no scale" in ran.err
