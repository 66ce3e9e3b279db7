"""The store for checkpoints of a Ray Train V2 worker, to write and to read. Imports Ray Train.

All ways of reporting (`ray.train.report`, ours, callbacks of frameworks, in the background or not) come
through the `StorageContext` of the worker's context. It is changed in one process, whose only task is to
run one training function.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow.fs
from ray.train import Checkpoint
from ray.train.v2._internal.execution.context import get_train_context


class RestoredCheckpoint(Checkpoint):
    """One that has to be fetched before it can be read: that happens once its path is asked for.

    Args:
        name: What it is called in messages.
        restore: Fetches it, and says where it lies from then on.
        opened: Fetches it for as long as its block lasts.
    """

    def __init__(
        self, name: str, restore: Callable[[], str], opened: Callable[[], AbstractContextManager[Path]]
    ) -> None:
        self._name = name
        self.filesystem = pyarrow.fs.LocalFileSystem()
        self.opened = opened
        self._restore = restore
        self._uuid = uuid.uuid4()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name})"

    @property
    def path(self) -> str:  # type: ignore[override]
        """The folder that it is restored into, of this worker's."""
        return self._restore()


def newest_name() -> str | None:
    """The name, in the run's folder, of what this worker has stored last or began from."""
    context: Any = get_train_context()
    checkpoint = type(context).get_checkpoint(context)
    if checkpoint is None:
        return None
    return str(context.storage_context.extract_checkpoint_dir_name_from_path(checkpoint.path))


def keep_checkpoints(
    *,
    make_name: Callable[[], str],
    persist: Callable[[Path, str], bool],
    find: Callable[[str], RestoredCheckpoint | None],
) -> None:
    """From now on this worker's checkpoints are stored and found by these.

    Args:
        make_name: The name of the next checkpoint; that of rank 0 counts for all ranks.
        persist: Stores a directory under a name; False: Ray Train is to copy it.
        find: What gives the files of a checkpoint back, by name; None: Ray Train has them.
    """
    context: Any = get_train_context()
    storage: Any = context.storage_context
    copy = storage.persist_current_checkpoint

    def store(checkpoint: Any, name: str) -> Any:
        storage._check_validation_file()
        with checkpoint.as_directory() as folder:
            is_stored = persist(Path(folder), name)
        if not is_stored:
            return copy(checkpoint, name)
        path = storage.build_checkpoint_path_from_name(name)
        return Checkpoint(path=path, filesystem=storage.storage_filesystem)

    def get_checkpoint() -> Any:
        name = newest_name()
        found = None if name is None else find(name)
        return found if found is not None else type(context).get_checkpoint(context)

    storage.make_default_checkpoint_dir_name = make_name
    storage.persist_current_checkpoint = store
    context.get_checkpoint = get_checkpoint
