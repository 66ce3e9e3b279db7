"""Every report of a sweep, read from its journal one after the other. Needs no Ray."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from raysweep.core import SweepState, decode, step
from raysweep.core.state.trial import trial_id
from raysweep.core.vocabulary.events import Row, TrialReported
from raysweep.documents.json_numbers import without_names
from raysweep.errors import SweepNotFoundError
from raysweep.outcome import SweepOutcome
from raysweep.outcome.frames import type_of
from raysweep.runs.across_runs.verdicts import newest_verdict
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.replay import damaged_record
from raysweep.runs.reading.naming.lookup import find_sweep
from raysweep.runs.reading.reader import SweepReader
from raysweep.schedulers import load_scheduler
from raysweep.specs import SweepSpec

COLUMNS: Final = ("trial_id", "number", "attempt", "iteration", "at", "overrun")
"""The columns of each report beside its metrics; a metric of such a name is `metrics/<name>`."""
TIMES: Final = frozenset({"at"})


def load(sweep: str, storage: str | None = None) -> SweepOutcome:
    """The outcome of a stored sweep; see `raysweep.load`."""
    folder = find_sweep(sweep, storage)
    outcome = folder.read_outcome()
    if outcome is not None:
        verdict = newest_verdict(folder.store, folder.sweep_id)
        if verdict is None:
            return outcome
        return outcome.model_copy(update={"promoted": verdict.promoted, "gate": verdict})
    return SweepReader(folder.store.url, folder.sweep_id, is_strict=True).outcome_so_far()


def read_reports(uri: str) -> Iterator[dict[str, Any]]:
    """Every report of the sweep at this URI, oldest first; see `StoredSweep.reports`."""
    return reports_of(find_sweep(uri, None))


def reports_of(folder: SweepFolder) -> Iterator[dict[str, Any]]:
    """Every report of a sweep, in the order of its journal; one journal object at a time is held.

    Raises:
        SweepNotFoundError: There is no such sweep.
        SpecError: The scheduler is a class of the user's that cannot be imported here.
        StorageError, JournalDamagedError: The journal cannot be read.
    """
    record = folder.read_spec()
    if record is None:
        raise SweepNotFoundError(folder.sweep_id, folder.store.url)
    spec = SweepSpec.from_any(dict(record.spec))
    load_scheduler(spec)
    # Which reports count, and where an attempt continued, only the sweep's own rules say: it is replayed.
    state = SweepState.create(spec, record.seed)
    for number, line in enumerate(folder.journal().read(), start=1):
        try:
            event = decode(line)
        except ValueError as error:
            raise damaged_record(number, error) from error
        if isinstance(event, TrialReported):
            yield from _rows(state, event)
        else:
            step(state, event)


def metric_names(folder: SweepFolder) -> list[str]:
    """The columns of the metrics that the reports have, in the order in which they came up."""
    return list(metric_types(folder))


def metric_types(folder: SweepFolder) -> dict[str, set[type]]:
    """The same, each with the types of its values as `type_of` has them."""
    types: dict[str, set[type]] = {}
    for line in folder.journal().read():
        if line.startswith(b'{"e":"TrialReported"'):
            event = decode(line)
            assert isinstance(event, TrialReported)
            for place, key in enumerate(event.keys):
                types.setdefault(_column(key), set()).update(
                    type_of(without_names(row[place])) for row in event.rows
                )
    return types


@dataclass(frozen=True, slots=True)
class TakenRows:
    """The reports of an event that the sweep took."""

    first: int
    """The iteration of the first of them."""
    rows: tuple[Row, ...]
    counted: int
    """The number of them that count; the rest came after their trial was to end."""


def take_reports(state: SweepState, event: TrialReported) -> TakenRows:
    """Apply the event, and say which of its rows were taken, in order.

    A controller that died may have journaled some twice; of an attempt that is over, none is taken.
    """
    trial = state.trials.get(event.trial)
    if trial is None:
        step(state, event)
        return TakenRows(0, (), 0)
    results = trial.results
    reports, overrun, start = results.attempt_reports, results.overrun, results.attempt_iteration
    step(state, event)
    taken = trial.results.attempt_reports - reports
    rows = event.rows[len(event.rows) - taken :] if taken > 0 else ()
    first = start + event.first + len(event.rows) - len(rows) + 1
    return TakenRows(first, rows, len(rows) - (trial.results.overrun - overrun))


def _rows(state: SweepState, event: TrialReported) -> Iterator[dict[str, Any]]:
    taken = take_reports(state, event)
    names = [_column(key) for key in event.keys]
    for index, row in enumerate(taken.rows):
        yield {
            "trial_id": trial_id(event.trial),
            "number": event.trial,
            "attempt": event.attempt,
            "iteration": taken.first + index,
            "at": event.at,
            "overrun": index >= taken.counted,
            **dict(zip(names, map(without_names, row), strict=True)),
        }


def _column(metric: str) -> str:
    return f"metrics/{metric}" if metric in COLUMNS else metric
