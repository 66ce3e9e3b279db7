"""Champions: the best config that the nights have found, each line of them in a file of its own.

    <storage_path>/champions/<name>/<metric>.<mode>.json             in one line
    <storage_path>/champions/<name>/<metric>.<mode>.<data>.json      on a data set that the gate names

Scores of another metric, mode or data set cannot be compared: a gate that has one of these changed begins a
new line, and leaves the old one as it is.

Each file carries the hash of its own content and names the newest entry of its line's evidence
(`evidence.py`). A file that is damaged, of another format or of another line is refused, and never written
over. `releases.py` writes these files. What lies in the store is named relative to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from raysweep.documents.stored_paths import to_reference, to_uri
from raysweep.errors import StorageError, StorageUnavailableError
from raysweep.outcome import Decision, Undone
from raysweep.outcome.places import Change
from raysweep.specs.identity import file_name
from raysweep.storage.formats import other_format
from raysweep.storage.journal.segment import RESTORE_FIX
from raysweep.storage.objects.parallel import each_of
from raysweep.storage.objects.sealed import has_seal, seal
from raysweep.storage.objects.store import Store

FOLDER: Final = "champions"
EVIDENCE: Final = "evidence"
DECIDED: Final = "decided"
FORMAT_VERSION: Final = 4
NIGHTS_KEPT: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Which champions can be compared: those of one name, metric, mode and data set."""

    name: str
    metric: str
    mode: str
    data: str = ""
    """The data set that scores are measured on, as the gate names it."""

    @property
    def key(self) -> str:
        """Where its file lies in the store."""
        return f"{FOLDER}/{self._path}.json"

    @property
    def evidence(self) -> str:
        """The folder of its evidence in the store."""
        return f"{EVIDENCE}/{self._path}"

    @property
    def decided(self) -> str:
        """The folder of the marks of its decisions in the store."""
        return f"{DECIDED}/{self._path}"

    @property
    def _path(self) -> str:
        parts = [file_name(self.metric), self.mode, *([file_name(self.data)] if self.data else [])]
        return f"{file_name(self.name)}/{'.'.join(parts)}"

    def __str__(self) -> str:
        on = f" on {self.data}" if self.data else ""
        return f"{self.metric} ({self.mode}){on}"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Champion(_Record):
    """The best config so far."""

    name: str
    metric: str
    mode: str
    data: str = ""
    """The data set that its scores were measured on, as its gate names it."""
    config: dict[str, Any]
    mean: float
    spread: float
    """The standard deviation over the seeds."""
    n: int
    """How many seeds."""
    metrics: dict[str, Any] = {}
    sweep_id: str
    """The sweep that found it."""
    key: str = ""
    trial_id: str = ""
    """The trial of that sweep."""
    checkpoint_uri: str | None = None
    """In the file relative to the store, if it lies there."""
    at: float
    """When it became champion; a rollback to it does not change that."""
    code_digest: str = ""
    """Of the trainable's own code, as it ran in that sweep."""
    spec_digest: str = ""
    """Of that sweep's spec."""
    replaced: Champion | None = None
    """The champion before it, of another sweep."""

    @property
    def line(self) -> Line:
        """With which others it can be compared."""
        return Line(name=self.name, metric=self.metric, mode=self.mode, data=self.data)


class Waiting(_Record):
    """A candidate that passed its gate, until it is approved or rejected."""

    proposed: Champion
    against_sweep: str = ""
    """The sweep of the champion that it was compared with; empty for none."""
    against_at: float | None = None
    """When that became champion."""
    until: float
    """When silence decides, in UTC seconds."""
    on_silence: Literal["reject", "promote"]


class Night(_Record):
    """One night's gate. Times are UTC seconds."""

    sweep_id: str
    key: str = ""
    gate: str = ""
    """Which of the sweep's gates."""
    at: float
    promoted: bool
    mean: float | None = None
    """Of the night's best candidate."""
    why: str = ""
    evidence: str = ""
    """The entry of the evidence that holds the verdict."""
    waiting: Waiting | None = None
    """Of a night whose candidate passed, where approval is required."""
    decision: Decision | None = None
    """What was decided about that candidate."""
    undone: Undone | None = None
    """The rollback that took its champion away; None once that is champion again."""

    @property
    def is_waiting(self) -> bool:
        """Whether its candidate waits for approval."""
        return self.waiting is not None and self.decision is None


class ChampionRecord(_Record):
    """What a file holds: the champion of a line, if there is one, and the newest nights by decision.

    A night that waits for approval stays, however many come after it.
    """

    champion: Champion | None = None
    history: tuple[Night, ...] = ()
    head: str = ""
    """The newest entry of the evidence: `000012-<sha256>`, the stem of its file; empty before the first."""
    format_version: int = FORMAT_VERSION

    def night(self, sweep_id: str, gate: str = "") -> Night | None:
        """What a gate of a sweep decided."""
        nights = (
            night for night in reversed(self.history) if (night.sweep_id, night.gate) == (sweep_id, gate)
        )
        return next(nights, None)

    def champion_beside(self, sweep_id: str) -> Champion | None:
        """The champion that a sweep has to beat: of another sweep than itself."""
        champion = self.champion
        return champion if champion is None or champion.sweep_id != sweep_id else champion.replaced

    def after(self, night: Night, champion: Champion | None) -> ChampionRecord:
        """The record with a night as it is decided now, and its champion if it has a new one."""
        others = tuple(each for each in self.history if not _is_same(each, night))
        waiting = (each for each in others[: 1 - NIGHTS_KEPT] if each.is_waiting)
        history = (*waiting, *others[1 - NIGHTS_KEPT :], night)
        record = self.model_copy(update={"history": history})
        return record if champion is None else record.under(champion)

    def under(self, champion: Champion) -> ChampionRecord:
        """The record with this champion."""
        before = self.champion_beside(champion.sweep_id)
        if before is not None:
            before = before.model_copy(update={"replaced": None})
        champion = champion.model_copy(update={"replaced": before})
        return self.model_copy(update={"champion": champion})

    @property
    def proposed(self) -> tuple[Champion, ...]:
        """The candidates that wait for approval."""
        nights = (each for each in self.history if each.is_waiting)
        return tuple(each.waiting.proposed for each in nights if each.waiting is not None)


def read_champion(store: Store, line: Line) -> ChampionRecord:
    """The champion of this line, and its history; both empty before the first night.

    Raises:
        StorageError: It cannot be read, is damaged, or has another format.
    """
    return decode_record(store, line.key, store.get(line.key))


class Champions(tuple[Champion, ...]):
    """The champions of several lines, the newest first."""

    damaged: tuple[StorageError, ...] = ()
    """The lines that cannot be read: each names its file, what is wrong with it, and the fix."""


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
    """The files of all lines of this name; without a name, of all names.

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
    folder = FOLDER if name is None else f"{FOLDER}/{file_name(name)}"
    keys = sorted(info.key for info in store.list(folder) if info.key.endswith(".json"))
    read = each_of(store, lambda key: _try_record(store, key), keys)
    records = tuple(each for each in read if isinstance(each, ChampionRecord))
    return records, tuple(each for each in read if isinstance(each, StorageError))


def _try_record(store: Store, key: str) -> ChampionRecord | StorageError:
    try:
        return decode_record(store, key, store.get(key))
    except StorageUnavailableError:
        raise
    except StorageError as error:
        return error


def encode_record(store: Store, record: ChampionRecord) -> bytes:
    """A line's file, with the hash of its content."""
    stored = _with_uris(record, lambda uri: to_reference(store.url, uri))
    return seal(stored.model_dump_json(indent=1).encode())


def decode_record(store: Store, key: str, data: bytes | None) -> ChampionRecord:
    """What a line's file holds; None: there is none.

    Raises:
        StorageError: It is damaged, has another format, or is of another line; or it is gone, and its
            evidence is not.
    """
    path = f"{store.url}/{key}"
    if data is None:
        _check_first(store, key)
        return ChampionRecord()
    try:
        fields = orjson.loads(data)
        version = fields.get("format_version") if isinstance(fields, dict) else None
        if version != FORMAT_VERSION:
            problem = other_format(version, FORMAT_VERSION, name="format_version")
            fix = "use the version of raysweep that wrote it, or move the file away"
            raise StorageError(path, problem, fix)
        record = ChampionRecord.model_validate(fields)
    except (orjson.JSONDecodeError, ValidationError) as error:
        text = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise StorageError(path, f"is damaged ({text})", RESTORE_FIX) from error
    if not has_seal(data):
        raise StorageError(path, "is damaged (a byte of it is not as it was written)", RESTORE_FIX)
    if record.champion is not None and record.champion.line.key != key:
        problem = f"holds the champion of {record.champion.name!r}, {record.champion.line}: it is another's"
        raise StorageError(path, problem, RESTORE_FIX)
    return _with_uris(record, lambda reference: to_uri(store.url, reference))


def _is_same(one: Night, other: Night) -> bool:
    return (one.sweep_id, one.gate) == (other.sweep_id, other.gate)


def _check_first(store: Store, key: str) -> None:
    """See that a line without a file is a new one. A single entry may be of a first night that was cut."""
    folder = f"{EVIDENCE}/{key.removeprefix(f'{FOLDER}/').removesuffix('.json')}"
    later = [info.key for info in store.list(folder) if not info.key.startswith(f"{folder}/000001-")]
    if later:
        problem = f"is missing, and its evidence is not ({len(later) + 1} entries in {folder})"
        raise StorageError(f"{store.url}/{key}", problem, f"{RESTORE_FIX}, or move that folder away too")


def _with_uris(record: ChampionRecord, change: Change) -> ChampionRecord:
    update: dict[str, object] = {}
    if record.champion is not None:
        (champion, *before) = (champion_with(each, change) for each in _both(record.champion))
        update["champion"] = champion.model_copy(update={"replaced": before[0] if before else None})
    if any(night.waiting is not None for night in record.history):
        update["history"] = tuple(_night_with(night, change) for night in record.history)
    return record.model_copy(update=update) if update else record


def _night_with(night: Night, change: Change) -> Night:
    if night.waiting is None:
        return night
    proposed = champion_with(night.waiting.proposed, change)
    return night.model_copy(update={"waiting": night.waiting.model_copy(update={"proposed": proposed})})


def _both(champion: Champion) -> Iterator[Champion]:
    yield champion
    if champion.replaced is not None:
        yield champion.replaced


def champion_with(champion: Champion, change: Change) -> Champion:
    """The champion with its checkpoint's URI changed, not that of the one before it."""
    uri = champion.checkpoint_uri
    return champion if uri is None else champion.model_copy(update={"checkpoint_uri": change(uri)})
