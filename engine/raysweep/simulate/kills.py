"""The controller's store in a simulation: counts what the controller writes, and kills it around a write."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from raysweep.errors import RaysweepError
from raysweep.storage.objects.store import Store
from raysweep.storage.objects.wrapped import Operation, WrappedStore

_APPEND: Final = re.compile(r"^(?:put )?[^/]+/journal/(\d+)\.jsonl$")
_WRITES: Final = frozenset({"put", "delete"})
T = TypeVar("T")


class ControllerKilled(BaseException):
    """The controller is dead from here on. No `except Exception` on its way may see it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """Kill the controller once, before or after it writes.

    `append`: when it writes this segment of the journal (claims are segments too). `write`: at its so-manyth
    write of any kind, those of its predecessors included, from 1: also merged segments, deletions, snapshots,
    `sweep.json` and `outcome.json`. `tears`: of the newest segment of the journal only the first half
    is left then.
    """

    when: Literal["before", "after"]
    append: int | None = None
    write: int | None = None
    tears: bool = False

    def __post_init__(self) -> None:
        if (self.append is None) == (self.write is None):
            raise RaysweepError("Kill takes either append= or write=")


def appended(write: str) -> int | None:
    """The number of the segment that is written to this key, or by this entry of `WatchedStore.writes`."""
    found = _APPEND.search(write)
    return int(found[1]) if found else None


class WatchedStore(WrappedStore):
    """Carries out `kills`; those that have happened are in `fired`."""

    def __init__(self, inner: Store, kills: tuple[Kill, ...]) -> None:
        super().__init__(inner)
        self.writes: list[str] = []
        self.fired: list[Kill] = []
        self._kills = list(kills)
        self._newest = ""

    def around(self, operation: Operation, key: str, call: Callable[[], T]) -> T:
        """See the class."""
        if operation not in _WRITES:
            return call()
        self.writes.append(f"{operation} {key}")
        number = len(self.writes)
        self._kill_if_due("before", number, key)
        result = call()
        if appended(key):
            self._newest = key
        self._kill_if_due("after", number, key)
        return result

    def _kill_if_due(self, when: str, number: int, key: str) -> None:
        segment = appended(key)
        for kill in self._kills:
            if kill.when == when and (kill.write == number or (segment and kill.append == segment)):
                self._kills.remove(kill)
                self.fired.append(kill)
                if kill.tears:
                    data = self.inner.get(self._newest) or b""
                    self.inner.put(self._newest, data[: len(data) // 2])
                raise ControllerKilled
