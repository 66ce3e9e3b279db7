"""The input of an export, and its progress."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from raysweep.outcome import SweepOutcome
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.history import reports_of
from raysweep.runs.reading.reader import SweepReader

Advance = Callable[[str, int, int], None]
"""Called now and then with what is done, how many of it are done, and how many there are."""
EVERY = 500
ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The result of an export."""

    sweep_id: str
    to: str
    places: tuple[str, ...]
    """The files, or the URL."""
    trials: int
    reports: int
    has_ended: bool
    """True if the sweep had ended; else it is what its journal held."""


def read_outcome(folder: SweepFolder) -> SweepOutcome:
    """The sweep with all its trials, ended or not. Raises: as `SweepReader.outcome_so_far`."""
    return SweepReader(folder.store.url, folder.sweep_id, is_strict=True).outcome_so_far()


def told(items: Iterable[ItemT], what: str, total: int, advance: Advance) -> Iterator[ItemT]:
    """The items, as they are, and how many have gone by."""
    done = 0
    for item in items:
        yield item
        done += 1
        if done % EVERY == 0:
            advance(f"exporting {what}", done, max(total, done))
    advance(f"exporting {what}", done, done)


@dataclass(slots=True)
class Curve:
    """The reports of one trial that count, by their place in the trial: 16 bytes each."""

    iterations: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, iteration: int, value: float) -> None:
        """A report; what an earlier attempt had reported at this place or later is dropped."""
        while self.iterations and self.iterations[-1] >= iteration:
            self.iterations.pop()
            self.values.pop()
        self.iterations.append(iteration)
        self.values.append(value)


def read_curves(folder: SweepFolder, metric: str, total: int, advance: Advance) -> dict[int, Curve]:
    """The curve of a metric by the number of its trial. Raises: as `reports_of`."""
    curves: dict[int, Curve] = {}
    for row in told(reports_of(folder), "reports", total, advance):
        value = row.get(metric)
        if row["overrun"] or value is None or not is_number(value):
            continue
        curve = curves.get(row["number"])
        if curve is None:
            curve = curves[row["number"]] = Curve()
        curve.add(row["iteration"], float(value))
    return curves


def is_number(value: Any) -> bool:
    """True if a value is a number; truth values are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)
