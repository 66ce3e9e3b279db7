"""`status`, `best`, `trials` of a sweep with constraints: what breaks them is marked, and never the best."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.simulate import simulate
from raysweep.specs import SweepSpec
from raysweep.storage.objects.opening import open_store
from tests.unit.cli.conftest import Cli

ID = "served-0123456789"


def store(root: Path, bound: str) -> list[str]:
    """A sweep that ended: four trials of loss 0 … 3 and latency 30 … 0."""
    spec = SweepSpec(
        name="served",
        trainable="m:f",
        param_space={"x": {"grid_search": [0, 1, 2, 3]}},
        metric="loss",
        mode="min",
        search="grid",
        constraints=[bound],
        seed=1,
    )

    def curve(config: Mapping[str, Any], step: int) -> Mapping[str, Any] | None:
        return {"loss": config["x"], "latency_ms": 30 - 10 * config["x"]} if step < 2 else None

    outcome = simulate(spec, curve).outcome
    folder = SweepFolder(open_store(root), ID)
    folder.write_spec_if_absent(SweepRecord(digest=spec.digest(), key="k", seed=1, spec=spec.to_dict()))
    folder.write_outcome_if_absent(outcome.model_copy(update={"sweep_id": ID, "uri": folder.uri}))
    return [ID, "--storage", str(root)]


def test_the_best_is_one_that_satisfies_them(cli: Cli, tmp_path: Path) -> None:
    where = store(tmp_path, "latency_ms <= 20")
    best = cli("best", *where)
    assert (best.code, best.err) == (0, "")
    assert best.out.startswith("loss 1  trial 00001\n")
    assert "  by          lowest loss, " in best.out
    assert "latency_ms <= 20" in best.out
    found = json.loads(cli("best", *where, "--json").out)
    assert (found["number"], found["constraints"]) == (1, ["latency_ms <= 20"])
    assert found["violations"] == {"latency_ms <= 20": 0.0}


def test_trials_say_what_they_break_and_such_come_last(cli: Cli, tmp_path: Path) -> None:
    where = store(tmp_path, "latency_ms <= 20")
    rows = cli("trials", *where, "--top", "9").out.splitlines()
    assert "violates" in rows[0]
    assert [row.split()[0] for row in rows[1:]] == ["00001", "00002", "00003", "00000"]
    assert ["latency_ms <= 20" in row for row in rows[1:]] == [False, False, False, True]
    worst_first = cli("trials", *where, "--sort", "-loss").out.splitlines()
    assert [row.split()[0] for row in worst_first[1:]] == ["00003", "00002", "00001", "00000"]
    csv = cli("trials", *where, "--csv").out.splitlines()
    assert "violated" in csv[0].split(",")
    assert "latency_ms <= 20" in csv[1]


@pytest.mark.parametrize("command", ["best", "status"])
def test_without_one_that_satisfies_them_it_is_said(command: str, cli: Cli, tmp_path: Path) -> None:
    ran = cli(command, *store(tmp_path, "latency_ms < 0"))
    said = "no trial satisfies latency_ms < 0; the nearest is trial 00003 with loss 3"
    if command == "best":
        assert (ran.code, ran.out) == (1, "")
        assert f"{ID} has no best trial: {said}; see raysweep trials" in ran.err
    else:
        assert ran.code == 0
        assert f"none: {said}" in " ".join(ran.out.split())
        assert ran.out.count("no trial satisfies") == 1
