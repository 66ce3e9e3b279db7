"""Budgets of callers: how much all sweeps with one budget key may use, kept as a journal beside the runs.

    <storage_path>/budgets/<key>/000000000012.jsonl    an event

A sweep reserves its whole `stop.budget` before it starts (ADR 156). Once it has ended, only what it used
counts. Of two sweeps that start at once the second decides again against what the first wrote
(`storage.journal.shared`). A sweep has one reservation, however often it is started.

Reading costs what there are events, and for each sweep that had not ended at the last reservation a look at
how it stands.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Annotated, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from raysweep.errors import BudgetSpentError, SpecError, StorageError
from raysweep.runs.folder import SweepFolder
from raysweep.specs import SweepSpec
from raysweep.specs.identity import file_name
from raysweep.storage.formats import OTHER_FIX, other_format
from raysweep.storage.journal.segment import RESTORE_FIX
from raysweep.storage.journal.shared import SharedJournal, decide
from raysweep.storage.objects.store import Store

FOLDER: Final = "budgets"
UNITS: Final = ("cpu_hours", "gpu_hours", "cost")
"""The fields of `stop.budget`, and the options of `raysweep budget`."""
FORMAT_VERSION: Final = 1

Amounts = Mapping[str, float]
"""By unit; one that is not there is not limited, or not used."""


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    at: float
    """UTC seconds."""


class Bounded(_Event):
    """A person has said how much the sweeps of the key may use in all."""

    kind: Literal["bounded"] = "bounded"
    bounds: dict[str, float]


class Reserved(_Event):
    """A sweep may use so much. `settled`: what those have used that had ended by then, by sweep.

    `generation`: of the outcome that the sweep had then, or 0: only a later one is its end.
    """

    kind: Literal["reserved"] = "reserved"
    sweep_id: str
    generation: int
    amounts: dict[str, float]
    settled: dict[str, dict[str, float]] = {}


Event = Bounded | Reserved
_EVENTS: Final[TypeAdapter[Event]] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])


class Spending:
    """The budget of one key, as its events and the sweeps that have ended since say.

    Args:
        store: Where the sweeps are.
        key: The budget's name.

    Raises:
        StorageError: It cannot be read, or is damaged.
    """

    def __init__(self, store: Store, key: str) -> None:
        self.key = key
        self._store = store
        self._journal = SharedJournal(store, f"{FOLDER}/{file_name(key)}")
        self.bounds: dict[str, float] = {}
        self.used: dict[str, dict[str, float]] = {}
        """The use of ended sweeps, by sweep."""
        self._open: dict[str, Reserved] = {}
        """By sweep."""
        self._told: dict[str, dict[str, float]] = {}
        """Of `used`, what no event says yet."""
        self._read()

    @property
    def reserved(self) -> dict[str, dict[str, float]]:
        """The reservations of sweeps that have not ended, by sweep."""
        return {sweep_id: event.amounts for sweep_id, event in self._open.items()}

    def total(self, by_sweep: Mapping[str, Amounts], unit: str) -> float:
        """The sum of a unit over sweeps."""
        return sum(amounts.get(unit, 0.0) for amounts in by_sweep.values())

    def left(self, unit: str, apart_from: str = "") -> float:
        """The part of a bound that is not used or reserved; `apart_from`: a sweep that is not counted."""
        counted = (self.used, self.reserved)
        others = ({name: amounts for name, amounts in each.items() if name != apart_from} for each in counted)
        return self.bounds[unit] - sum(self.total(each, unit) for each in others)

    def write(self, event: Event) -> None:
        """Continue the journal.

        Raises:
            SegmentExistsError: Another process has done so since it was read.
            StorageError: It cannot be written.
        """
        record = orjson.dumps({"format_version": FORMAT_VERSION, "key": self.key, **event.model_dump()})
        self._journal.append(record)
        self._apply(event)
        self._journal.merge()

    def reservation(self, sweep_id: str, amounts: Amounts) -> Reserved | None:
        """The event by which a sweep reserves; None where it has reserved the same."""
        held = self._open.get(sweep_id)
        if held is not None and held.amounts == amounts:
            return None
        standing = SweepFolder(self._store, sweep_id).read_standing()
        return Reserved(
            at=time.time(),
            sweep_id=sweep_id,
            generation=standing.generation if standing is not None else 0,
            amounts=dict(amounts),
            settled=self._told,
        )

    def _read(self) -> None:
        for _, record in self._journal.read():
            self._apply(self._decoded(record))
        for event in list(self._open.values()):
            self._settle(event)

    def _decoded(self, record: bytes) -> Event:
        source = self._journal.url
        try:
            fields = orjson.loads(record)
            version = fields["format_version"]
            if version != FORMAT_VERSION:
                raise StorageError(
                    source, other_format(version, FORMAT_VERSION, name="format_version"), OTHER_FIX
                )
            if fields["key"] != self.key:
                raise StorageError(source, f"is the budget of {fields['key']!r}", RESTORE_FIX)
            return _EVENTS.validate_python(fields)
        except (ValidationError, orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise StorageError(source, f"is damaged ({error})", RESTORE_FIX) from error

    def _apply(self, event: Event) -> None:
        if isinstance(event, Bounded):
            self.bounds = event.bounds
            return
        for sweep_id, amounts in event.settled.items():
            self._open.pop(sweep_id, None)
            self._told.pop(sweep_id, None)
            self.used[sweep_id] = amounts
        self.used.pop(event.sweep_id, None)
        self._open[event.sweep_id] = event

    def _settle(self, event: Reserved) -> None:
        """One that is removed, or cannot be read, counts as what it has reserved."""
        try:
            standing = SweepFolder(self._store, event.sweep_id).read_standing()
        except StorageError:
            return
        if standing is None or standing.usage is None or standing.generation <= event.generation:
            return
        amounts = {unit: float(getattr(standing.usage, unit)) for unit in UNITS}
        del self._open[event.sweep_id]
        self.used[event.sweep_id] = self._told[event.sweep_id] = amounts


def _change(store: Store, key: str, make: Callable[[Spending], Event | None]) -> Spending:
    def step() -> Spending:
        spending = Spending(store, key)
        event = make(spending)
        if event is not None:
            spending.write(event)
        return spending

    return decide(f"{store.url}/{FOLDER}/{file_name(key)}", step)


def set_bounds(store: Store, key: str, bounds: Amounts) -> Spending:
    """Set bounds of a key; those that are not named stay. Raises: StorageError."""
    return _change(store, key, lambda found: Bounded(at=time.time(), bounds={**found.bounds, **bounds}))


def reserve(store: Store, sweep_id: str, spec: SweepSpec) -> Spending | None:
    """Reserve what a sweep may use, if its spec names a budget key; once for each sweep.

    Raises:
        SpecError: The key has no bound here, or the sweep none of its own.
        BudgetSpentError: It asks for more than is left.
        StorageError: The budget cannot be read or written.
    """
    key = spec.stop.budget_key
    if key is None:
        return None

    def make(spending: Spending) -> Event | None:
        return spending.reservation(sweep_id, _wanted(spending, sweep_id, spec))

    return _change(store, key, make)


def plan_spending(store: Store, sweep_id: str, spec: SweepSpec) -> tuple[Spending | None, tuple[str, ...]]:
    """The budget that a sweep would count against, and why it would be refused now; reserves nothing.

    Raises: StorageError.
    """
    if spec.stop.budget_key is None:
        return None, ()
    spending = Spending(store, spec.stop.budget_key)
    try:
        _wanted(spending, sweep_id, spec)
    except SpecError as error:
        return spending, (f"it would be refused: {error}",)
    return spending, ()


def _wanted(spending: Spending, sweep_id: str, spec: SweepSpec) -> dict[str, float]:
    """The amounts that a sweep asks for, of each unit that is bounded."""
    if not spending.bounds:
        raise SpecError(
            "stop.budget_key",
            f"{spending.key!r} has no bound in this storage",
            f"set one: raysweep budget {spending.key} --cpu-hours 100",
        )
    uses = spec.use_per_slot_hour
    amounts: dict[str, float] = {}
    for unit in spending.bounds:
        asked = getattr(spec.stop.budget, unit)
        if asked is None and uses[unit]:
            left = max(0.0, spending.left(unit, sweep_id))
            raise SpecError(
                f"stop.budget.{unit}",
                f"is not set, and the budget key {spending.key!r} bounds it",
                f"set it to at most {left:g}, which is left",
            )
        amounts[unit] = asked or 0.0
        left = spending.left(unit, sweep_id)
        if amounts[unit] > left:
            raise BudgetSpentError(unit, amounts[unit], max(0.0, left), spending.bounds[unit], spending.key)
    return amounts
