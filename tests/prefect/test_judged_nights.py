"""Judged nights on a real Prefect server: a release, an approval after the judgement, the same key again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.prefect.local import LocalPrefect
from raysweep.runs.across_runs.champions import Line, read_champion
from raysweep.storage.objects.opening import open_store
from tests.jobs.head import free_ports
from tests.orchestrators.prefect import QUICK, PrefectOrchestrator
from tests.prefect.desk import Desk, wait_until

pytestmark = [pytest.mark.servers, pytest.mark.ray, pytest.mark.timeout(900)]
HERE = "tests.engine.judged"
LINE = Line(name="churn", metric="auc", mode="max")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    (port,) = free_ports(1)
    with LocalPrefect(tmp_path / "prefect", port=port, environment=QUICK) as servers:
        yield Desk(PrefectOrchestrator(servers), tmp_path)


def night(storage: Path, key: str, gain: float, **fields: Any) -> dict[str, Any]:
    """The parameters of a night whose config and model gain this."""
    storage.mkdir(exist_ok=True)
    data = storage / "holdout.json"
    data.write_text("0.0")
    inline = {"isolation": "inline", "max_concurrent_trials": 1}
    sweep = {"name": "churn", "trainable": f"{HERE}:search", "param_space": {"gain": {"grid_search": [gain]}}}
    judge = {"evaluate": f"{HERE}:score", "data": str(data), "metric": "auc", "mode": "max"}
    return {
        "spec": {**sweep, "metric": "auc", "mode": "max", **inline},
        "gate_spec": {"confirm_top_k": 1, "seeds": 2},
        "train_spec": {"name": "full", "trainable": f"{HERE}:train"},
        "judge_spec": judge,
        "storage_path": str(storage),
        "key": key,
        **fields,
    }


def released(storage: Path) -> str:
    champion = read_champion(open_store(storage), LINE).champion
    return champion.key if champion is not None else ""


def test_a_model_is_released_once_it_passed_and_a_person_approved(desk: Desk) -> None:
    storage = desk.storage
    tasks = desk.end(desk.begin(night(storage, "n1", 0.002)))
    assert tasks["judge"][0] == "Completed"
    assert tasks["judge"][1].startswith("passed: auc 0.702; no model was released")
    assert released(storage) == "n1"

    asked = night(storage, "n2", 0.01, approval={"after": "judge", "timeout": 4 * 3600.0})
    run = desk.begin(asked)
    form = desk.waits(run)
    assert "model passed, waits for approval" in form
    assert "| auc | new model | released model | better by |" in form
    assert released(storage) == "n1"
    assert desk.answer(run, approved=True, note="looks fine") == "ACCEPT"
    tasks = desk.end(run)
    assert tasks["approval"][0] == "Approved"
    assert "approved by ann" in tasks["approval"][1]
    assert released(storage) == "n2"

    tasks = desk.end(desk.begin(asked))
    assert tasks["judge"][0] == "Completed", "the same key: nothing is asked again"
    events = dict.fromkeys(("proposed", "approved", "promoted", "rejected"), 0)
    wanted = {"proposed": 3, "approved": 1, "promoted": 2, "rejected": 0}
    wait_until(lambda: {what: len(desk.events(what, "churn")) for what in events} == wanted)
    assert len(read_champion(open_store(storage), LINE).history) == 2
