"""One training run's folder: its spec, who runs it, how it ended. Ray Train's own files lie beside these.

train.json             the frozen spec, its digest and key; written once
attempts/000001.json   one for each call that ran; a conditional put, so a number is given once
train_progress.json    the holder's heartbeat
train_outcome.json     the end; written once
checkpoint_…/          Ray Train's checkpoints; checkpoint_manager_snapshot.json says which of them count
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from raysweep.errors import CheckpointDamagedError, SpecChangedError, SpecError, StorageError, SweepHeldError
from raysweep.outcome import SweepProgress, TrainOutcome
from raysweep.spec import TrainSpec
from raysweep.storage.holder import current_holder, holder_state
from raysweep.storage.store import Store

FORMAT_VERSION = 1
SNAPSHOT = "checkpoint_manager_snapshot.json"

_SAFE = ("max_failures", "tags")
_FREE = ("completed", "failed", "cancelled")


class RunFolder:
    """`<storage_path>/<run_id>/`."""

    def __init__(self, store: Store, run_id: str) -> None:
        self.store = store
        self.run_id = run_id

    @property
    def uri(self) -> str:
        """Where the run lies, for people and outcomes."""
        return f"{self.store.url}/{self.run_id}"

    def freeze_spec(self, spec: TrainSpec, key: str) -> None:
        """Write train.json, or check that this spec is the one in it.

        Raises: SpecChangedError with one line for each difference, StorageError.
        """
        now = spec.to_dict()
        record = {"format": FORMAT_VERSION, "digest": spec.digest(), "key": key, "spec": now}
        if self.store.put_if_absent(self._key("train.json"), orjson.dumps(record), durable=True):
            return
        was = self._read_json("train.json")["spec"]
        diff = tuple(_differences(was, now))
        if diff:
            raise SpecChangedError(self.run_id, diff)

    def read_outcome(self) -> TrainOutcome | None:
        """How the run ended; None before its end. Raises: StorageError if it is damaged."""
        data = self.store.get(self._key("train_outcome.json"))
        if data is None:
            return None
        try:
            return TrainOutcome.from_json(data)
        except SpecError as error:
            raise self._damaged("train_outcome.json", str(error)) from error

    def write_outcome(self, outcome: TrainOutcome) -> None:
        """Write how the run ended, once: an earlier one stays."""
        data = outcome.to_json().encode()
        self.store.put_if_absent(self._key("train_outcome.json"), data, durable=True)

    def claim(self, now: float) -> int:
        """Take the run for this process; returns the number of the attempt, from 1.

        Raises: SweepHeldError while another live process has it.
        """
        progress = self.read_progress()
        if progress is not None and progress.status not in _FREE and holder_state(progress, now) == "alive":
            raise SweepHeldError(self.run_id, progress.holder)
        number = self.newest_attempt() + 1
        record = {
            "format": FORMAT_VERSION,
            "attempt": number,
            "at": now,
            "holder": current_holder().model_dump(),
        }
        if not self.store.put_if_absent(self._attempt_key(number), orjson.dumps(record), durable=True):
            raise SweepHeldError(self.run_id, "a process that started at the same moment")
        return number

    def newest_attempt(self) -> int:
        """The number of the last attempt; 0 before the first."""
        names = [info.key.rsplit("/", 1)[-1] for info in self.store.list(self._key("attempts"))]
        return max((int(name.removesuffix(".json")) for name in names), default=0)

    def read_progress(self) -> SweepProgress | None:
        """The last heartbeat. One that cannot be read counts as absent: the next comes soon."""
        data = self.store.get(self._key("train_progress.json"))
        if data is None:
            return None
        try:
            return SweepProgress.from_json(data)
        except SpecError:
            return None

    def write_progress(self, progress: SweepProgress) -> None:
        """Replace the heartbeat."""
        self.store.put(self._key("train_progress.json"), progress.to_json().encode())

    def check_snapshot(self) -> None:
        """Refuse to go on from checkpoints that cannot be told apart any more; never start over silently.

        Raises: CheckpointDamagedError naming the file.
        """
        data = self.store.get(self._key(SNAPSHOT))
        if data is None:
            return
        try:
            orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise CheckpointDamagedError(
                f"{self.uri}/{SNAPSHOT}",
                f"is no JSON ({error})",
                "restore it from a backup, or use another key to start over",
            ) from error

    def withdraw(self) -> None:
        """Delete a run that never began, train.json last."""
        last = self._key("train.json")
        keys = sorted((info.key for info in self.store.list(self.run_id)), key=lambda key: key == last)
        for key in keys:
            self.store.delete(key)

    def delete_unused_checkpoints(self, used: frozenset[str]) -> None:
        """Delete checkpoint folders that no report of the finished run refers to."""
        for name in self.store.list_folders(self.run_id):
            if name.startswith("checkpoint_") and name not in used:
                self.store.delete(*[info.key for info in self.store.list(self._key(name))])

    def _read_json(self, name: str) -> Any:
        try:
            return orjson.loads(self.store.get(self._key(name)) or b"")
        except orjson.JSONDecodeError as error:
            raise self._damaged(name, str(error)) from error

    def _damaged(self, name: str, problem: str) -> StorageError:
        return StorageError(
            f"{self.uri}/{name}", f"is damaged ({problem})", "use another key to start a new run"
        )

    def _attempt_key(self, number: int) -> str:
        return self._key(f"attempts/{number:06d}.json")

    def _key(self, name: str) -> str:
        return f"{self.run_id}/{name}"


def _differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    before, after = dict(_leaves(was)), dict(_leaves(now))
    for field in {**before, **after}:
        if before.get(field) != after.get(field) and field.split(".")[0] not in (*_SAFE, "storage_path"):
            yield f"{field}: {_shown(before, field)} -> {_shown(after, field)}"


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif value != {}:
        yield path, value


def _shown(fields: Mapping[str, Any], field: str) -> str:
    return orjson.dumps(fields[field]).decode() if field in fields else "(absent)"
