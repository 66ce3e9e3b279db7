"""Champions: the best config that the nights have found, each line of them in a journal of its own.

    <storage_path>/champions/<name>/<metric>.<mode>/             in one line
    <storage_path>/champions/<name>/<metric>.<mode>.<data>/      on a data set that the gate names

Scores of another metric, mode or data set cannot be compared: a gate that has one of these changed begins a
new line, and leaves the old one as it is.

Champion, nights, evidence, registrations and pins are folds of the line's events (`folds.py`). A line that is
damaged, of another format or an older copy is refused, and never continued (`line_journal.py`).
"""

from __future__ import annotations

from raysweep.errors import StorageError, StorageUnavailableError
from raysweep.runs.across_runs.line_journal import LineJournal, paths_of
from raysweep.runs.across_runs.records import FOLDER, Champion, ChampionRecord, Line, Night, Waiting
from raysweep.storage.objects.parallel import each_of
from raysweep.storage.objects.store import Store

__all__ = [
    "FOLDER",
    "Champion",
    "ChampionRecord",
    "Champions",
    "Line",
    "Night",
    "Waiting",
    "list_champions",
    "list_records",
    "read_champion",
    "read_records",
]


def read_champion(store: Store, line: Line) -> ChampionRecord:
    """The champion of this line, and its history; both empty before the first night.

    Raises:
        StorageError: It cannot be read, is damaged, has another format, or is an older copy.
    """
    return LineJournal(store, line.path).read()


class Champions(tuple[Champion, ...]):
    """The champions of several lines, the newest first."""

    damaged: tuple[StorageError, ...] = ()
    """The lines that cannot be read: each names its object, what is wrong with it, and the fix."""


def list_champions(store: Store, name: str | None = None) -> Champions:
    """The champions of all lines of this name; without a name, of all names. A damaged line hides no other.

    Raises:
        StorageError: The storage does not answer.
    """
    records, damaged = read_records(store, name)
    found = [each.champion for each in records if each.champion is not None]
    champions = Champions(sorted(found, key=lambda champion: -champion.at))
    champions.damaged = damaged
    return champions


def list_records(store: Store, name: str | None = None) -> tuple[ChampionRecord, ...]:
    """All lines of this name; without a name, of all names.

    Raises:
        StorageError: One cannot be read, is damaged, or has another format.
    """
    records, damaged = read_records(store, name)
    if damaged:
        raise damaged[0]
    return records


def read_records(
    store: Store, name: str | None = None
) -> tuple[tuple[ChampionRecord, ...], tuple[StorageError, ...]]:
    """As `list_records`, of those that can be read; and what is wrong with each other one.

    Raises:
        StorageError: The storage does not answer.
    """
    read = each_of(store, lambda path: _try_record(store, path), paths_of(store, name))
    records = tuple(each for each in read if isinstance(each, ChampionRecord))
    return records, tuple(each for each in read if isinstance(each, StorageError))


def _try_record(store: Store, path: str) -> ChampionRecord | StorageError:
    try:
        return LineJournal(store, path).read()
    except StorageUnavailableError:
        raise
    except StorageError as error:
        return error
