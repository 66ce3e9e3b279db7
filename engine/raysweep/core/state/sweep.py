"""The state of one sweep: everything the core remembers, JSON both ways."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal, cast

import orjson
from pydantic import JsonValue, TypeAdapter

from raysweep.core.state.compiled_spec import Rules
from raysweep.core.state.index import Line, Tally
from raysweep.core.state.trial import Attempt, Metrics, Slot, Told, Trial, trial_id
from raysweep.core.vocabulary.commands import SweepStatus
from raysweep.errors import RaysweepError
from raysweep.outcome.record import without_collector
from raysweep.schedulers import Scheduler, Verdict, make_scheduler
from raysweep.specs import SweepSpec

Phase = Literal["running", "stopping", "ending", "ended"]
Fault = Literal["user", "infrastructure", "spec"]


@dataclass(slots=True, kw_only=True, eq=False)
class SweepState:
    """The whole of a sweep, changed only by `machine.step`.

    `pending` holds the trials to hand out, in the order of their numbers; `hungry` the open slots that can
    take another. `hungry_for_memory` counts the active trials that need another slot than the usual
    (`beyond`: the sizes that no node can hold; `no_memory_since`: since when nothing is left to do but what
    no node has room for). `has_scored`, `has_timed`: some trial has reported the metric, and the
    scheduler's time;
    `node_failures` holds, by node, the trials that failed there; `excluded` and `draining` nodes get no more.
    `slot_s` are the seconds that all slots were open up to `slot_s_at`; since then `open_slots`
    are. `is_stalled`: the journal lags behind, and the trials' silence means nothing. `first_reports_s`
    and `saves_s` are the newest times from an attempt's start to its first report, and between checkpoints.
    `code` is the digest of the trainable's code as it ran last. `extend_to`, `extend_top` and
    `extend_trials` are what is to be done once the sweep is complete. `tally` follows from slots and trials,
    and is not stored; `undecided` holds verdicts that are carried out before the present event is done (None:
    the trial's own `turn`). `top`: the ended trials whose checkpoints `keep_top_k` keeps, the best first;
    `unranked`: those that the present event ended. `curves` (where `stop.trial_wilcoxon` compares) and
    `histories` (`stop.trial_if`) hold, by trial, what it reported, with the iteration of each; only of those
    that may go on, and in `curves` of `reference`, the best trial that has completed. `best_group`: where
    configs race, the best of those of which all repeats have completed. `search_log`, of a search
    of the user's own, says in which order it was asked and told: n is the end of trial n, `~n` an ask for the
    configs from number n on. `rungs`, of a search that looks at these: trial, time and value, whenever the
    scheduler compared one. `paused`: what the search was told of trials that paused, until they end.
    `clock_ahead_s`: how far the wall clock is ahead of the events' time (`ClockMoved`).
    `ended_as`: how the search has ended whose trials go further now (`reopen.begin_extension`).
    `seen_names`: of the further values that the spec names (`Rules.named`), those
    that were reported, or of which it was said that they were not.
    """

    spec: SweepSpec
    seed: int
    scheduler: Scheduler
    rules: Rules
    phase: Phase = "running"
    status: SweepStatus | None = None
    why: str = ""
    fault: Fault | None = None
    fault_field: str = ""
    generation: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    generation_started_at: float = 0.0
    active_before_s: float = 0.0
    last_at: float = 0.0
    is_interrupted: bool = False
    has_left: bool = False
    target_trial: int | None = None
    capacity: int = 0
    trials: dict[int, Trial] = field(default_factory=dict)
    pending: deque[int] = field(default_factory=deque)
    waiting: dict[int, float] = field(default_factory=dict)
    active: dict[int, None] = field(default_factory=dict)
    slots: dict[int, Slot] = field(default_factory=dict)
    hungry: Line = field(default_factory=Line)
    next_slot: int = 0
    slot_failures: int = 0
    suggested: int = 0
    asked: int = 0
    is_exhausted: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    failed_kinds: dict[str, int] = field(default_factory=dict)
    best_ended: int | None = None
    mean_duration_s: float | None = None
    reported_keys: tuple[str, ...] = ()
    seen_names: tuple[str, ...] = ()
    has_scored: bool = False
    has_timed: bool = False
    timer_at: float | None = None
    notes: tuple[str, ...] = ()
    nodes: int = 1
    largest_memory: int = 0
    no_room_since: float | None = None
    no_room_problem: str = ""
    hungry_for_memory: int = 0
    no_memory_since: float | None = None
    beyond: tuple[str, ...] = ()
    draining: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    node_failures: dict[str, list[int]] = field(default_factory=dict)
    is_stalled: bool = False
    deadline_at: float | None = None
    deadline_text: str = ""
    open_slots: int = 0
    slot_s: float = 0.0
    slot_s_at: float = 0.0
    first_reports_s: tuple[float, ...] = ()
    saves_s: tuple[float, ...] = ()
    has_cut: bool = False
    clock_ahead_s: float = 0.0
    ended_as: dict[str, JsonValue] | None = None
    plateau_best: float | None = None
    plateau_since: int = 0
    ended_by: dict[str, JsonValue] | None = None
    reopened: int = 0
    code: str = ""
    extend_to: float | None = None
    extend_top: int = 0
    extend_trials: list[int] = field(default_factory=list)
    top: list[int] = field(default_factory=list)
    curves: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    histories: dict[int, list[tuple[int, Metrics]]] = field(default_factory=dict)
    reference: int | None = None
    best_group: int | None = None
    search_log: list[int] = field(default_factory=list)
    rungs: list[tuple[int, float, float]] = field(default_factory=list)
    paused: dict[int, Told] = field(default_factory=dict)
    tally: Tally = field(init=False, repr=False)
    undecided: deque[tuple[int, Verdict | None]] = field(default_factory=deque, repr=False)
    unranked: list[int] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self.tally = Tally(self.slots, self.trials, self.waiting)

    @classmethod
    def create(cls, spec: SweepSpec, seed: int) -> SweepState:
        """The state before the first event; `seed` is the sweep's own (spec.seed, or derived from its id).

        Raises:
            SpecError: the scheduler's class, or the function of `stop.trial_if`, was not loaded in this
                process (`load_scheduler`).
        """
        scheduler = make_scheduler(spec, seed)
        rules = Rules.of(spec, scheduler)
        return cls(
            spec=spec,
            seed=seed,
            scheduler=scheduler,
            rules=rules,
            deadline_at=rules.ends.deadline,
        )

    def active_s(self, at: float) -> float:
        """Seconds that controllers were at work on this sweep up to `at`, without the time between them."""
        return self.active_before_s + max(0.0, at - self.generation_started_at)

    def to_json(self) -> dict[str, JsonValue]:
        """Plain JSON that shares nothing with the state, and from which `from_json` makes an equal state."""
        plain = self.rest() | {"trials": tuple(self.trials.values())}
        # orjson writes dataclasses far faster than dataclasses.asdict does; `list` is for the slots' deques.
        with without_collector():
            copied: dict[str, JsonValue] = orjson.loads(orjson.dumps(plain, default=list))
        return copied

    def rest(self) -> dict[str, object]:
        """All but the trials, for `to_json`; shares its containers' members with the state."""
        return {name: getattr(self, name) for name in _PLAIN} | {
            "spec": self.spec.model_dump(mode="json"),
            "scheduler": self.scheduler.to_json(),
            "pending": tuple(self.pending),
            "waiting": tuple(self.waiting.items()),
            "active": tuple(self.active),
            "slots": tuple(self.slots.values()),
            "hungry": tuple(self.hungry),
            "reported_keys": self.reported_keys,
            "seen_names": self.seen_names,
            "notes": self.notes,
            "beyond": self.beyond,
            "first_reports_s": self.first_reports_s,
            "saves_s": self.saves_s,
            "curves": tuple(self.curves.items()),
            "histories": tuple(self.histories.items()),
            "reference": self.reference,
            "clock_ahead_s": self.clock_ahead_s,
            "ended_as": self.ended_as,
            "best_group": self.best_group,
            "search_log": tuple(self.search_log),
            "rungs": tuple(self.rungs),
            "paused": tuple(self.paused.items()),
        }

    @classmethod
    def from_json(cls, plain: dict[str, JsonValue]) -> SweepState:
        """The state that `to_json` wrote.

        Raises:
            RaysweepError: the JSON does not fit: replay the journal instead.
        """
        try:
            with without_collector():
                return _restore(plain)
        except (KeyError, TypeError, ValueError) as error:
            raise RaysweepError(f"snapshot does not fit: {error!r}") from error


_STRUCTURED = {
    "spec",
    "rules",
    "scheduler",
    "trials",
    "pending",
    "waiting",
    "active",
    "slots",
    "hungry",
    "reported_keys",
    "seen_names",
    "notes",
    "beyond",
    "first_reports_s",
    "saves_s",
    "curves",
    "histories",
    "reference",
    "clock_ahead_s",
    "ended_as",
    "best_group",
    "search_log",
    "rungs",
    "paused",
    "tally",
    "undecided",
    "unranked",
}
_PLAIN = tuple(name for name in SweepState.__slots__ if name not in _STRUCTURED)
_TRIALS = TypeAdapter(list[Trial])
_SLOTS = TypeAdapter(list[Slot])
_CURVES = TypeAdapter(dict[int, list[tuple[int, float]]])
_RUNGS = TypeAdapter(list[tuple[int, float, float]])
_PAUSED = TypeAdapter(dict[int, Told])
_HISTORIES = TypeAdapter(dict[int, list[tuple[int, Metrics]]])


def _restore(plain: dict[str, JsonValue]) -> SweepState:
    spec = SweepSpec.model_validate(plain["spec"])
    state = SweepState.create(spec, cast(int, plain["seed"]))
    for name in _PLAIN:
        setattr(state, name, plain[name])
    state.scheduler.from_json(cast(dict[str, JsonValue], plain["scheduler"]))
    state.trials = {trial.number: trial for trial in _TRIALS.validate_python(plain["trials"])}
    state.slots = {slot.number: slot for slot in _SLOTS.validate_python(plain["slots"])}
    state.pending = deque(cast(list[int], plain["pending"]))
    state.hungry = Line(cast(list[int], plain["hungry"]))
    state.waiting = dict(cast(list[tuple[int, float]], plain["waiting"]))
    state.active = dict.fromkeys(cast(list[int], plain["active"]))
    state.reported_keys = tuple(cast(list[str], plain["reported_keys"]))
    state.seen_names = tuple(cast(list[str], plain["seen_names"]))
    state.notes = tuple(cast(list[str], plain["notes"]))
    state.beyond = tuple(cast(list[str], plain["beyond"]))
    state.first_reports_s = tuple(cast(list[float], plain["first_reports_s"]))
    state.saves_s = tuple(cast(list[float], plain["saves_s"]))
    state.curves = _CURVES.validate_python(dict(cast(list[tuple[int, JsonValue]], plain["curves"])))
    histories = dict(cast(list[tuple[int, JsonValue]], plain["histories"]))
    state.histories = _HISTORIES.validate_python(histories)
    state.reference = cast(int | None, plain["reference"])
    state.clock_ahead_s = cast(float, plain["clock_ahead_s"])
    state.ended_as = cast(dict[str, JsonValue] | None, plain["ended_as"])
    state.best_group = cast(int | None, plain["best_group"])
    state.search_log = cast(list[int], plain["search_log"])
    state.rungs = _RUNGS.validate_python(plain["rungs"])
    paused = dict(cast(list[tuple[int, JsonValue]], plain["paused"]))
    state.paused = _PAUSED.validate_python(paused)
    state.tally = Tally(state.slots, state.trials, state.waiting)
    for seconds in state.saves_s:
        state.tally.note_pace(seconds, state.last_at)
    return state


__all__ = ["Attempt", "Fault", "Phase", "Slot", "SweepState", "Trial", "trial_id"]
