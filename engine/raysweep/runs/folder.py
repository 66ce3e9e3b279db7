"""One sweep's folder in the store: its documents. Journal, snapshots and checkpoints have own readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

import orjson

from raysweep.errors import SpecError, StorageError, SweepDamagedError
from raysweep.outcome import Cancellation, Standing, SweepOutcome, SweepProgress
from raysweep.runs.catalog import drop_run, keep_run
from raysweep.runs.snapshots import SnapshotFolder
from raysweep.runs.stored_outcome import decode_head, encode_outcome, outcome_of, standing_of
from raysweep.specs.identity import is_id_of
from raysweep.storage.formats import OTHER_FIX, other_format, this_version
from raysweep.storage.journal.journal import Journal
from raysweep.storage.journal.names import SegmentObject
from raysweep.storage.journal.segment import RESTORE_FIX
from raysweep.storage.objects.identity import mark_store
from raysweep.storage.objects.parallel import folders_with
from raysweep.storage.objects.retries import retrying
from raysweep.storage.objects.sealed import seal, unseal
from raysweep.storage.objects.store import Store

FORMAT_VERSION = 1
"""Of sweep.json: raise it with any change after which an older version would misread the folder."""

OUTCOME_GIVE_UP_AFTER_S = 600.0
"""The limit for the tries to write the outcome: as long as for the journal's records before it."""

SWEEP: Final = "sweep.json"
TRAIN: Final = "train.json"
RECORDS: Final = (SWEEP, TRAIN)
"""The object with the record of a run, by its kind."""
OUTCOME: Final = "outcome.json"
ENDED: Final = ("outcome.json", "trials-*.json")
"""The objects of a sweep's end. The catalog of its name has a copy of its row."""

_REBUILD_FIX = "`raysweep verify --repair` writes it anew from the journal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """A process began to put a sweep aside (`target` says where to), or to remove it; it is not whole now."""

    by: str
    target: str = ""

    @property
    def what(self) -> str:
        """As a participle."""
        return "put aside" if self.target else "removed"

    @property
    def verb(self) -> str:
        """The command that does it."""
        return "restart" if self.target else "rm"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRecord:
    """The content of sweep.json: the frozen spec and where it came from."""

    digest: str
    key: str
    seed: int
    spec: Mapping[str, Any]
    """The spec as `SweepSpec.to_json` makes it, decoded."""
    scheduled_at: float | None = None
    """The scheduled time, in UTC seconds: a deadline like `06:00 Europe/Berlin` comes after it."""
    warm: Mapping[str, Any] | None = None
    """The warm start of the sweep from earlier ones, if its spec asked for that."""
    train: Mapping[str, Any] | None = None
    """Of a training, which is a sweep of one trial: its own spec, decoded."""
    leaving: Leaving | None = None
    """Set while it is moved out of its key's way, which no other process may see half done."""


class SweepFolder:
    """`<storage_path>/<sweep_id>/`. Reads return None for what is not there.

    A training is a sweep of one trial whose record lies in train.json, in the place of sweep.json.
    """

    def __init__(self, store: Store, sweep_id: str) -> None:
        self.store = store
        self.sweep_id = sweep_id

    @property
    def uri(self) -> str:
        """The address of the sweep, for people and outcomes."""
        return f"{self.store.url}/{self.sweep_id}"

    @property
    def snapshots(self) -> SnapshotFolder:
        """The snapshots of its state."""
        return SnapshotFolder(self.store, self.sweep_id)

    def journal(self) -> Journal:
        """A reader at the start of the sweep's journal."""
        return Journal.open(self.store, self.sweep_id)

    def read_spec(self) -> SweepRecord | None:
        """The record of the sweep's start. Raises: SweepDamagedError."""
        for name in RECORDS:
            fields = self._read_json(name)
            if fields is not None:
                return self._record(name, fields)
        return None

    def _record(self, name: str, fields: dict[str, Any]) -> SweepRecord:
        found, writer = fields.get("format"), fields.get("raysweep_version")
        if found != FORMAT_VERSION or writer is None:
            problem = other_format(found, FORMAT_VERSION, writer=writer or "before 0.1.0")
            raise SweepDamagedError(self.uri_of(name), problem, OTHER_FIX)
        is_training = name == TRAIN
        try:
            return SweepRecord(
                digest=fields["digest"],
                key=fields["key"],
                seed=fields["seed"],
                spec=fields["sweep" if is_training else "spec"],
                scheduled_at=fields.get("scheduled_at"),
                warm=fields.get("warm"),
                train=fields["spec"] if is_training else None,
                leaving=Leaving(**fields["leaving"]) if "leaving" in fields else None,
            )
        except KeyError as error:
            raise SweepDamagedError(self.uri_of(name), f"has no {error}", RESTORE_FIX) from error

    def check_is_there(self, claim: int | None = None) -> None:
        """For the process that runs the sweep: else its writes would make a new folder that cannot be read.

        Args:
            claim: The number of the journal segment that is this process's claim; no compaction takes that.

        Raises:
            SweepDamagedError: sweep.json, or that segment, is gone.
        """
        if not any(self.store.exists(self._key(name)) for name in RECORDS):
            problem = "is gone: the sweep's folder was deleted, moved or unmounted while the sweep ran"
            fix = "put the folder back, and run it again with the same key: it continues from its journal"
            raise SweepDamagedError(self.uri_of("sweep.json"), problem, fix)
        if claim is not None:
            name = f"journal/{SegmentObject(first=claim, last=claim).name}"
            if not self.store.exists(self._key(name)):
                raise lost_part(self.uri_of(name))

    def write_spec_if_absent(self, record: SweepRecord) -> bool:
        """Write sweep.json unless there is one; False if there was."""
        mark_store(self.store)
        name = name_of(record)
        is_new = self.store.put_if_absent(self._key(name), encode_spec(record), durable=True)
        if is_new:
            with suppress(StorageError):  # of one that was deleted by other means
                drop_run(self.store, self.sweep_id)
        return is_new

    def replace_spec(self, record: SweepRecord) -> None:
        """Write sweep.json anew, after a change that is declared safe. Only the holder may."""
        self.store.put(self._key(name_of(record)), encode_spec(record), durable=True)

    def read_progress(self) -> SweepProgress | None:
        """The live status. One that cannot be read counts as absent: it is written again every 2 s."""
        data = self.store.get(self._key("progress.json"))
        whole = unseal(data) if data is not None else None
        try:
            return SweepProgress.from_json(whole) if whole is not None else None
        except SpecError:
            return None

    def write_progress(self, progress: SweepProgress) -> None:
        """Replace the live status. Not synced to disk: it is rewritten anyway."""
        self.store.put(self._key("progress.json"), seal(progress.to_json().encode()))

    def read_cancellation(self) -> Cancellation | None:
        """The newest request to cancel, acted upon or not. One that cannot be read counts as absent."""
        data = self.store.get(self._key("cancel.json"))
        if data is None:
            return None
        try:
            return Cancellation.from_json(data)
        except SpecError:
            return None

    def write_cancellation(self, cancellation: Cancellation) -> None:
        """Ask the process that runs the sweep to cancel it: seen at the next heartbeat.

        A controller that starts later passes it over.
        """
        self.store.put(self._key("cancel.json"), cancellation.to_json().encode(), durable=True)

    def has_outcome(self) -> bool:
        """True if the sweep has an outcome, readable or not. Raises: StorageError."""
        return self.store.exists(self._key(OUTCOME))

    def read_standing(self) -> Standing | None:
        """The end of the sweep, without its trials; None before its end. Raises: SweepDamagedError."""
        data = self.store.get(self._key(OUTCOME))
        return standing_of(self._head(data), self.uri) if data is not None else None

    def read_outcome(self) -> SweepOutcome | None:
        """The outcome of the sweep. Raises: SweepDamagedError."""
        data = self.store.get(self._key(OUTCOME))
        while data is not None:
            fields = self._head(data)
            trials = self.store.get(self._key(fields["trials_object"]))
            if trials is not None:
                return self._outcome(fields, trials)
            before, data = data, self.store.get(self._key(OUTCOME))
            if data == before:  # else it was replaced between the two reads
                name = self.uri_of(fields["trials_object"])
                raise SweepDamagedError(name, "is missing, and outcome.json names it", _REBUILD_FIX)
        return None

    def _head(self, data: bytes) -> dict[str, Any]:
        try:
            return decode_head(data)
        except SpecError as error:
            problem = f"is damaged ({error.problem})"
            raise SweepDamagedError(self.uri_of(OUTCOME), problem, _REBUILD_FIX) from error

    def _outcome(self, fields: dict[str, Any], trials: bytes) -> SweepOutcome:
        try:
            return outcome_of(fields, trials, self.uri)
        except SpecError as error:
            problem = f"is damaged ({error.problem})"
            raise SweepDamagedError(self.uri_of(fields["trials_object"]), problem, _REBUILD_FIX) from error

    def write_outcome_if_absent(
        self, outcome: SweepOutcome, *, give_up_after_s: float = OUTCOME_GIVE_UP_AFTER_S
    ) -> bool:
        """Write the trials, then outcome.json, once; False if there is one. An outage is waited out.

        The live status goes: the head says more.
        """
        stored, put = encode_outcome(outcome, self.uri), retrying(give_up_after_s)
        put(self.store.put, self._key(stored.trials_name), stored.trials, durable=True)
        is_new: bool = put(self.store.put_if_absent, self._key(OUTCOME), stored.head, durable=True)
        with suppress(StorageError):  # what is left over, or not listed, harms nothing
            if is_new:
                self._list_end(stored.standing)
                self.store.delete(self._key("progress.json"))
            else:
                self._drop_trials(stored.trials_name)
        return is_new

    def _list_end(self, standing: Standing) -> None:
        """Put how the sweep ended where lists look first; a training is put there as one, by its own outcome.

        Raises: StorageError.
        """
        if not is_id_of(standing.run_id, "train", standing.key):
            keep_run(self.store, standing, self._key(OUTCOME))

    def _drop_trials(self, name: str) -> None:
        """Delete the trials of an outcome that is not, or no longer, the sweep's."""
        head = self.store.get(self._key(OUTCOME))
        if head is not None and self._head(head)["trials_object"] != name:
            self.store.delete(self._key(name))

    def mend_outcome(self, mended: Callable[[SweepOutcome], SweepOutcome]) -> None:
        """Replace the outcome where that makes a difference; not where another process changes it meanwhile.

        One that is damaged stays as it is. Raises: StorageError.
        """
        found = self.store.get_versioned(self._key(OUTCOME))
        try:
            outcome = self.read_outcome()
            before = self._head(found[0])["trials_object"] if found is not None else ""
        except SweepDamagedError:
            return
        if found is None or outcome is None:
            return
        outcome = mended(outcome)
        stored = encode_outcome(outcome, self.uri)
        if stored.head == found[0]:
            return
        if stored.trials_name != before:
            self.store.put(self._key(stored.trials_name), stored.trials, durable=True)
        is_replaced = self.store.put_if_version(self._key(OUTCOME), stored.head, found[1])
        with suppress(StorageError):
            if is_replaced:
                self._list_end(stored.standing)
            self._drop_trials(before if is_replaced else stored.trials_name)

    def write_text(self, name: str, text: str) -> str:
        """Write a text beside the sweep's documents; returns its URI. `name` may hold folders."""
        self.store.put(self._key(name), text.encode())
        return self.uri_of(name)

    def uri_of(self, name: str) -> str:
        """The URI of an object of this sweep."""
        return f"{self.store.url}/{self._key(name)}"

    def archive_outcome(self) -> None:
        """Put outcome.json aside as `outcome-<generation>.json`: the sweep continues, and will have another.

        For the holder, and for who has just submitted the job that will be. Safe to repeat after a crash
        between the two steps.
        """
        head = self.store.get(self._key(OUTCOME))
        if head is None:
            return
        name = f"outcome-{self._head(head)['generation']:06d}.json"
        self.store.put_if_absent(self._key(name), head, durable=True)
        drop_run(self.store, self.sweep_id)
        self.store.delete(self._key(OUTCOME))
        drop_run(self.store, self.sweep_id)

    def _read_json(self, name: str) -> dict[str, Any] | None:
        data = self.store.get(self._key(name))
        if data is None:
            return None
        whole = unseal(data)
        if whole is None:
            raise SweepDamagedError(self.uri_of(name), "is damaged (its hash is wrong)", RESTORE_FIX)
        try:
            fields = orjson.loads(whole)
        except orjson.JSONDecodeError as error:
            raise SweepDamagedError(self.uri_of(name), f"is damaged ({error})", RESTORE_FIX) from error
        if not isinstance(fields, dict):
            raise SweepDamagedError(self.uri_of(name), "is damaged (no JSON object)", RESTORE_FIX)
        return fields

    def _key(self, name: str) -> str:
        return f"{self.sweep_id}/{name}"


def lost_part(path: str) -> SweepDamagedError:
    """A part of the sweep's folder is gone that nothing of raysweep deletes."""
    problem = "is gone: parts of the sweep's folder were deleted or moved while the sweep ran"
    fix = (
        "keep what cleans up files by age away from the storage path; put the part back, and run it again"
        " with the same key; `raysweep verify` names all that is missing"
    )
    return SweepDamagedError(path, problem, fix)


def list_sweeps(store: Store) -> list[str]:
    """The ids of the sweeps at a storage path, sorted."""
    return folders_with(store, "sweep.json")


def encode_spec(record: SweepRecord) -> bytes:
    """The content of sweep.json."""
    fields: dict[str, Any] = {
        "format": FORMAT_VERSION,
        "raysweep_version": this_version(),
        "digest": record.digest,
        "key": record.key,
        "seed": record.seed,
    }
    if record.scheduled_at is not None:
        fields["scheduled_at"] = record.scheduled_at
    if record.warm is not None:
        fields["warm"] = dict(record.warm)
    if record.leaving is not None:
        fields["leaving"] = asdict(record.leaving)
    specs = {"spec": dict(record.spec)}
    if record.train is not None:
        specs = {"spec": dict(record.train), "sweep": dict(record.spec)}
    return seal(orjson.dumps(fields | specs, option=orjson.OPT_INDENT_2))


def name_of(record: SweepRecord) -> str:
    """The object that holds the record."""
    return TRAIN if record.train is not None else SWEEP
