"""One trial at a time, in the order of the numbers: what makes a sequential sweep independent of its kills.

What a searcher suggests, and what a scheduler or the breaker decides, follows from the order in which trials
end. With `max_concurrent_trials: 1` that is the order of their numbers: a trial that backs off keeps its
place, none begins before it is decided, and none is queued behind another at a worker. It does not matter
where in all this the controller dies.

A pause idles the slot, so the order is kept only while something looks at it: a blind search without early
stopping continues with the next trial once one has succeeded, for then the breaker is out of the way.

A scheduler that resumes trials brings lower numbers back into the line. The trial that was under way when a
controller died goes before them: it would have been decided first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from raysweep.core.state.sweep import SweepState
from raysweep.core.vocabulary.lifecycle import Cause
from raysweep.schedulers import Move

# The ends of attempts that decide nothing: the trial is still under way.
_BRINGS_BACK: Final[frozenset[Move]] = frozenset({"pause", "exploit"})
_UNDER_WAY: Final[frozenset[Cause]] = frozenset({"lost", "kept", "moved", "retried"})


def is_kept(state: SweepState) -> bool:
    """True if trials are decided one after the other."""
    if state.rules.slots.max_concurrent != 1:
        return False
    counts = state.line.counts
    return state.rules.looks_at_order or not (counts.get("completed") or counts.get("stopped"))


def holds(state: SweepState) -> bool:
    """True if no trial may begin now, as an earlier one backs off and keeps its place."""
    return bool(state.line.waiting) and is_kept(state)


def is_of_line(state: SweepState) -> bool:
    """True if the first in the line is always the trial that begins next."""
    return _BRINGS_BACK.isdisjoint(state.scheduler.moves)


def take_next(state: SweepState) -> int:
    """Take the trial that begins next out of the line, which is not empty."""
    line = state.line
    if is_of_line(state):
        return line.pending.popleft()
    number = next_of(state, line.pending)
    if number == line.pending[0]:
        return line.pending.popleft()
    line.pending.remove(number)
    return number


def next_of(state: SweepState, pending: Sequence[int]) -> int:
    """The next of these pending trials, in the line's order: the first, or the one under way."""
    if not is_of_line(state) and is_kept(state):
        for number in pending:
            attempts = state.trials[number].attempts
            if attempts and attempts[-1].end in _UNDER_WAY:
                return number
    return pending[0]


def places(state: SweepState, idle: int) -> int:
    """The number of `idle` slots to ask an adaptive searcher for: each trial that backs off keeps one.

    So no more than one trial a slot is undecided when it is asked, and it is asked knowing the others.
    """
    return max(0, idle - len(state.line.waiting))
