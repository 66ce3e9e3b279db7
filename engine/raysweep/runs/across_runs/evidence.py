"""Evidence: why a line of champions has the champion that it has, one file for each decision, in a chain.

    <storage_path>/evidence/<name>/<metric>.<mode>[.<data>]/000012-<sha256>.json
    <storage_path>/decided/<name>/<metric>.<mode>[.<data>]/000012

An entry is written before the champion's file names it as the newest. Its name has the SHA-256 of its bytes,
and it names the entry before it: a byte that changes in any of them is noticed. The chain is not signed: it
shows an edit to everyone who has the champion's file, or a later entry, from before.

The mark in `decided` is written once the champion's file names the entry, whose stem it holds: an older copy
of that file is noticed. A kill may keep the newest mark from being written; the next decision writes it.

An entry that lost against another one stays, outside the chain, and has no mark.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson
from pydantic import Field, ValidationError

from raysweep.documents.json_numbers import Number
from raysweep.documents.stored_paths import to_reference, to_uri
from raysweep.errors import StorageError
from raysweep.outcome import Decision, GateOutcome, Record, Usage
from raysweep.outcome.places import Change, gate_with
from raysweep.runs.across_runs.champions import (
    EVIDENCE,
    FOLDER,
    Champion,
    ChampionRecord,
    Line,
    champion_with,
    decode_record,
    read_champion,
)
from raysweep.runs.across_runs.verdicts import stored_decision, stored_verdict
from raysweep.specs.identity import file_name, slug
from raysweep.storage.formats import other_format
from raysweep.storage.journal.segment import RESTORE_FIX
from raysweep.storage.objects.store import Store

FORMAT_VERSION: Final = 1
Kind = Literal["gate", "approval", "rollback"]


class Drift(Record):
    """How the champion's score has changed since the night in which it became champion."""

    then: Number
    """Its mean in that night."""
    now: Number
    """Its mean tonight, beside the candidates."""
    since: float
    """When it became champion, in UTC seconds."""

    @property
    def change(self) -> float:
        """Now less then."""
        return self.now - self.then


class Facts(Record):
    """What a gate knew when it decided."""

    verdict: GateOutcome
    """Candidates and champion with the score of every seed, the test, its interval."""
    drift: Drift | None = None
    """None without a champion, or where it did not run."""
    constraints: tuple[str, ...] = ()
    usage: dict[str, Usage] = Field(default_factory=dict)
    """What `sweep` and `gate` used."""
    code_digest: str = ""
    """Of the trainable's own code, as it ran in the sweep; empty where that is not known."""
    gate_code_digest: str = ""
    """As it ran in the gate."""
    spec_digest: str = ""
    """Of the sweep's spec."""
    versions: dict[str, str] = Field(default_factory=dict)
    """`sweep` and `gate`: the raysweep that ran them; `raysweep`, `python`, `ray`: those of the process that
    decided."""


class Evidence(Record):
    """One decision about a line of champions. Times are UTC seconds."""

    number: int
    """Counts from 1."""
    kind: Kind
    previous: str = ""
    """The entry before it, `000011-<sha256>`; empty for the first."""
    at: float
    by: str = ""
    """Who decided: `ann@host`; of a gate, who ran it."""
    why: str = ""
    name: str
    metric: str
    mode: str
    data: str = ""
    """The data set, as the gate names it."""
    sweep_id: str = ""
    """The night that was decided on; of a rollback, the one whose champion is champion again."""
    key: str = ""
    gate: str = ""
    promoted: bool
    """Whether there is another champion after it."""
    before: Champion | None = None
    """The champion before it."""
    after: Champion | None = None
    """The champion from then on."""
    facts: Facts | None = None
    """Of a gate."""
    decision: Decision | None = None
    """Of an approval."""
    format_version: int = FORMAT_VERSION

    @property
    def line(self) -> Line:
        """Which champions it is about."""
        return Line(name=self.name, metric=self.metric, mode=self.mode, data=self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """Something in a chain that is not as it was written."""

    object: str
    """Its key in the store."""
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The evidence of a line, the oldest first, as far as it can be read."""

    entries: tuple[Evidence, ...] = ()
    flaws: tuple[Flaw, ...] = ()
    beside: tuple[str, ...] = ()
    """Keys of entries that another decision overtook: nothing is wrong with them, and nothing needs them."""
    record: ChampionRecord = field(default_factory=ChampionRecord)


def alone(champion: Champion | None) -> Champion | None:
    """The champion without the one before it: evidence has that in an entry of its own."""
    return None if champion is None else champion.model_copy(update={"replaced": None})


def write_entry(store: Store, entry: Evidence) -> str:
    """Store an entry; returns the stem of its file, which the champion's file is to name. Durable."""
    fields = _with_uris(entry, lambda uri: to_reference(store.url, uri)).model_dump(mode="json")
    data = orjson.dumps(fields, option=orjson.OPT_INDENT_2)
    stem = f"{entry.number:06d}-{hashlib.sha256(data).hexdigest()}"
    store.put_if_absent(_key(entry.line, stem), data, durable=True)
    return stem


def read_entry(store: Store, line: Line, stem: str) -> Evidence:
    """One entry. Raises StorageError: it is gone, or not as it was written."""
    key = _key(line, stem)
    data = store.get(key)
    problem = "is missing" if data is None else _changed(stem, data)
    if data is not None and not problem:
        try:
            return _decode(store, data)
        except ValueError as error:
            problem = str(error)
    raise StorageError(f"{store.url}/{key}", problem, RESTORE_FIX)


def read_chain(store: Store, line: Line) -> Chain:
    """All evidence of a line, each byte checked; what is wrong is in `flaws`, and raises nothing.

    Raises: StorageError: The champion's file cannot be read, or the storage does not answer.
    """
    # Listed first: what is written after that is not taken for what is too much.
    listed, marks = (sorted(info.key for info in store.list(at)) for at in (line.evidence, line.decided))
    record = read_champion(store, line)
    entries: list[Evidence] = []
    flaws: list[Flaw] = []
    walked: set[str] = set()
    stem, number = record.head, _number(record.head)
    while number > 0:
        if not stem:
            # The entry after this one is gone or changed: this one is known by its own name only.
            sound = [each for each in listed if _number(_stem(each)) == number]
            stem = next((_stem(each) for each in sound if not _flaw(store, each)), "")
        if stem:
            key = _key(line, stem)
            walked.add(key)
            try:
                entry = read_entry(store, line, stem)
            except StorageError as error:
                flaws.append(Flaw(object=key, problem=error.problem))
                stem = ""
            else:
                flaws += [Flaw(object=key, problem=text) for text in _misfits(entry, line, number, entries)]
                entries.append(entry)
                stem = entry.previous
        number -= 1
    entries.reverse()
    flaws += _disagreements(line, record, entries)
    beside: list[str] = []
    for key in (each for each in listed if each not in walked):
        problem = _flaw(store, key) or _made_outside(store, line, record, _stem(key))
        if problem:
            flaws.append(Flaw(object=key, problem=problem))
        else:
            beside.append(key)
    flaws += _marks_alone(store, record, marks, listed)
    return Chain(entries=tuple(entries), flaws=tuple(flaws), beside=tuple(beside), record=record)


def lines_of(store: Store, name: str) -> tuple[str, ...]:
    """The stems of all lines of a name: those with a champion's file, and those with evidence alone."""
    folder = file_name(name)
    files = (info.key.rpartition("/")[2] for info in store.list(f"{FOLDER}/{folder}"))
    stems = {each.removesuffix(".json") for each in files if each.endswith(".json")}
    return tuple(sorted(stems | set(store.list_folders(f"{EVIDENCE}/{folder}"))))


def read_line(store: Store, name: str, stem: str) -> Line:
    """Which line a stem of `lines_of` is. Raises StorageError: its files are damaged."""
    key = f"{FOLDER}/{file_name(name)}/{stem}.json"
    record = decode_record(store, key, store.get(key))
    if record.champion is not None:
        return record.champion.line
    folder = f"{EVIDENCE}/{file_name(name)}/{stem}"
    for info in sorted(store.list(folder), key=lambda info: info.key):
        try:
            return _decode(store, store.get(info.key) or b"").line
        except ValueError:
            continue
    raise StorageError(f"{store.url}/{folder}", "no entry of it can be read", RESTORE_FIX)


def find_lines(store: Store, name: str) -> tuple[Line, ...]:
    """The lines of champions of a name, or of the names that have this slug.

    Raises: StorageError: They cannot be read.
    """
    found = [read_line(store, name, stem) for stem in lines_of(store, name)]
    if found:
        return tuple(found)
    folders = sorted({*store.list_folders(FOLDER), *store.list_folders(EVIDENCE)})
    lines = (read_line(store, folder, stem) for folder in folders for stem in lines_of(store, folder))
    return tuple(line for line in lines if slug(line.name) == slug(name))


def _misfits(entry: Evidence, line: Line, number: int, later: list[Evidence]) -> Iterator[str]:
    if entry.line != line:
        yield f"is of {entry.name!r}, {entry.line}: it is another line's"
    if entry.number != number:
        yield f"is entry {entry.number}, at the place of {number}"
    if later and later[-1].number == number + 1 and entry.after != later[-1].before:
        yield "does not lead to the entry after it: another champion came between"
    if number == 1 and entry.previous:
        yield "is the first, and names one before it"
    if number > 1 and not entry.previous:
        yield "names no entry before it"


def _disagreements(line: Line, record: ChampionRecord, entries: list[Evidence]) -> Iterator[Flaw]:
    """What the champion's file says otherwise than its evidence."""
    if entries and entries[-1].number == _number(record.head) and entries[-1].after != alone(record.champion):
        yield Flaw(object=line.key, problem="names another champion than its newest evidence")
    if not record.head and record.champion is not None:
        yield Flaw(object=line.key, problem="has a champion, and no evidence of it")


def mark_made(store: Store, line: Line, stem: str) -> None:
    """Mark that the champion's file names this entry. Durable."""
    store.put_if_absent(_mark(line, _number(stem)), stem.encode(), durable=True)


def check_newest(store: Store, line: Line, record: ChampionRecord) -> None:
    """See that a champion's file is the newest one, and agrees with its evidence: three small reads.

    Raises: StorageError: It is an older copy, or names another champion than its evidence.
    """
    path, number = f"{store.url}/{line.key}", _number(record.head)
    if store.exists(_mark(line, number + 1)):
        raise StorageError(path, f"is an older copy: decision {number + 1} has been made", RESTORE_FIX)
    if not record.head:
        return
    made = (store.get(_mark(line, number)) or b"").decode(errors="replace")
    if not made:
        mark_made(store, line, record.head)
    elif made != record.head:
        raise StorageError(path, f"names {record.head}, and decision {number} is {made}", RESTORE_FIX)
    if read_entry(store, line, record.head).after != alone(record.champion):
        raise StorageError(path, "names another champion than its newest evidence", RESTORE_FIX)


def _made_outside(store: Store, line: Line, record: ChampionRecord, stem: str) -> str:
    """Why an entry outside the chain should be in it; empty for one that lost, or that a kill cut short."""
    number, newest = _number(stem), _number(record.head)
    made = (store.get(_mark(line, number)) or b"").decode(errors="replace")
    if number > newest + 1 or (number > newest and (made == stem or _is_told(store, line, stem))):
        return "is newer than the champion's file: that is an older copy"
    return "was made, and the chain is without it: it continues an older copy" if made == stem else ""


def _is_told(store: Store, line: Line, stem: str) -> bool:
    """Whether the sweep's folder has the verdict, or the decision: written after the champion's file."""
    entry = read_entry(store, line, stem)
    try:
        if entry.facts is not None:
            verdict = stored_verdict(store, entry.sweep_id, entry.gate)
            return verdict is not None and verdict.to_json() == entry.facts.verdict.to_json()
        if entry.decision is not None:
            return stored_decision(store, entry.sweep_id, entry.gate) == entry.decision
    except StorageError:
        pass  # `raysweep verify` says what is wrong with it
    return False


def _marks_alone(store: Store, record: ChampionRecord, marks: list[str], listed: list[str]) -> Iterator[Flaw]:
    """Marks of decisions after the champion's file whose entries are gone."""
    stems = {_stem(key) for key in listed}
    for key in marks:
        if _number(_stem(key)) > _number(record.head):
            stem = (store.get(key) or b"").decode(errors="replace")
            if stem not in stems:
                yield Flaw(object=key, problem="is newer than the champion's file: that is an older copy")


def _flaw(store: Store, key: str) -> str:
    data = store.get(key)
    return "is missing" if data is None else _changed(_stem(key), data)


def _changed(stem: str, data: bytes) -> str:
    is_same = stem.partition("-")[2] == hashlib.sha256(data).hexdigest()
    return "" if is_same else "is not as it was written: its SHA-256 is another than the one in its name"


def _decode(store: Store, data: bytes) -> Evidence:
    """Raises ValueError."""
    fields: Any = orjson.loads(data)
    version = fields.get("format_version") if isinstance(fields, dict) else None
    if version != FORMAT_VERSION:
        raise ValueError(other_format(version, FORMAT_VERSION, name="format_version"))
    try:
        entry = Evidence.model_validate(fields)
    except ValidationError as error:
        raise ValueError(f"is damaged ({error.errors()[0]['msg']})") from error
    return _with_uris(entry, lambda reference: to_uri(store.url, reference))


def _with_uris(entry: Evidence, change: Change) -> Evidence:
    update: dict[str, object] = {
        name: champion_with(champion, change)
        for name, champion in (("before", entry.before), ("after", entry.after))
        if champion is not None
    }
    if entry.facts is not None:
        verdict = gate_with(entry.facts.verdict, change)
        update["facts"] = entry.facts.model_copy(update={"verdict": verdict})
    return entry.model_copy(update=update)


def _key(line: Line, stem: str) -> str:
    return f"{line.evidence}/{stem}.json"


def _mark(line: Line, number: int) -> str:
    return f"{line.decided}/{number:06d}"


def _stem(key: str) -> str:
    return key.rpartition("/")[2].removesuffix(".json")


def _number(stem: str) -> int:
    digits = stem.partition("-")[0]
    return int(digits) if digits.isdecimal() else 0
