"""Rows as tables: data frames with typed columns, and CSV. pandas is imported only for a data frame."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

import orjson

from raysweep.errors import RaysweepError

if TYPE_CHECKING:
    import pandas

Row = Mapping[str, Any]


def make_frame(rows: Iterable[Row], *, times: Collection[str] = (), call: str) -> pandas.DataFrame:
    """The rows as a DataFrame, one column for each name, in the order in which the names come up.

    Whole numbers stay whole (`Int64` where some are missing), truth values too (`boolean`), and the columns
    in `times`, seconds since 1970 UTC, are timestamps with their zone.

    Args:
        rows: Read once, one after the other: only the columns are held.
        times: The columns that hold times.
        call: What the user called, for the message.

    Raises:
        RaysweepError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise RaysweepError(
            f"{call} gives a DataFrame and needs pandas: pip install pandas;"
            " trials, and reports() of an outcome, are plain Python without it"
        ) from None
    columns = _columns(rows)
    return pandas.DataFrame({name: _typed(values, name in times) for name, values in columns.items()})


def _columns(rows: Iterable[Row]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    count = 0
    for row in rows:
        for name, value in row.items():
            column = columns.get(name)
            if column is None:
                column = columns[name] = []
            # A name that this row is not the first to leave out.
            column.extend([None] * (count - len(column)))
            column.append(value)
        count += 1
    for column in columns.values():
        column.extend([None] * (count - len(column)))
    return columns


def _typed(values: list[Any], is_time: bool) -> pandas.Series[Any]:
    import pandas

    if is_time:
        return pandas.Series(pandas.to_datetime(values, unit="s", utc=True))
    kinds = {type(value) for value in values if value is not None}
    is_whole = None not in values
    try:
        if kinds == {int}:
            return pandas.Series(values, dtype="int64" if is_whole else "Int64")
        if kinds == {bool}:
            return pandas.Series(values, dtype="bool" if is_whole else "boolean")
        if kinds and kinds <= {int, float}:
            return pandas.Series(values, dtype="float64")
    except OverflowError:
        pass  # beyond 64 bits: as it is
    return pandas.Series(values, dtype="object")


def write_csv(
    file: TextIO, rows: Iterable[Row], columns: Sequence[str], *, times: Collection[str] = ()
) -> None:
    """Write a header and one line for each row; what a row has no value for is left empty.

    Times are ISO 8601 in UTC, nested values JSON, and NaN and infinity stand as Python writes them.
    """
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(name), name in times) for name in columns])


def type_of(value: Any) -> type:
    """The type of a value in a typed table; that of a whole number beyond 64 bits is `object`."""
    return object if type(value) is int and not -(2**63) <= value < 2**63 else type(value)


def column_names(rows: Iterable[Row]) -> list[str]:
    """The names that come up in the rows, each once."""
    return list(dict.fromkeys(name for row in rows for name in row))


def with_iso_times(rows: Iterable[Row], times: Collection[str]) -> Iterator[dict[str, Any]]:
    """The rows with times as text in ISO 8601."""
    for row in rows:
        yield {name: _iso(value) if name in times else value for name, value in row.items()}


def _cell(value: Any, is_time: bool) -> Any:
    if is_time:
        return _iso(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict | tuple):
        return orjson.dumps(value, default=str).decode()
    return value


def _iso(value: float | None) -> str | None:
    if value is None:
        return None
    return datetime.fromtimestamp(value, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
