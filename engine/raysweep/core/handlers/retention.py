"""The checkpoints that a trial keeps, and the trials that keep any.

| kept | of a trial |
|---|---|
| the newest | `keep_last` of them: it continues from the last |
| the best | `keep_best`: by the sweep's metric, or by another |
| each n-th | `every_n`, counted from the first that the trial has stored |
| what another trial continues from | for as long as it does (`continuations`) |

Of the trials that completed or were stopped only the `keep_top_k` best keep what their own policy keeps. The
others of them continue no more, unless a person extends them: they have nothing then to go further from. A
trial that may still continue is never touched: those that failed (they may be retried) or were cut (the sweep
may be resumed) included. Who falls out of the ranking does not come back, as its checkpoints do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from raysweep.core.handlers import continuations, transitions
from raysweep.core.state.compiled_parts import CheckpointRules
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Trial
from raysweep.core.state.trial_parts import Checkpoint
from raysweep.core.views.scores import Place, place, score_of
from raysweep.core.vocabulary.commands import Command
from raysweep.core.vocabulary.lifecycle import TrialState

Out = list[Command]
RANKED: Final[frozenset[TrialState]] = frozenset({"completed", "stopped"})


def add(state: SweepState, trial: Trial, checkpoint: Checkpoint, out: Out) -> None:
    """The trial has one more checkpoint: release those that its policy does not keep."""
    trial.results.saved += 1
    rules = state.rules.checkpoints
    every = rules.keep_every
    if every is not None and trial.results.saved % every == 0:
        checkpoint = replace(checkpoint, is_nth=True)
    before = (*trial.checkpoints, checkpoint)
    is_out = rules.keep_top is not None and trial.state in RANKED and trial.number not in state.ranking.top
    trial.checkpoints = () if is_out else kept(rules, before)
    for old in before:
        if old not in trial.checkpoints:
            continuations.discard(state, trial.number, old, out)


def kept(rules: CheckpointRules, checkpoints: tuple[Checkpoint, ...]) -> tuple[Checkpoint, ...]:
    """Those of a trial's checkpoints that its policy keeps, in their order."""
    chosen = {*checkpoints[-rules.keep_last :], *(each for each in checkpoints if each.is_nth)}
    if rules.keep_best:
        sign = -1.0 if rules.best_is_max else 1.0
        # Of several of one report the newest: one is stored again where it was not complete before.
        newest = {each.iteration: each for each in checkpoints}.values()
        ranks = ((sign * rank, each) for each in newest if (rank := _rank(rules, each)) is not None)
        # Of equal ones the oldest: the sort keeps their order.
        best = sorted(ranks, key=lambda ranked: ranked[0])[: rules.keep_best]
        chosen.update(each for _, each in best)
    return tuple(each for each in checkpoints if each in chosen)


def _rank(rules: CheckpointRules, checkpoint: Checkpoint) -> float | None:
    return checkpoint.rank if rules.best_by else checkpoint.score


def rank(state: SweepState, out: Out) -> None:
    """The trials that have just ended are ranked beside the others; who falls behind keeps no checkpoint.

    At the end of an event: what its verdicts continue from is pinned by then.
    """
    ended, state.work.unranked = state.work.unranked, []
    limit = state.rules.checkpoints.keep_top
    assert limit is not None, "no ranking where all are kept"
    numbers = dict.fromkeys([*state.ranking.top, *ended])
    there = [state.trials[number] for number in numbers if state.trials[number].state in RANKED]
    there.sort(key=lambda trial: _place(state, trial))
    state.ranking.top = [trial.number for trial in there[:limit]]
    for trial in there[limit:]:
        _empty(state, trial, out)


def release(state: SweepState, released: Sequence[tuple[int, int]], out: Out) -> None:
    """The sweep has ended, and does without these of its checkpoints, each (trial, number) of its own.

    What is not there (any more) is passed over.
    """
    for number in sorted({trial for trial, _ in released}):
        trial = state.trials.get(number)
        if trial is None:
            continue
        gone = {checkpoint for owner, checkpoint in released if owner == number}
        before = trial.checkpoints
        trial = transitions.thaw(state, trial)
        trial.checkpoints = tuple(each for each in before if each.number not in gone)
        for checkpoint in before:
            if checkpoint.number in gone:
                continuations.discard(state, number, checkpoint, out)


def _place(state: SweepState, trial: Trial) -> tuple[bool, Place]:
    """Sorts trials as `scores.ranked` does, those without a score last."""
    return score_of(state, trial) is None, place(state, trial)


def _empty(state: SweepState, trial: Trial, out: Out) -> None:
    trial = transitions.thaw(state, trial)
    checkpoints, trial.checkpoints = trial.checkpoints, ()
    for checkpoint in checkpoints:
        continuations.discard(state, trial.number, checkpoint, out)
    continuations.let_origin_go(state, trial, out)
