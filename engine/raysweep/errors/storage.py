"""Errors of the storage, and of what is stored."""

from __future__ import annotations

from typing import ClassVar

from raysweep.errors.base import RaysweepError, one_line


class StorageError(RaysweepError):
    """Reading or writing the storage failed."""

    retryable: ClassVar[bool] = True

    def __init__(self, path: str, problem: str, fix: str = "") -> None:
        super().__init__(path, problem, fix)
        self.path = path
        self.problem = problem
        self.fix = fix

    def __str__(self) -> str:
        head = f"{self.path}: {self.problem}"
        return one_line(f"{head}; {self.fix}" if self.fix else head)


class StorageUnavailableError(StorageError):
    """The storage does not answer, or refuses for now."""


class JournalDamagedError(StorageError):
    """A part of the journal is missing or fails its checksum; `lost` says what went with it."""

    retryable: ClassVar[bool] = False

    def __init__(self, path: str, problem: str, lost: str = "", fix: str = "") -> None:
        super().__init__(path, problem, fix)
        self.args = (path, problem, lost, fix)
        self.lost = lost

    def __str__(self) -> str:
        parts = [f"{self.path}: {self.problem}"]
        parts += [f"lost: {self.lost}"] if self.lost else []
        parts += [self.fix] if self.fix else []
        return one_line("; ".join(parts))


class CheckpointDamagedError(StorageError):
    """A file of a checkpoint is missing or is not what its manifest says."""

    retryable: ClassVar[bool] = False


class SweepDamagedError(StorageError):
    """sweep.json or outcome.json is missing or is not as it was written; nothing is started over instead."""

    retryable: ClassVar[bool] = False


class OutsideStorageError(StorageError):
    """A stored object leads out of the storage path: by a symbolic link, or by an address in a manifest."""

    retryable: ClassVar[bool] = False


class SegmentExistsError(StorageError):
    """A journal segment of this number already exists."""

    retryable: ClassVar[bool] = False

    def __init__(self, number: int) -> None:
        super().__init__(f"journal segment {number}", "already exists")
        self.args = (number,)
        self.number = number
