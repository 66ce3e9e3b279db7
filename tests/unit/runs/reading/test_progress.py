"""What others see of a running sweep."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core.state.sweep_parts import Note
from raysweep.core.vocabulary import events as ev
from raysweep.outcome import Holder, SweepProgress
from raysweep.runs.reading.progress import MAX_NOTES, MAX_RUNNING, make_progress
from tests.unit.core.sweep import Sweep, running

HOLDER = Holder(host="host", pid=1, job="")


def seen(sweep: Sweep, **fields: Any) -> SweepProgress:
    fields = {"sweep_id": "toy-1", "holder": HOLDER, "at": 123.0, "total": 9} | fields
    return make_progress(sweep.state, **fields)


def test_before_the_start() -> None:
    found = seen(Sweep(metric="loss", mode="max"))
    assert (found.status, found.started_at, found.counts, found.best) == ("starting", 123.0, {}, None)
    assert (found.sweep_id, found.name, found.num_trials) == ("toy-1", "toy", 9)
    assert (found.metric, found.mode, found.slots, found.holder) == ("loss", "max", 0, HOLDER)


def test_two_trials_of_three_run() -> None:
    sweep = running(2, trials=3)
    sweep.report(0, 0.5)
    sweep.report(1, 0.25, 0.75)
    found = seen(sweep)
    assert (found.status, found.generation, found.slots) == ("running", 1, 2)
    assert found.started_at == 100.0
    assert found.counts == {"running": 2, "pending": 1}
    assert [(trial.number, trial.trial_id, trial.iteration, trial.score) for trial in found.running] == [
        (0, "00000", 1, 0.5),
        (1, "00001", 2, 0.75),
    ]
    assert [(trial.config, trial.started_at) for trial in found.running] == [
        ({"x": 0.0}, 100.0),
        ({"x": 0.1}, 100.0),
    ]
    assert found.best is None, "neither has ended"
    assert found.ahead is not None
    assert (found.ahead.trial_id, found.ahead.config) == ("00000", {"x": 0.0})


@pytest.mark.parametrize("score", ["last", "best"])
def test_the_best_never_gets_worse(score: str) -> None:
    """Trials whose loss rises after a good start: only what they end with counts."""
    sweep = running(3, trials=6, metric="loss", mode="min", score=score)
    scores, ahead = [], []
    for first in (0, 3):
        for loss in (0.1, 0.5, 0.9):
            for trial in range(first, first + 3):
                sweep.report(trial, loss + 0.01 * trial)
                found = seen(sweep)
                scores += [found.best.score] if found.best is not None else []
                ahead += [found.ahead.score] if found.ahead is not None else []
                assert found.best is None or found.ahead is None
        for trial in range(first, first + 3):
            sweep.returned(trial)
            best = seen(sweep).best
            assert best is not None
            scores.append(best.score)
    assert scores == sorted(scores, reverse=True)
    assert min(ahead) == 0.1, "it is shown which one is ahead while none has ended"


def test_it_is_stopped() -> None:
    sweep = running(1)
    sweep.send(ev.InterruptRequested, reason="Ctrl-C")
    found = seen(sweep)
    assert found.status == "stopping"
    assert found.notes[-1] == sweep.state.end.why


def test_only_so_much_is_shown() -> None:
    sweep = running(1)
    sweep.state.noted = tuple(Note(text=f"note {number}") for number in range(30))
    assert seen(sweep).notes == tuple(f"note {number}" for number in range(30 - MAX_NOTES, 30))
    many = running(MAX_RUNNING + 5)
    assert [trial.number for trial in seen(many).running] == list(range(MAX_RUNNING))


def test_the_share_of_a_cluster_is_shown_while_others_share_it() -> None:
    sweep = running(4, trials=9)
    assert seen(sweep).shared == ""
    sweep.send(ev.ShareChanged, slots=2, beside=1)
    assert seen(sweep).shared == "2 of 4 slots (1 sweep beside it)"
    sweep.send(ev.ShareChanged, slots=1, beside=2)
    assert seen(sweep).shared == "1 of 4 slots (2 sweeps beside it)"
    sweep.send(ev.ShareChanged, slots=None)
    assert seen(sweep).shared == ""
