"""The checkpoint that a training run starts from: a sweep's, or any folder of a store."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raysweep.errors import SpecError
from raysweep.storage.checkpoints.store import CheckpointStore, open_checkpoint
from raysweep.storage.objects.opening import open_store

_OF_A_SWEEP = re.compile(r"(?P<path>.+)/(?P<sweep_id>[^/]+)/checkpoints/[^/]+/\d+/?$")

FIELD = "warm_start_checkpoint"


def check_warm_start(uri: str) -> None:
    """Refuse, before anything starts, a checkpoint that is not there.

    Raises: SpecError, StorageError.
    """
    found = _OF_A_SWEEP.match(uri)
    if found:
        is_there = CheckpointStore.at(found["path"], found["sweep_id"]).exists(uri)
    elif (folder := _local_folder(uri)) is not None:
        is_there = folder.is_dir()
    else:
        is_there = next(iter(open_store(uri).list()), None) is not None
    if not is_there:
        raise SpecError(FIELD, f"there is no checkpoint at {uri!r}", "give outcome.best.checkpoint_uri")


@contextmanager
def open_warm_start(uri: str) -> Iterator[Path]:
    """A local directory with the checkpoint in it; read it only.

    A sweep's checkpoint is verified against its manifest. Anything else is taken for a folder: a local one is
    given as it is, a remote one is copied.

    Raises:
        CheckpointDamagedError, StorageError: It cannot be restored.
    """
    if _OF_A_SWEEP.match(uri):
        with open_checkpoint(uri, follows=True) as folder:
            yield folder
    elif (local := _local_folder(uri)) is not None:
        yield local
    else:
        with tempfile.TemporaryDirectory(prefix="raysweep-warm-start-") as copy:
            _copy(uri, Path(copy))
            yield Path(copy)


def _local_folder(uri: str) -> Path | None:
    if "://" in uri and not uri.startswith("file://"):
        return None
    return Path(uri.removeprefix("file://")).expanduser().absolute()


def _copy(uri: str, target: Path) -> None:
    store = open_store(uri)
    for info in store.list():
        path = target / info.key
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for chunk in store.get_chunks(info.key) or ():
                file.write(chunk)
