"""The trials and the reports of a sweep as CSV or Parquet files, written row by row."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from raysweep.errors import SpecError
from raysweep.export.source import Advance, Exported, read_outcome, told
from raysweep.outcome import TRIAL_TIMES, SweepOutcome, TrialOutcome, trial_row
from raysweep.outcome.frames import Row, type_of, write_csv
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.history import COLUMNS, TIMES, metric_types, reports_of

BATCH: Final = 20_000
"""Rows that a Parquet file's row group has; so many are in memory at once."""
TableKind = Literal["csv", "parquet"]
Types = Mapping[str, set[type]]
_OWN: Final[Types] = {
    "trial_id": {str},
    "number": {int},
    "attempt": {int},
    "iteration": {int},
    "at": {float},
    "overrun": {bool},
}


def export_tables(folder: SweepFolder, to: TableKind, out: Path, advance: Advance) -> Exported:
    """Write `trials` and `reports` into the folder `out`, which is made where there is none.

    Each file appears whole, in place of one of an earlier export. Memory grows with the trials and not with
    the reports.

    Raises:
        SpecError: Parquet without pyarrow; a file cannot be written.
        SweepNotFoundError, StorageError, JournalDamagedError: The sweep cannot be read.
    """
    write = _write_parquet if to == "parquet" else _write_csv
    if to == "parquet":
        _need_pyarrow()
    outcome = read_outcome(folder)
    trials, reports = out / f"trials.{to}", out / f"reports.{to}"
    total = sum(trial.reports + trial.overrun_reports for trial in outcome.trials)
    count = 0
    with _written(trials) as path:
        write(path, lambda: _trial_rows(outcome, advance), _trial_types(outcome), TRIAL_TIMES)
    with _written(reports) as path:
        types = {**_OWN, **metric_types(folder)}

        def rows() -> Iterator[Row]:
            nonlocal count
            for count, row in enumerate(told(reports_of(folder), "reports", total, advance), start=1):  # noqa: B007
                yield row

        write(path, rows, types, TIMES)
    return Exported(
        sweep_id=folder.sweep_id,
        to=to,
        places=(str(trials), str(reports)),
        trials=len(outcome.trials),
        reports=count,
        has_ended=outcome.has_ended,
    )


def _trial_rows(outcome: SweepOutcome, advance: Advance) -> Iterator[Row]:
    return told(map(_row, outcome.trials), "trials", len(outcome.trials), advance)


def _row(trial: TrialOutcome) -> Row:
    return trial_row(trial) | {"error": trial.problem or None}


def _trial_types(outcome: SweepOutcome) -> Types:
    if not outcome.trials:
        empty = trial_row(TrialOutcome(trial_id="", number=0, state="pending"))
        return {name: {type(value)} for name, value in empty.items()}
    types: dict[str, set[type]] = {}
    for row in map(_row, outcome.trials):
        for name, value in row.items():
            types.setdefault(name, set()).add(type_of(value))
    return types


@contextmanager
def _written(target: Path) -> Iterator[Path]:
    """A file beside the target that takes its place at the end. Raises: SpecError."""
    made = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield made
        made.replace(target)
    except OSError as error:
        problem = f"{str(target)!r} cannot be written: {error.strerror or error}"
        raise SpecError("--out", problem, "name a folder that you can write to") from error
    finally:
        with suppress(OSError):
            made.unlink()


def _write_csv(path: Path, rows: Callable[[], Iterable[Row]], types: Types, times: Iterable[str]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        write_csv(file, rows(), list(types), times=frozenset(times))


# -- Parquet ------------------------------------------------------------------------------------------


def _need_pyarrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        fix = "pip install pyarrow (raysweep[ray] brings it), or use --to csv"
        raise SpecError("--to", "parquet requires pyarrow, which is not installed", fix) from None


def _write_parquet(path: Path, rows: Callable[[], Iterable[Row]], types: Types, times: Iterable[str]) -> None:
    import pyarrow
    from pyarrow import parquet

    kinds = {name: _kind(found, is_time=name in frozenset(times)) for name, found in types.items()}
    arrow = {
        "time": pyarrow.timestamp("us", tz="UTC"),
        "int": pyarrow.int64(),
        "float": pyarrow.float64(),
        "bool": pyarrow.bool_(),
        "text": pyarrow.string(),
    }
    schema = pyarrow.schema([(name, arrow[kind]) for name, kind in kinds.items()])
    given = iter(rows())
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while batch := list(islice(given, BATCH)):
            columns = [_column(batch, name, kind) for name, kind in kinds.items()]
            arrays = [
                pyarrow.array(column, type=each.type) for column, each in zip(columns, schema, strict=True)
            ]
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))


def _kind(types: set[type], *, is_time: bool) -> str:
    """The type of a column: a number, a truth value or a time where all its values are; else text."""
    there = types - {type(None)}
    if is_time:
        return "time"
    if there == {int}:
        return "int"
    if there == {bool}:
        return "bool"
    return "float" if there and there <= {int, float} else "text"


def _column(rows: Sequence[Row], name: str, kind: str) -> list[Any]:
    convert = _CONVERT[kind]
    return [None if (value := row.get(name)) is None else convert(value) for row in rows]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    is_nested = isinstance(value, list | dict | tuple)
    return orjson.dumps(value, default=str).decode() if is_nested else str(value)


_CONVERT: Final[Mapping[str, Callable[[Any], Any]]] = {
    "time": lambda value: datetime.fromtimestamp(value, UTC),
    "int": int,
    "float": float,
    "bool": bool,
    "text": _text,
}
assert tuple(_OWN) == COLUMNS
