"""The state at one moment, for a thread that writes it down while the sweep continues.

A trial that has ended is never changed in place; `transitions.thaw` gives a copy to change. So only trials
that have not ended are made into JSON at once, which takes the loop's time. The others are kept by reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import orjson

from raysweep.core.state.index import Tally
from raysweep.core.state.sweep import SweepState, readers
from raysweep.core.state.trial import Trial
from raysweep.outcome.record import without_collector

# The interpreter lock is held while this many trials become JSON: a fraction of a millisecond.
_TRIALS_A_PART: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenState:
    """`rest`: the JSON of all but the trials; `trials`: those that have ended, and the JSON of others."""

    rest: bytes
    trials: tuple[Trial | orjson.Fragment, ...]

    def parts(self) -> Iterator[bytes]:
        """What `SweepState.to_json` says, as JSON text in parts; joined they are one object."""
        yield self.rest[:-1] + b',"trials":['
        for first in range(0, len(self.trials), _TRIALS_A_PART):
            if first:
                yield b","
            yield orjson.dumps(self.trials[first : first + _TRIALS_A_PART])[1:-1]
        yield b"]}"


def freeze(state: SweepState) -> FrozenState:
    """Keep the state as it is now."""
    trials: list[Trial | orjson.Fragment] = list(state.trials.values())
    for number in state.line.active:
        trials[number] = orjson.Fragment(orjson.dumps(state.trials[number]))
    return FrozenState(rest=state.rest(), trials=tuple(trials))


def fork(state: SweepState) -> SweepState:
    """A state to apply events to while `state` stays as it is. Trials that have ended are shared."""
    with without_collector():
        plain = orjson.loads(state.rest())
        made = SweepState.create(state.spec, state.seed)
        made.scheduler.from_json(plain["scheduler"])
        for name, reader in readers().items():
            setattr(made, name, reader.validate_python(plain[name]))
        made.trials = dict(state.trials)
        for number in state.line.active:
            made.trials[number] = state.trials[number].thawed()
        made.tally = Tally(made.slots, made.trials, made.line.waiting)
    for seconds in made.meter.saves_s:
        made.tally.note_pace(seconds, made.clock.last_at)
    return made
