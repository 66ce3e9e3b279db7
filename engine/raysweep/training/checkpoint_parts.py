"""The worker's side of a training's checkpoints: each worker stores its files and leaves its part.

    checkpoint_<number>-<token>/part-<rank>.json   what one worker has stored of a checkpoint; Ray Train knows
                                                   the checkpoint by this folder
    checkpoints/00000/<number>-<token>/<hash>      what it stored

`checkpoints` joins the parts, and the trial commits them. A folder that user code names itself
(`checkpoint_dir_name`, `checkpoint_upload_fn`) is plain and is read as Ray Train reads it.
"""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from raysweep.errors import CheckpointDamagedError
from raysweep.runs.training import CHECKPOINT_OWNER
from raysweep.storage.checkpoints.manifest import Manifest, encode_manifest
from raysweep.storage.checkpoints.store import GIVE_UP_AFTER_S, CheckpointStore
from raysweep.storage.objects.retries import retrying
from raysweep.storage.objects.sealed import encode_sealed
from raysweep.storage.objects.store import Store

_NAME: Final = re.compile(r"checkpoint_(?P<number>[0-9]+)-(?P<token>[0-9a-f]{8})")
_LOOK_S: Final = 0.05


class CheckpointName(NamedTuple):
    """The name by which Ray Train knows a checkpoint of ours: a folder of the run."""

    number: int
    token: str

    def __str__(self) -> str:
        return f"checkpoint_{self.number}-{self.token}"

    @property
    def objects(self) -> str:
        """The folder of what it is the first to store."""
        return f"{self.number}-{self.token}"

    def part(self, rank: int) -> str:
        """The key at which the worker of this rank leaves its part."""
        return f"{self}/part-{rank:05d}.json"


def parse_name(text: str) -> CheckpointName | None:
    """The name of which `str(name)` was made; None for every other folder."""
    found = _NAME.fullmatch(text)
    return CheckpointName(int(found["number"]), found["token"]) if found else None


class Parts:
    """The parts of checkpoints that one worker stores and restores.

    Args:
        store: The storage of the run.
        run_id: The run.
        rank: The worker's.
        start: The name of what the run continues from, if there is anything.
        above: The numbers of its checkpoints are above this one.
        owner: The trial whose checkpoints they are.
    """

    def __init__(
        self,
        store: Store,
        run_id: str,
        rank: int,
        start: str | None,
        *,
        above: int,
        owner: str = CHECKPOINT_OWNER,
    ) -> None:
        self._checkpoints = CheckpointStore(store, run_id)
        self._run_id = run_id
        self._owner = owner
        self._rank = rank
        self._start = parse_name(start) if start is not None else None
        self._number = max(above, self._start.number if self._start is not None else 0)
        # Read at once: what it refers to stays until this worker has given a part, its manifest need not.
        self._start_manifest: Manifest | None = None
        if self._start is not None:
            self._start_manifest = self._checkpoints.read_manifest(self._uri(self._start))
        self._own: set[CheckpointName] = set()
        self._last: tuple[CheckpointName, Manifest] | None = None
        self._storing = 0
        self._lock = threading.Lock()
        self._restored: dict[CheckpointName, Path] = {}
        self._folder: Path | None = None

    def make_name(self) -> str:
        """The name of the next checkpoint. That of rank 0 counts; it makes one for each report."""
        with self._lock:
            self._number += 1
            return str(CheckpointName(self._number, secrets.token_hex(4)))

    def persist(self, folder: Path, text: str) -> bool:
        """Store what a directory holds as this worker's part; False where the name is none of ours.

        Raises: SpecError for a directory that cannot be kept, StorageError.
        """
        name = parse_name(text)
        if name is None:
            return False
        with self._lock:
            # Objects that several uploads refer to may be released before the last of them is committed.
            parent = self._find_parent(name) if not self._storing else None
            self._storing += 1
        try:
            part = self._checkpoints.store_part(self._owner, name.number, name.objects, folder, parent=parent)
            data = encode_sealed(encode_manifest(part))
            key = f"{self._run_id}/{name.part(self._rank)}"
            retrying(GIVE_UP_AFTER_S)(lambda: self._checkpoints.store.put(key, data, durable=True))
        finally:
            with self._lock:
                self._storing -= 1
        with self._lock:
            self._own.add(name)
            if self._last is None or self._last[0].number < name.number:
                self._last = name, part
        return True

    def _find_parent(self, name: CheckpointName) -> Manifest | None:
        """This worker's last part, or else what it began from, if that is older."""
        if self._last is not None:
            last, part = self._last
            return part if last.number < name.number else None
        if self._start is None or self._start.number >= name.number:
            return None
        return self._start_manifest

    def has(self, text: str) -> bool:
        """True if this is the name of a checkpoint in the store, and not of a plain folder."""
        return parse_name(text) is not None

    def restore(self, text: str) -> str:
        """The folder with the files of a checkpoint, until `close`; read only.

        Raises: CheckpointDamagedError, StorageError.
        """
        name = _known(text)
        with self._lock:
            if name not in self._restored:
                if self._folder is None:
                    self._folder = Path(tempfile.mkdtemp(prefix="raysweep-checkpoint-"))
                target = self._folder / str(name.number)
                self._fetch(name, target)
                self._restored[name] = target
            return str(self._restored[name])

    @contextmanager
    def opened(self, text: str) -> Iterator[Path]:
        """A folder with the files of a checkpoint, for as long as the block lasts.

        Raises: CheckpointDamagedError, StorageError.
        """
        with tempfile.TemporaryDirectory(prefix="raysweep-checkpoint-") as folder:
            target = Path(folder) / "checkpoint"
            self._fetch(_known(text), target)
            yield target

    def close(self) -> None:
        """Remove what was restored."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _fetch(self, name: CheckpointName, target: Path) -> None:
        if name in self._own:
            self._wait_until_committed(name)
        self._checkpoints.restore(self._uri(name), target)

    def _wait_until_committed(self, name: CheckpointName) -> None:
        """Wait for a checkpoint just reported: the controller commits it once all workers have reported."""
        give_up_at = time.monotonic() + GIVE_UP_AFTER_S
        while not self._checkpoints.exists(self._uri(name)):
            if time.monotonic() > give_up_at:
                problem = "it was reported, and is not committed yet"
                raise CheckpointDamagedError(
                    self._uri(name), problem, "see that all workers report equally often"
                )
            time.sleep(_LOOK_S)

    def _uri(self, name: CheckpointName) -> str:
        return self._checkpoints.uri(self._owner, name.number)


def _known(text: str) -> CheckpointName:
    name = parse_name(text)
    assert name is not None, f"{text} is not a checkpoint in the store"
    return name
