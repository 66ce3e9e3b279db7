"""What each face says of the same runs: `status`, `nights`, `top`, `rs.sweeps`, the dashboard, briefs.

The JSON is in `faces.json`. After a change that is meant, RAYSWEEP_GOLDEN=write writes it: look at the diff.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

import raysweep as rs
from raysweep.outcome import Holder
from raysweep.pages.dashboard.runs import Runs
from raysweep.pages.live import training_document
from raysweep.runs.ownership.holder import current_holder
from raysweep.runs.reading.glances import glance_training
from raysweep.runs.training import RunFolder
from raysweep.step.brief import brief
from tests.unit.cli.conftest import cli, gone_holder, store_sweep
from tests.unit.cli.nights import Nights

__all__ = ["cli", "gone_holder", "store_sweep"]

RECORDED = Path(__file__).parent / "faces.json"
_TIMES = re.compile(r"(_at|^at|_s|^age|boot_id|^pid|^user|^host|active_s|cpu_hours|^per_minute|^estimate)$")
_CHANGING = re.compile(r"process \d+ of \S+ on \S+|(?<=gate-)[0-9a-f]{10,12}\b|\d+ days? ago|raysweep-\S+")


def settled(value: Any, root: str) -> Any:
    """The value without what differs from one run of the tests to the next."""
    if isinstance(value, dict):
        return {
            name: "TIME" if _TIMES.search(name) and item is not None else settled(item, root)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [settled(item, root) for item in value]
    return _CHANGING.sub("…", value.replace(root, "ROOT")) if isinstance(value, str) else value


def listed(nights: Nights) -> Any:
    runs = Runs(nights.store)
    try:
        return orjson.loads(runs.list_runs().body)
    finally:
        runs.close()


def plain(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value, default=str))


_ROW = (
    "kind", "run_id", "name", "key", "status", "has_ended", "why", "metric", "mode", "score", "trial_id",
    "config", "counts", "num_trials", "attempts", "trial_s", "started_at", "ended_at", "generation", "usage",
    "of", "uri",
)  # fmt: skip


def rows(url: str) -> Any:
    found = [{name: getattr(run, name) for name in _ROW} for run in rs.sweeps(url)]
    return [row | {"usage": row["usage"] and row["usage"].model_dump()} for row in found]


def faces(nights: Nights, ids: dict[str, str], cli: Callable[..., Any]) -> dict[str, Any]:
    """Every face's JSON, by name."""
    at = ("--storage", nights.url)

    def told(*arguments: str) -> Any:
        ran = cli(*arguments, "--json")
        assert ran.code == 0, ran.err
        document = json.loads(ran.out)
        del document["schema_version"]
        return next((document[name] for name in ("nights", "runs") if name in document), document)

    found: dict[str, Any] = {
        "status": told("status", *at),
        "nights": told("nights", "churn", *at),
        "top": told("top", nights.url),
        "sweeps": plain(rows(nights.url)),
        "dashboard": listed(nights),
        "training": plain(training_document(glance_training(RunFolder(nights.store, ids["training"])))),
        "brief": brief(rs.load(f"{nights.url}/{ids['ended']}")),
    }
    found |= {
        f"status {name}": told("status", ids[name], *at) for name in ("running", "left", "ended", "begun")
    }
    return found


def test_what_every_face_says_of_the_same_runs(
    tmp_path: Path, cli: Callable[..., Any], store_sweep: Callable[..., Any], gone_holder: Holder
) -> None:
    nights = Nights(tmp_path / "store")
    nights.add("2026-11-23", days_ago=3, promoted=True, trains=True)
    nights.add("2026-11-24", days_ago=2, promoted=False, trials=6, trial_s=900.0)
    ended, running, left = store_sweep("ended"), store_sweep("running"), store_sweep("left")
    ended.end()
    running.beat(current_holder())
    left.beat(gone_holder)
    ids = {
        "running": running.sweep_id,
        "left": left.sweep_id,
        "ended": ended.sweep_id,
        "begun": nights.begin("2026-11-25").sweep_id,
        "training": next(name for name in nights.store.list_folders() if name.startswith("churn-full-")),
    }
    made = json.dumps(settled(faces(nights, ids, cli), str(tmp_path)), indent=1, ensure_ascii=False)
    if os.environ.get("RAYSWEEP_GOLDEN") == "write":
        RECORDED.write_text(made + "\n", encoding="utf-8")
    assert made == RECORDED.read_text(encoding="utf-8").rstrip("\n")
