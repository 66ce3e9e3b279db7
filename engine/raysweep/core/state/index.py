"""Indexes over slots and trials, so that no event searches: counts of slots, and the next due times.

All of it follows from slots and trials, is never stored, and is made anew where a state is restored
(`invariants.check` compares it with a search). Who changes a slot, its queue or its place in the line says
so (`Tally.touch`), before or after; the slot is looked at again at the next query. Keys in the heaps
may be out of date: one that is checked when it comes up costs less than one that is kept exact.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Literal, NamedTuple

from raysweep.core.state.trial import Slot, Trial, is_preempted

# A heap is made anew when it holds this many more entries than it has numbers.
_SPARE: Final = 64


class Line:
    """Numbers in an order: a deque from whose middle a number is taken as fast as from its ends."""

    __slots__ = ("_first", "_last", "_places")

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._places: OrderedDict[int, int] = OrderedDict()
        self._first = self._last = 0
        for number in numbers:
            self.append(number)

    def append(self, number: int) -> None:
        """Put a number at the end."""
        self._last += 1
        self._places[number] = self._last

    def appendleft(self, number: int) -> None:
        """Put a number at the front."""
        self._first -= 1
        self._places[number] = self._first
        self._places.move_to_end(number, last=False)

    def popleft(self) -> int:
        """Take the first. Raises: KeyError if there is none."""
        return self._places.popitem(last=False)[0]

    def remove(self, number: int) -> None:
        """Take a number out. Raises: KeyError if it is not there."""
        del self._places[number]

    def __getitem__(self, end: Literal[0, -1]) -> int:
        """The first or the last. Raises: StopIteration if there is none."""
        return next(reversed(self._places) if end else iter(self._places))

    def clear(self) -> None:
        """Take all out."""
        self._places.clear()

    def sorted(self, numbers: Iterable[int]) -> list[int]:
        """Some of the line's numbers, in its order."""
        return sorted(numbers, key=self._places.__getitem__)

    def __contains__(self, number: int) -> bool:
        return number in self._places

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class Heap:
    """A key for each number, the least first; of equal keys that of the lower number."""

    __slots__ = ("_entries", "_keys")

    def __init__(self) -> None:
        self._entries: list[tuple[float, int]] = []
        self._keys: dict[int, float] = {}

    def put(self, number: int, key: float) -> None:
        """Give a number a key, in place of the one that it has."""
        if self._keys.get(number) == key:
            return
        self._keys[number] = key
        heappush(self._entries, (key, number))
        if len(self._entries) > 2 * len(self._keys) + _SPARE:
            self._entries = [(key, number) for number, key in self._keys.items()]
            heapify(self._entries)

    def drop(self, number: int) -> None:
        """Forget a number; one that is not there is passed over."""
        self._keys.pop(number, None)

    def key(self, number: int) -> float | None:
        """The key of a number."""
        return self._keys.get(number)

    def first(self) -> tuple[float, int] | None:
        """The least key and its number."""
        entries = self._entries
        while entries:
            key, number = entries[0]
            if self._keys.get(number) == key:
                return entries[0]
            heappop(entries)
        return None


class _Look(NamedTuple):
    """A slot as it was when it was last looked at."""

    is_open: bool = False
    is_busy: bool = False
    is_idle: bool = False
    is_vacated: bool = False
    is_large: bool = False
    node: str = ""


_GONE: Final = _Look()


class Tally:
    """Of the slots and trials of one state, whose own containers it looks at.

    `large`: the trials that need another slot than the usual; some may have ended since. `pins`: for how
    many trials a checkpoint is kept that another one made.
    `may_have_large`: whether there may be such slots as `large_slots`, at the cost of a look.
    `longest_s` and `latest_at`: no running trial takes longer from report to report or from checkpoint to
    checkpoint, and none did so later.
    """

    __slots__ = (
        "_busy",
        "_due",
        "_heard",
        "_idle",
        "_large_slots",
        "_loads",
        "_looks",
        "_nodes",
        "_open",
        "_slots",
        "_started",
        "_touched",
        "_trials",
        "_vacated",
        "_waiting",
        "large",
        "latest_at",
        "longest_s",
        "may_have_large",
        "pins",
    )

    def __init__(self, slots: dict[int, Slot], trials: dict[int, Trial], waiting: dict[int, float]) -> None:
        self._slots, self._trials, self._waiting = slots, trials, waiting
        self._touched = set(slots)
        self._looks: dict[int, _Look] = {}
        self._open = self._busy = 0
        self._nodes: Counter[str] = Counter()
        self._idle: set[int] = set()
        self._vacated: set[int] = set()
        self._large_slots: set[int] = set()
        self.may_have_large = any(slot.is_large for slot in slots.values())
        self._heard, self._started, self._loads, self._due = Heap(), Heap(), Heap(), Heap()
        for number, at in waiting.items():
            self._due.put(number, at)
        self.large = {number for number, trial in trials.items() if trial.is_large}
        self.pins = Counter(checkpoint.uri for trial in trials.values() for checkpoint in trial.borrowed)
        self.longest_s = self.latest_at = 0.0
        for trial in trials.values():
            if trial.pace is not None:
                self.note_pace(trial.pace.step_s or 0.0, trial.pace.reported_at or 0.0)
                self.note_pace(trial.pace.save_s or 0.0, trial.pace.saved_at or 0.0)

    # -- summaries --------------------------------------------------------------------------------

    def touch(self, *slots: int) -> None:
        """These slots have changed, or are about to in this event."""
        self._touched.update(slots)

    def open_large(self) -> None:
        """A slot is there that is another than the usual."""
        self.may_have_large = True

    def wait(self, trial: int, due_at: float) -> None:
        """A trial waits until then."""
        self._due.put(trial, due_at)

    def note_pace(self, seconds: float, at: float) -> None:
        """A trial took `seconds` from one report or checkpoint to the next."""
        self.longest_s, self.latest_at = max(self.longest_s, seconds), max(self.latest_at, at)

    # -- what is asked -----------------------------------------------------------------------------

    @property
    def open_slots(self) -> int:
        """The number of open slots."""
        self._look()
        return self._open

    @property
    def busy_slots(self) -> int:
        """The number of slots that have a trial."""
        self._look()
        return self._busy

    @property
    def idle(self) -> set[int]:
        """The slots in the line that have no trial."""
        self._look()
        return self._idle

    @property
    def vacated(self) -> list[int]:
        """The slots that are to be closed, and have no trial any more."""
        self._look()
        return sorted(self._vacated)

    @property
    def has_large(self) -> bool:
        """True if there are such slots as `large_slots`."""
        if self.may_have_large:
            self._look()
            self.may_have_large = bool(self._large_slots)
        return self.may_have_large

    @property
    def large_slots(self) -> list[Slot]:
        """The slots that were opened for trials that need another one than the usual."""
        self._look()
        return [self._slots[number] for number in sorted(self._large_slots)]

    @property
    def nodes(self) -> Counter[str]:
        """The number of open slots on each node."""
        self._look()
        return self._nodes

    @property
    def most_loaded(self) -> Slot | None:
        """The first of the slots with the most trials, if these are two or more."""
        self._look()
        first = self._loads.first()
        return self._slots[first[1]] if first is not None else None

    def next_due(self) -> tuple[float, int] | None:
        """The time at which the first waiting trial is due, and its number."""
        while (first := self._due.first()) is not None:
            if self._waiting.get(first[1]) == first[0]:
                return first
            self._due.drop(first[1])
        return None

    def silent_since(self) -> tuple[float, int] | None:
        """The time at which the trial that has been silent for longest was heard of, and its slot.

        Counts trials that run, or that continue until their next checkpoint (`preempt`). Leaves out those
        that cannot report at present, because they store a checkpoint.
        """
        self._look()
        while (first := self._heard.first()) is not None:
            heard_at, number = first
            slot = self._slots.get(number)
            if slot is None or slot.is_busy or not self._reports(slot):
                self._heard.drop(number)
            elif slot.heard_at != heard_at:
                self._heard.put(number, slot.heard_at)
            else:
                return first
        return None

    def silent_since_or_later(self) -> float | None:
        """A bound from below of what `silent_since` says, which costs nothing to have."""
        self._look()
        first = self._heard.first()
        return first[0] if first is not None else None

    def running_since(self) -> tuple[float, int] | None:
        """The time at which the attempt that has run for longest began, and its slot."""
        self._look()
        while (first := self._started.first()) is not None:
            slot = self._slots.get(first[1])
            if slot is not None and self._runs(slot) and self._head(slot).attempt_started_at == first[0]:
                return first
            self._started.drop(first[1])
        return None

    def silent_for(self, is_over: Callable[[float], bool]) -> set[int]:
        """The slots whose running trials were last heard of too long ago."""
        found: set[int] = set()
        while (first := self.silent_since()) is not None and is_over(first[0]):
            found.add(first[1])
            self._heard.drop(first[1])
        self.touch(*found)
        return found

    def running_for(self, is_over: Callable[[float], bool]) -> set[int]:
        """The slots whose running attempts began too long ago."""
        found: set[int] = set()
        while (first := self.running_since()) is not None and is_over(first[0]):
            found.add(first[1])
            self._started.drop(first[1])
        self.touch(*found)
        return found

    # -- how ---------------------------------------------------------------------------------------

    def _head(self, slot: Slot) -> Trial:
        return self._trials[slot.queue[0]]

    def _runs(self, slot: Slot) -> bool:
        return bool(slot.queue) and self._head(slot).state == "running"

    def _reports(self, slot: Slot) -> bool:
        head = self._head(slot) if slot.queue else None
        return head is not None and (head.state == "running" or is_preempted(head))

    def _look(self) -> None:
        while self._touched:
            number = self._touched.pop()
            slot = self._slots.get(number)
            self._count(number, slot)
            if slot is None:
                self._looks.pop(number, None)
                for heap in (self._heard, self._started, self._loads):
                    heap.drop(number)
            else:
                self._time(slot)

    def _count(self, number: int, slot: Slot | None) -> None:
        before, now = self._looks.get(number, _GONE), _GONE if slot is None else _look_at(slot)
        if before == now:
            return
        self._looks[number] = now
        self._open += now.is_open - before.is_open
        self._busy += now.is_busy - before.is_busy
        self._nodes[before.node] -= before.is_open
        self._nodes[now.node] += now.is_open
        _mark(self._idle, number, is_in=now.is_idle)
        _mark(self._vacated, number, is_in=now.is_vacated)
        _mark(self._large_slots, number, is_in=now.is_large)

    def _time(self, slot: Slot) -> None:
        if len(slot.queue) > 1:
            self._loads.put(slot.number, -len(slot.queue))
        else:
            self._loads.drop(slot.number)
        if not self._reports(slot):
            return
        heard_at, started_at = self._heard.key(slot.number), self._head(slot).attempt_started_at
        if not slot.is_busy and (heard_at is None or slot.heard_at < heard_at):
            self._heard.put(slot.number, slot.heard_at)
        if started_at is not None and self._runs(slot):
            self._started.put(slot.number, started_at)
            self.latest_at = max(self.latest_at, started_at)


def _look_at(slot: Slot) -> _Look:
    is_empty = not slot.queue
    return _Look(
        slot.is_open,
        not is_empty,
        slot.is_hungry and is_empty,
        slot.is_leaving and is_empty,
        slot.is_large,
        slot.node if slot.is_open else "",
    )


def _mark(numbers: set[int], number: int, *, is_in: bool) -> None:
    if is_in:
        numbers.add(number)
    else:
        numbers.discard(number)
