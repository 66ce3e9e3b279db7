"""The documents of a training run. The rest of its folder is that of a sweep of one trial.

train.json             the record of the sweep, with the training's own spec
data.json              the digests of the data at the first start
train_outcome.json     the end of a training that completed; written once
model_card.json        how the model came to be, made from the above after the end
checkpoint_…/          the workers' parts of a checkpoint. Where user code uploads by itself, the files
model_000001/          the last checkpoint as plain files
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import orjson

from raysweep.documents.stored_paths import checkpoint_in, to_reference, to_uri
from raysweep.errors import SpecChangedError, SpecError, StorageError
from raysweep.outcome import TrainOutcome
from raysweep.outcome.ended import status_of_training
from raysweep.outcome.places import training_with
from raysweep.runs.catalog import keep_run
from raysweep.storage.formats import OTHER_FIX, other_format
from raysweep.storage.objects.parallel import folders_with
from raysweep.storage.objects.sealed import unseal
from raysweep.storage.objects.store import Store

if TYPE_CHECKING:  # most looks need no models of specs
    from raysweep.specs import TrainSpec
    from raysweep.specs.changes import Difference

FORMAT_VERSION = 1
"""Of train.json."""
TRAIN_OUTCOME: Final = "train_outcome.json"
CHECKPOINT_OWNER: Final = "00000"
"""The trial whose checkpoints a training's are."""

_SAFE = ("failure", "stop", "tags", "callbacks")


class RunFolder:
    """`<storage_path>/<run_id>/`."""

    def __init__(self, store: Store, run_id: str) -> None:
        self.store = store
        self.run_id = run_id

    @property
    def uri(self) -> str:
        """The address of the run, for people and outcomes."""
        return f"{self.store.url}/{self.run_id}"

    def check_spec(self, spec: TrainSpec) -> None:
        """Is this spec the one in train.json, if there is one?

        Raises: SpecChangedError with one line for each difference, StorageError.
        """
        if not self.store.exists(self._key("train.json")):
            return
        diff = tuple(_differences(self._read_json("train.json")["spec"], spec.to_dict()))
        if diff:
            raise SpecChangedError(self.run_id, diff)

    def read_spec(self) -> TrainSpec | None:
        """The spec in train.json; None where there is none. Raises: StorageError if it is damaged."""
        if not self.store.exists(self._key("train.json")):
            return None
        from raysweep.specs import TrainSpec

        return TrainSpec.from_any(self._read_json("train.json")["spec"])

    def read_key(self) -> str:
        """The key in train.json; empty where there is none. Raises: StorageError if it is damaged."""
        if not self.store.exists(self._key("train.json")):
            return ""
        return str(self._read_json("train.json").get("key", ""))

    def has(self, spec: TrainSpec) -> bool:
        """True if there is a run, of this spec. Raises: StorageError."""
        try:
            self.check_spec(spec)
        except SpecChangedError:
            return False
        return self.store.exists(self._key("train.json"))

    def read_outcome(self) -> TrainOutcome | None:
        """The outcome of the run; None before its end. Raises: StorageError if it is damaged."""
        data = self.store.get(self._key(TRAIN_OUTCOME))
        if data is None:
            return None
        try:
            return self.located(TrainOutcome.from_json(data))
        except SpecError as error:
            raise self.damaged(TRAIN_OUTCOME, str(error)) from error

    def write_outcome(self, outcome: TrainOutcome) -> None:
        """Write how the run ended, once, and what lists show of it: an earlier one stays."""
        key, data = self._key(TRAIN_OUTCOME), self.relative(outcome).to_json().encode()
        if self.store.put_if_absent(key, data, durable=True):
            run = status_of_training(outcome, uri=outcome.uri, now=0.0)
            with suppress(StorageError):
                keep_run(self.store, run, key)

    def relative(self, outcome: TrainOutcome) -> TrainOutcome:
        """As it is stored: what it names of this folder is relative to it."""
        relative = training_with(outcome, lambda uri: to_reference(self.uri, uri))
        return _from(relative, lambda uri: to_reference(self.store.url, uri))

    def located(self, outcome: TrainOutcome) -> TrainOutcome:
        """With all that it names where it is now: the store may have been moved, or have several names."""
        found = training_with(outcome, lambda reference: to_uri(self.uri, reference))
        found = _from(found, lambda reference: to_uri(self.store.url, reference))
        return found.model_copy(update={"uri": self.uri}) if found.uri else found

    def write_card(self, card: Mapping[str, Any]) -> None:
        """Write the model card, once. Raises: StorageError."""
        data = orjson.dumps(card, option=orjson.OPT_INDENT_2)
        self.store.put_if_absent(self._key("model_card.json"), data)

    def get_versioned(self, name: str) -> tuple[bytes, str] | None:
        """An object of the folder and its version, for `put_if_version`; None if there is none."""
        return self.store.get_versioned(self._key(name))

    def put_if_version(self, name: str, data: bytes, version: str | None) -> bool:
        """Replace an object of the folder if it still has this version (None: if there is none)."""
        return self.store.put_if_version(self._key(name), data, version)

    def delete_unused_checkpoints(self, used: frozenset[str]) -> None:
        """Delete folders of checkpoints and models but those that the finished run refers to."""
        for name in self.store.list_folders(self.run_id):
            if name.startswith(("checkpoint_", "model_")) and name not in used:
                self.store.delete(*[info.key for info in self.store.list(self._key(name))])

    def _read_json(self, name: str) -> Any:
        whole = unseal(self.store.get(self._key(name)) or b"")
        if whole is None:
            raise self.damaged(name, "its hash is wrong")
        try:
            fields = orjson.loads(whole)
        except orjson.JSONDecodeError as error:
            raise self.damaged(name, str(error)) from error
        if not isinstance(fields, dict):
            raise self.damaged(name, "no JSON object")
        if fields.get("format") != FORMAT_VERSION:
            writer = fields.get("raysweep_version")
            problem = other_format(fields.get("format"), FORMAT_VERSION, writer=writer)
            raise StorageError(f"{self.uri}/{name}", problem, OTHER_FIX)
        return fields

    def damaged(self, name: str, problem: str) -> StorageError:
        """The error to raise where an object of the folder cannot be read."""
        return StorageError(
            f"{self.uri}/{name}", f"is damaged ({problem})", "use another key to start a new run"
        )

    def _key(self, name: str) -> str:
        return f"{self.run_id}/{name}"


def list_trainings(store: Store) -> list[str]:
    """The ids of the training runs at a storage path, sorted."""
    return folders_with(store, "train.json")


def read_warm_start(store: Store, run_id: str) -> str:
    """The checkpoint that a training starts from, as a reference within its store; empty where there is none.

    That of a training whose spec is damaged is none, as it cannot be resumed. Raises: StorageError.
    """
    try:
        spec = orjson.loads(unseal(store.get(f"{run_id}/train.json") or b"{}") or b"{}")["spec"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""
    uri = spec.get("warm_start_checkpoint") if isinstance(spec, dict) else None
    return checkpoint_in(uri) if isinstance(uri, str) else ""


def _from(outcome: TrainOutcome, change: Callable[[str], str]) -> TrainOutcome:
    """The outcome with the place of the sweep that it comes from changed."""
    source = outcome.source
    if source is None:
        return outcome
    return outcome.model_copy(update={"source": source.model_copy(update={"sweep": change(source.sweep)})})


def _differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    from raysweep.specs.bridge import as_asked
    from raysweep.specs.changes import differences

    for each in differences(as_asked(was), as_asked(now)):
        if _are_same(each):
            continue
        if each.field.split(".")[0] not in (*_SAFE, "storage_path"):
            yield str(each)


def _are_same(each: Difference) -> bool:
    """True if both are the same in other words."""
    from raysweep.documents.code.trainable import are_same

    if each.field == "warm_start_checkpoint":  # the store may have been moved, or have several names
        found = checkpoint_in(str(each.was))
        return bool(found) and found == checkpoint_in(str(each.now))
    is_both = isinstance(each.was, str) and isinstance(each.now, str)
    return each.field == "trainable" and is_both and are_same(each.was, each.now)
