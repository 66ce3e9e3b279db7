"""`status`, `best`, `trials` of a sweep of several metrics: the front is marked, named, and comes first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.simulate import simulate
from raysweep.specs import SweepSpec
from raysweep.storage.objects.opening import open_store
from tests.unit.cli.conftest import Cli

ID = "served-0123456789"
FRONT = "2 trials that no other beats in loss and latency_ms: 00001, 00003"


def store(root: Path) -> list[str]:
    """A sweep that ended: trial 1 and 3 are on the front, trial 2 is worse than 1 in both."""
    spec = SweepSpec(
        name="served",
        trainable="m:f",
        param_space={"x": {"grid_search": [0, 1, 2, 3]}},
        metric=["loss", "latency_ms"],
        mode=["min", "min"],
        search="grid",
        seed=1,
    )
    values = [(9.0, 90.0), (1.0, 20.0), (2.0, 21.0), (3.0, 5.0)]

    def curve(config: Mapping[str, Any], step: int) -> Mapping[str, Any] | None:
        loss, latency_ms = values[config["x"]]
        return {"loss": loss, "latency_ms": latency_ms} if step < 2 else None

    outcome = simulate(spec, curve).outcome
    folder = SweepFolder(open_store(root), ID)
    folder.write_spec_if_absent(SweepRecord(digest=spec.digest(), key="k", seed=1, spec=spec.to_dict()))
    folder.write_outcome_if_absent(outcome.model_copy(update={"sweep_id": ID, "uri": folder.uri}))
    return [ID, "--storage", str(root)]


def test_best_and_status_name_the_front(cli: Cli, tmp_path: Path) -> None:
    where = store(tmp_path)
    best, status = cli("best", *where), cli("status", *where)
    assert (best.code, status.code) == (0, 0)
    assert best.out.startswith("loss 1  trial 00001\n")
    for said in (best.out, status.out):
        assert FRONT in " ".join(said.split())
    found = json.loads(cli("best", *where, "--json").out)
    assert (found["number"], found["others"], found["pareto"]) == (
        1,
        {"latency_ms": "min"},
        ["00001", "00003"],
    )


def test_trials_have_a_column_for_each_metric_and_mark_the_front(cli: Cli, tmp_path: Path) -> None:
    where = store(tmp_path)
    rows = [row.split() for row in cli("trials", *where, "--top", "9").out.splitlines()]
    assert rows[0][:5] == ["trial", "front", "state", "loss", "latency_ms"]
    assert [row[0] for row in rows[1:]] == ["00001", "00003", "00002", "00000"]
    assert [row[1] == "*" for row in rows[1:]] == [True, True, False, False]
    assert rows[2][3:5] == ["3", "5"]
    assert [row.split()[0] for row in cli("trials", *where, "--top", "1").out.splitlines()[1:]] == ["00001"]
    by_latency = cli("trials", *where, "--sort", "latency_ms").out.splitlines()
    assert [row.split()[0] for row in by_latency[1:]] == ["00003", "00001", "00002", "00000"]
