"""The state at one moment, for a thread that writes it down while the sweep continues.

A trial that has ended is never changed in place; `transitions.thaw` gives a copy to change. So only trials
that have not ended are made into JSON at once, which takes the loop's time. The others are kept by reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import orjson
from msgspec import Raw
from msgspec.json import Decoder, Encoder

from raysweep.core.state.index import Tally
from raysweep.core.state.sweep import SweepState, readers
from raysweep.core.state.trial import Trial
from raysweep.core.state.trial_rows import entry_of, read_entry
from raysweep.errors import RaysweepError
from raysweep.outcome.record import without_collector

# The interpreter lock is held while this many trials become JSON: a fraction of a millisecond.
_TRIALS_A_PART: Final = 128
# JSON has no line break within a text: these are found without parsing anything.
_BEGIN: Final = b',"trials":[\n'
_SEPARATOR: Final = b",\n"
_END: Final = b"\n]}"
_encode: Final = Encoder().encode
_split: Final = Decoder(list[Raw]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenState:
    """A state that no event changes any more."""

    rest: bytes
    """The JSON of all but the trials."""
    trials: tuple[Trial | Raw, ...]
    """Those that have ended, and the JSON of the others."""

    def parts(self) -> Iterator[bytes]:
        """The state as JSON text in parts; joined they are one object, with some trials on each line."""
        yield self.rest[:-1] + _BEGIN
        for first in range(0, len(self.trials), _TRIALS_A_PART):
            if first:
                yield _SEPARATOR
            part = self.trials[first : first + _TRIALS_A_PART]
            entries = [entry_of(each) if isinstance(each, Trial) else each for each in part]
            yield _encode(entries)[1:-1]
        yield _END


def freeze(state: SweepState) -> FrozenState:
    """Keep the state as it is now."""
    trials: list[Trial | Raw] = list(state.trials.values())
    for number in state.line.active:
        trials[number] = Raw(orjson.dumps(state.trials[number]))
    return FrozenState(rest=state.rest(), trials=tuple(trials))


def thaw(text: bytes) -> SweepState:
    """The state that `FrozenState.parts` wrote.

    Raises:
        RaysweepError: the text does not fit: replay the journal instead.
    """
    begin = text.find(_BEGIN)
    if begin < 0 or not text.endswith(_END):
        raise RaysweepError("snapshot does not fit: it has no trials")
    rest = orjson.loads(text[:begin] + b"}")
    return SweepState.restore(rest, lambda: _trials(text, begin + len(_BEGIN)))


def _trials(text: bytes, at: int) -> Iterator[Trial]:
    """One line at a time: as JSON values all trials would take several times what they take as trials."""
    end = len(text) - len(_END)
    while at < end:
        until = text.find(_SEPARATOR, at, end)
        until = end if until < 0 else until
        yield from map(read_entry, _split(b"[%b]" % text[at:until]))
        at = until + len(_SEPARATOR)


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
