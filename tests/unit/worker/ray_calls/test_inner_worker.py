"""`raysweep.should_checkpoint()` and its siblings in the workers of a trial's Ray Train run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import raysweep as rs
from raysweep.trial.session import TrialContext
from raysweep.worker.ray_calls.train_worker import InnerWorker

ray_train = pytest.importorskip("ray.train")
CONTEXT = TrialContext(sweep_id="s", trial_id="00003", number=3, attempt=2, seed=5)


class Worker:
    """What Ray Train says in a worker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from raysweep.raycompat.in_trial import trainworker

        self.info: Any = None
        self.reports: list[Any] = []
        monkeypatch.setattr(ray_train, "get_preemption_info", lambda: self.info)
        monkeypatch.setattr(ray_train, "report", lambda metrics, checkpoint: self.reports.append(metrics))
        monkeypatch.setattr(trainworker, "count_reports", lambda: len(self.reports))
        place = {"get_world_rank": 1, "get_world_size": 4, "get_local_rank": 0, "get_node_rank": 1}
        said = {name: (lambda value=value: value) for name, value in place.items()}
        monkeypatch.setattr(ray_train, "get_context", lambda: SimpleNamespace(**said))


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Worker:
    return Worker(monkeypatch)


def test_a_worker_is_asked_until_its_next_report_whichever_way_that_is_made(worker: Worker) -> None:
    seen: list[bool] = []

    def train() -> None:
        def ask() -> None:
            seen.append(rs.should_checkpoint())

        ask()
        worker.info = "node b goes"
        ask()
        ask()
        rs.report({"loss": 1.0})
        ask()
        worker.info = "nodes b and c go"
        ask()
        worker.reports.append("by ray.train.report")
        ask()

    InnerWorker(run=train, context=CONTEXT)()
    assert seen == [False, True, True, False, True, False]


def test_a_worker_knows_its_trial_and_its_own_rank(worker: Worker) -> None:
    found = InnerWorker(run=rs.get_context, context=CONTEXT)()
    assert (found.trial_id, found.attempt, found.seed) == ("00003", 2, 5)
    assert (found.rank, found.world_size, found.local_rank, found.node_rank) == (1, 4, 0, 1)
    with pytest.raises(rs.RaysweepError, match="only inside a trial"):
        rs.get_context()
