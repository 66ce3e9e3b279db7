"""The checkpoint that `raysweep.get_checkpoint` returns; Ray's checkpoints that `report` accepts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from os import PathLike

_kept: Final[list[AbstractContextManager[Path]]] = []
"""The folders of this attempt that Ray's objects name: no call says when they are no longer needed."""


class RestoredCheckpoint(AbstractContextManager[Path]):
    """A checkpoint to continue from: `with` it, for a local directory that is removed at its end.

    Or take it as `to_ray()`, for code that expects a `ray.train.Checkpoint`.
    """

    def __init__(
        self,
        opened: AbstractContextManager[Path],
        open_again: Callable[[], AbstractContextManager[Path] | None],
    ) -> None:
        self._next: AbstractContextManager[Path] | None = opened
        self._open_again = open_again
        self._entered: list[AbstractContextManager[Path]] = []
        self._folder: Path | None = None

    def __enter__(self) -> Path:
        if self._folder is not None:
            return self._folder
        opened = self._take()
        folder = opened.__enter__()
        self._entered.append(opened)
        return folder

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return self._entered.pop().__exit__(kind, error, traceback) if self._entered else None

    def to_ray(self) -> Any:
        """The checkpoint as a `ray.train.Checkpoint` (the same class is `ray.tune.Checkpoint`), verified.

        Its directory is on this node, and is removed when the attempt ends: `to_directory()` copies it.

        Raises:
            CheckpointDamagedError: What is stored does not match its manifest. ImportError: There is no Ray.
        """
        if self._folder is None:
            _kept.append(self._take())
            self._folder = _kept[-1].__enter__()
        from ray.train import Checkpoint

        return Checkpoint.from_directory(str(self._folder))

    def _take(self) -> AbstractContextManager[Path]:
        """One that was not entered yet."""
        opened, self._next = self._next or self._open_again(), None
        assert opened is not None, "where there was a checkpoint, there is one"
        return opened


def end_attempt() -> None:
    """Remove the folders that Ray's objects name."""
    if _kept:
        with ExitStack() as stack:
            for folder in _kept:
                stack.push(folder)
            _kept.clear()


@contextmanager
def local_folder(checkpoint: Any) -> Iterator[str | PathLike[str]]:
    """A directory of a given checkpoint: a path as it is, one of Ray's wherever it lies.

    A `ray.train.Checkpoint` in a remote storage is fetched into a temporary directory for the while.
    """
    # Ray's have a `__fspath__`, too: it says that they have none.
    as_directory = getattr(checkpoint, "as_directory", None)
    if as_directory is None:
        yield checkpoint
        return
    with as_directory() as folder:
        yield folder


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder for a new checkpoint, gone at the end: for who has stored it before `report` returns."""
    with tempfile.TemporaryDirectory(prefix="raysweep-checkpoint-") as folder:
        yield Path(folder)


@contextmanager
def opened_by_ray(checkpoint: Any) -> Iterator[Path]:
    """A `ray.train.Checkpoint` as a local folder."""
    with checkpoint.as_directory() as folder:
        yield Path(folder)
