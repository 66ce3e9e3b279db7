"""Checks of a simulated sweep at its end: of its outcome, its times, and its store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from raysweep.core.vocabulary.events import ControllerStarted, Event
from raysweep.outcome import SweepOutcome
from raysweep.runs.folder import SweepFolder
from raysweep.simulate.trials import Moment
from raysweep.verify.sweep import verify_sweep

ENDED_BY_LIMIT: Final = ("deadline", "budget", "plateau")
# The last write of a journal whose storage is slow is of no event.
_LAST_WRITE_S: Final = 50.0
_ROUNDING_S: Final = 1e-3


def check_limit(outcome: SweepOutcome) -> None:
    """Check that a sweep ended by a limit lacks something: a trial was cut, or one asked for is not there."""
    if outcome.status not in ENDED_BY_LIMIT:
        return
    was_cut = any(trial.state == "cancelled" for trial in outcome.trials)
    is_missing = outcome.num_trials is None or len(outcome.trials) < outcome.num_trials
    assert was_cut or is_missing, f"every trial ran to its own end, and the sweep says {outcome.status}"


def check_stored(outcome: SweepOutcome, folder: SweepFolder, *, is_thorough: bool = False) -> None:
    """Of a sweep that completed, the best trial's checkpoint is stored; `is_thorough`: and the rest is sound.

    The model of the cluster stores no files, so nothing is said about what is in checkpoints; a snapshot is
    never needed.
    """
    if outcome.status != "completed":
        return
    damage = verify_sweep(folder, is_quick=True).damage if is_thorough else ()
    wrong = [each for each in damage if each.checkpoint is None and not each.object.startswith("snapshots/")]
    assert not wrong, f"the sweep completed, and its store is damaged: {wrong}"
    best = outcome.found_best
    if best is not None and best.checkpoint_uri:
        key = f"{best.checkpoint_uri.removeprefix(f'{folder.store.url}/')}.json"
        assert folder.store.exists(key), f"the best trial's checkpoint {best.checkpoint_uri} is gone"


def check_times(
    outcome: SweepOutcome, timeline: Sequence[Moment], journal: Sequence[Event], ended_at: float
) -> None:
    """The sweep has been at work as long as its controllers ran, however the wall clock was set meanwhile.

    Of a controller that was killed only what it wrote down counts. A reopened sweep is not checked.
    """
    if any(isinstance(event, ControllerStarted) and event.is_reopening for event in journal):
        return
    claims = [moment.at for moment in timeline if moment.what == "claimed"]
    lost = [moment.at for moment in timeline if moment.what in ("killed", "left")]
    ran_s = sum(lost) + ended_at - sum(claims)
    last_s = ended_at - claims[-1]
    active_s = outcome.usage.active_s if outcome.usage is not None else 0.0
    assert last_s - _LAST_WRITE_S <= active_s <= ran_s + _ROUNDING_S, (
        f"{active_s:g} s are counted, of {ran_s:g} s that controllers ran ({last_s:g} s the last one)"
    )
