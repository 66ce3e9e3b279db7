"""The state of one sweep: everything the core remembers, JSON both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Final, Literal, cast, get_type_hints

import orjson
from pydantic import JsonValue, TypeAdapter

from raysweep.core.state.compiled_spec import Rules
from raysweep.core.state.index import Tally
from raysweep.core.state.sweep_parts import (
    Clock,
    ControllerRun,
    Meter,
    Note,
    Ranking,
    Reports,
    Room,
    Search,
    SweepEnd,
    TrialLine,
    Work,
)
from raysweep.core.state.trial import Slot, Trial
from raysweep.errors import RaysweepError
from raysweep.outcome.record import without_collector
from raysweep.schedulers import Scheduler, make_scheduler
from raysweep.specs import SweepSpec

Phase = Literal["running", "stopping", "ending", "ended"]


@dataclass(slots=True, kw_only=True, eq=False)
class SweepState:
    """The whole of a sweep, changed only by `machine.step`."""

    spec: SweepSpec
    """The spec as it is now; a change of it is an event."""
    seed: int
    """The sweep's own seed: `spec.seed`, or derived from its id."""
    scheduler: Scheduler
    """The scheduler and what it has learnt."""
    rules: Rules
    """The spec, compiled; not stored."""
    phase: Phase = "running"
    """The phase of the sweep on the way to its end."""
    trials: dict[int, Trial] = field(default_factory=dict)
    """Every trial by its number, in the order of suggestion."""
    slots: dict[int, Slot] = field(default_factory=dict)
    """Every slot by its number."""
    noted: tuple[Note, ...] = ()
    """Lines for the user, each once."""
    line: TrialLine = field(default_factory=TrialLine)
    """The places of trials: in the line, waiting, or on slots."""
    end: SweepEnd = field(default_factory=SweepEnd)
    """The end of the sweep, or its leaving."""
    clock: Clock = field(default_factory=Clock)
    """The moments of the sweep."""
    controller: ControllerRun = field(default_factory=ControllerRun)
    """The present controller."""
    room: Room = field(default_factory=Room)
    """The room of the cluster."""
    search: Search = field(default_factory=Search)
    """The configs that the search has suggested, and the results that it received."""
    meter: Meter = field(default_factory=Meter)
    """The use of the slots."""
    ranking: Ranking = field(default_factory=Ranking)
    """The best trials that have ended."""
    reports: Reports = field(default_factory=Reports)
    """The reports of trials."""
    work: Work = field(default_factory=Work, repr=False)
    """The work that is left of the present event; not stored."""
    tally: Tally = field(init=False, repr=False)
    """Indexes that follow from slots and trials; not stored."""

    def __post_init__(self) -> None:
        self.tally = Tally(self.slots, self.trials, self.line.waiting)

    @classmethod
    def create(cls, spec: SweepSpec, seed: int) -> SweepState:
        """The state before the first event; `seed` is the sweep's own (spec.seed, or derived from its id).

        Raises:
            SpecError: the scheduler's class, or the function of `stop.trial_if`, was not loaded in this
                process (`load_scheduler`).
        """
        scheduler = make_scheduler(spec, seed)
        rules = Rules.of(spec, scheduler)
        clock = Clock(deadline_at=rules.ends.deadline)
        return cls(spec=spec, seed=seed, scheduler=scheduler, rules=rules, clock=clock)

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for the user, as they are shown."""
        return tuple(map(str, self.noted))

    def to_json(self) -> dict[str, JsonValue]:
        """Plain JSON that shares nothing with the state, and from which `from_json` makes an equal state."""
        with without_collector():
            copied: dict[str, JsonValue] = orjson.loads(self.rest())
            # orjson writes dataclasses far faster than dataclasses.asdict does.
            copied["trials"] = orjson.loads(orjson.dumps(tuple(self.trials.values())))
        return copied

    def rest(self) -> bytes:
        """The JSON of all but the trials."""
        plain: dict[str, object] = {name: getattr(self, name) for name in STORED}
        plain |= {"spec": self.spec.model_dump(mode="json"), "scheduler": self.scheduler.to_json()}
        # `list` is for deques and lines.
        return orjson.dumps(plain, default=list, option=orjson.OPT_NON_STR_KEYS)

    @classmethod
    def from_json(cls, plain: dict[str, JsonValue]) -> SweepState:
        """The state that `to_json` wrote.

        Raises:
            RaysweepError: the JSON does not fit: replay the journal instead.
        """
        return cls.restore(plain, lambda: _trials_reader().validate_python(plain["trials"]))

    @classmethod
    def restore(cls, rest: dict[str, JsonValue], trials: Callable[[], Iterable[Trial]]) -> SweepState:
        """The state of which this is the JSON without the trials, and these are the trials.

        Raises:
            RaysweepError: the JSON does not fit: replay the journal instead.
        """
        try:
            with without_collector():
                return _restore(rest, trials())
        except (KeyError, TypeError, ValueError) as error:
            raise RaysweepError(f"snapshot does not fit: {error!r}") from error


_NOT_STORED: Final = {"rules", "work", "tally"}
_STORED_APART: Final = {"spec", "scheduler", "trials"}
STORED: Final = tuple(
    each.name for each in fields(SweepState) if each.name not in _NOT_STORED | _STORED_APART
)
"""The fields that are stored as they are."""


@cache
def readers() -> dict[str, TypeAdapter[object]]:
    """For each of `STORED` the reader of its type: 0.1 s to make, and most commands restore nothing."""
    hints = get_type_hints(SweepState, include_extras=True)
    return {name: TypeAdapter(hints[name]) for name in STORED}


@cache
def _trials_reader() -> TypeAdapter[list[Trial]]:
    return TypeAdapter(list[Trial])


def _restore(plain: dict[str, JsonValue], trials: Iterable[Trial]) -> SweepState:
    spec = SweepSpec.model_validate(plain["spec"])
    state = SweepState.create(spec, cast(int, plain["seed"]))
    state.scheduler.from_json(cast(dict[str, JsonValue], plain["scheduler"]))
    for name, reader in readers().items():
        setattr(state, name, reader.validate_python(plain[name]))
    state.trials = {trial.number: trial for trial in trials}
    state.tally = Tally(state.slots, state.trials, state.line.waiting)
    for seconds in state.meter.saves_s:
        state.tally.note_pace(seconds, state.clock.last_at)
    return state
