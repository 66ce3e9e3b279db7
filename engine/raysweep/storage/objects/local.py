"""A store in a folder of this machine (or of a network file system that all nodes mount).

A put writes a temporary file and gives it its name in one step (link for create-only, rename for replace), so
no reader ever sees half an object. A durable put syncs the file before the name and the folder after it: what
has a name is whole, even after a power cut. No threads and no runtime: safe in forked children.

Below the root no symbolic link that leads out of it is read through: people are shown what is read here. What
counts is where the opened file lies, so that nothing can be exchanged between a look and the read.
"""

from __future__ import annotations

import errno
import io
import itertools
import os
import random
import resource
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from fcntl import F_GETFL, F_SETFL, fcntl
from hashlib import blake2b
from pathlib import Path
from typing import NoReturn, TypeVar

from raysweep.errors import (
    OutsideStorageError,
    StorageError,
    StorageNotWritableError,
    StorageUnavailableError,
)
from raysweep.storage.objects.locks import locked
from raysweep.storage.objects.store import ObjectInfo, check_key

TEMPORARY_MARK = ".raysweep-tmp-"
LOCK_MARK = f"{TEMPORARY_MARK}lock-"
"""Of the files that replacements of an object are locked with; they stay: a process may wait there."""
_CREATE_TRIES = 60
_TRIES_AT_ONCE = 10
_BREATH_S = 0.01
"""Waited at most before a folder that deletes prune again and again is made once more."""
_READ_BYTES = 256 * 1024
"""Larger pieces cost new memory each, which takes longer than to read them."""
_AROUND_CACHE_BYTES = 1024 * 1024
"""Smaller objects are never written around the page cache."""
_CACHED_BYTES = 64 * 1024 * 1024
"""Of what is put before a sync, so much goes through the cache: a trial that starts from a small checkpoint
reads it from there. Of a large one, the rest would take the place of what others read."""
_BLOCK_BYTES = 4096
_counter = itertools.count()
_T = TypeVar("_T")

# What may pass by itself or be mended while the sweep waits: a full disk, a flaky mount.
_PASSING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EBUSY,
     errno.EMFILE, errno.ENFILE, errno.EINTR, errno.ENOMEM, errno.ENOLCK, errno.EHOSTDOWN, errno.ENETUNREACH}
)  # fmt: skip
_FIXES = {
    errno.ENOSPC: "free some disk space",
    errno.EDQUOT: "free some space: the disk quota is used up",
    errno.EACCES: "give this user write permission, or choose another storage_path",
    errno.EPERM: "give this user write permission, or choose another storage_path",
    errno.EROFS: "the file system is read-only: choose another storage_path",
    errno.ENOLCK: "the file system gives no locks now: check its lock daemon (NFS: rpc.statd)",
    errno.EMFILE: "raise the open file limit (ulimit -n)",
}


class LocalStore:
    """A folder as an object store. The folder is created by the first put."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._real_root = ""
        # The folders that writes of ours gave a new folder, which may not be on the disk yet; and those above
        # our objects that were synced once, whichever process made their content.
        self._owed: dict[Path, tuple[Path, ...]] = {}
        self._synced: set[Path] = set()
        self._unsynced_bytes = 0
        """Of large objects, about: threads may count at once."""

    def __reduce__(self) -> tuple[type[LocalStore], tuple[Path]]:
        return LocalStore, (self._root,)

    @property
    def url(self) -> str:
        return str(self._root)

    def local_path(self, key: str) -> Path | None:
        return self._root / check_key(key)

    def get(self, key: str) -> bytes | None:
        def read() -> bytes:
            with self._open(key) as file:
                return file.readall() or b""

        return self._unless_missing(key, read)

    def get_chunks(self, key: str) -> Iterator[bytes] | None:
        file = self._unless_missing(key, lambda: self._open(key))
        if file is None:
            return None

        def chunks() -> Iterator[bytes]:
            with file:
                try:
                    while chunk := file.read(_READ_BYTES):
                        yield chunk
                except OSError as error:
                    self._fail(key, error)

        return chunks()

    def put(self, key: str, data: bytes | memoryview, *, durable: bool = False) -> None:
        self._write(key, (data,), durable=durable, replace=True)

    def sync(self, *keys: str) -> None:
        folders = {}
        self._unsynced_bytes = 0
        for key in keys:
            path = self._path(key)
            try:
                _sync_file(path)
            except OSError as error:
                self._fail(key, error)
            folders[path.parent] = key
        for folder, key in folders.items():
            self._keep_name(key, folder / "any")

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = False) -> bool:
        path = self._path(key)
        # Cheap refusal first; the link below is what decides.
        if not os.path.lexists(path) and self._write(key, (data,), durable=durable, replace=False):
            return True
        if durable:
            self._keep_name(key, path)
        return False

    def get_versioned(self, key: str) -> tuple[bytes, str] | None:
        data = self.get(key)
        return None if data is None else (data, _version_of(data))

    def put_if_version(self, key: str, data: bytes, version: str | None) -> bool:
        path = self._path(key)
        # A lock that ends with its process. The object is written beside and renamed: readers take no lock.
        lock = path.parent / f"{LOCK_MARK}{path.name}"
        try:
            with (
                open(_create(lock, os.O_APPEND)[1], "ab") as file,
                locked(file.fileno(), lock.with_name(f"{lock.name}.held")) as check_held,
            ):
                found = self.get_versioned(key)
                if (found[1] if found is not None else None) != version:
                    return False
                self._write(key, (data,), durable=True, replace=True, before_name=check_held)
                return True
        except OSError as error:
            self._fail(key, error)

    def put_chunks(self, key: str, chunks: Iterable[bytes], *, durable: bool = False) -> None:
        self._write(key, chunks, durable=durable, replace=True)

    def delete(self, *keys: str) -> None:
        for key in keys:
            path = self._path(key)
            try:
                path.unlink(missing_ok=True)
            except NotADirectoryError:
                continue
            except OSError as error:
                self._fail(key, error)
            self._prune(path.parent)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        top = self._folder(prefix)
        if top is not None:
            yield from self._walk(top, f"{prefix}/" if prefix else "")

    def list_folders(self, prefix: str = "") -> tuple[str, ...]:
        top = self._folder(prefix)
        if top is None:
            return ()
        try:
            with os.scandir(top) as entries:
                return tuple(sorted(entry.name for entry in entries if entry.is_dir()))
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            self._fail(prefix, error)

    def head(self, key: str) -> ObjectInfo | None:
        status = self._unless_missing(key, lambda: self._look(self._path(key), key))
        if status is None or not stat.S_ISREG(status.st_mode):
            return None
        return ObjectInfo(key=key, size_bytes=status.st_size, modified_at=status.st_mtime)

    def exists(self, key: str) -> bool:
        return self.head(key) is not None

    def check_writable(self) -> None:
        """Write and remove a file in the folder, or while it is not there, a folder in the nearest parent."""
        nearest = self._root
        while not os.path.lexists(nearest):
            nearest = nearest.parent
        if not nearest.is_dir():
            raise StorageNotWritableError(
                "storage_path", f"{nearest} is not a folder", "choose another storage_path"
            )
        probe = nearest / f"{TEMPORARY_MARK}probe-{secrets.token_hex(6)}"
        try:
            if nearest != self._root:
                probe.mkdir()
                probe.rmdir()
                return
            probe.write_bytes(b"probe")
            probe.unlink()
        except OSError as error:
            with suppress(OSError):
                probe.unlink()
            problem = f"{self._root} is not writable ({error.strerror})"
            fix = _FIXES.get(error.errno or 0, "choose another storage_path")
            raise StorageNotWritableError("storage_path", problem, fix) from error

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    def _open(self, key: str) -> io.FileIO:
        def opened(path: str, flags: int) -> int:
            # What is no regular file may have no other end that ever writes.
            descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                self._check_inside(descriptor, path, key)
            except BaseException:
                os.close(descriptor)
                raise
            return descriptor

        return open(self._path(key), "rb", buffering=0, opener=opened)

    def _look(self, path: Path, key: str) -> os.stat_result:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            self._check_inside(descriptor, path, key)
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def _folder(self, prefix: str) -> Path | None:
        """The folder of this prefix; None where there is none."""
        top = self._path(prefix) if prefix else self._root
        return None if self._unless_missing(prefix, lambda: self._look(top, prefix)) is None else top

    def _check_inside(self, descriptor: int, path: str | Path, key: str) -> None:
        real = _real_path(descriptor, path)
        if not self._is_below(real):
            self._real_root = os.path.realpath(self._root)  # not known yet, or moved since
            if not self._is_below(real):
                problem = f"leads to {real} by a symbolic link, out of the storage path"
                fix = "mount that folder there instead (mount --bind), or copy it"
                raise OutsideStorageError(str(self._root / key), problem, fix)

    def _is_below(self, real: str) -> bool:
        root = self._real_root
        return bool(root) and (real == root or real.startswith(f"{root.rstrip('/')}/"))

    def _write(
        self,
        key: str,
        chunks: Iterable[bytes | memoryview],
        *,
        durable: bool,
        replace: bool,
        before_name: Callable[[], None] = lambda: None,
    ) -> bool:
        path = self._path(key)
        temporary = path.parent / f"{TEMPORARY_MARK}{os.getpid():x}-{next(_counter):x}-{secrets.token_hex(4)}"
        try:
            created = self._write_file(temporary, chunks, durable=durable)
            if created:
                self._owed[temporary] = created
            try:
                before_name()
            except OSError:
                temporary.unlink(missing_ok=True)
                raise
            named = _name(temporary, path, replace=replace)
        except OSError as error:
            self._fail(key, error)
        if durable and named:
            self._keep_name(key, path)
        return named

    def _keep_name(self, key: str, path: Path) -> None:
        """Sync what the name hangs on: its folder, and those above that may not have been synced yet.

        An attempt before this one, or another process, may have given the name, or made a folder, and failed
        right then.
        """
        above = {folder for folder in path.parent.parents if self._is_inside(folder)} - self._synced
        owed = self._owed.copy()
        try:
            for folder in {path.parent}.union(above, *owed.values()):
                with suppress(FileNotFoundError):  # deleted meanwhile, with the name
                    _sync_folder(folder)
        except OSError as error:
            self._fail(key, error)
        self._synced |= above
        for write in owed:
            self._owed.pop(write, None)

    def _is_inside(self, folder: Path) -> bool:
        return folder == self._root or self._root in folder.parents

    def _write_file(
        self, temporary: Path, chunks: Iterable[bytes | memoryview], *, durable: bool
    ) -> tuple[Path, ...]:
        """Write the temporary file; returns the folders that have a new entry for it to be reachable."""
        created, descriptor = _create(temporary)
        try:
            for chunk in chunks:
                view = memoryview(chunk)
                if len(view) >= _AROUND_CACHE_BYTES and not durable:
                    self._unsynced_bytes += len(view)
                    if self._unsynced_bytes > _CACHED_BYTES:
                        view = _write_around_cache(descriptor, view)
                while view:
                    view = view[os.write(descriptor, view) :]
            if durable:
                os.fsync(descriptor)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        return created

    def _walk(self, folder: Path, prefix: str) -> Iterator[ObjectInfo]:
        try:
            with os.scandir(folder) as entries:
                found = list(entries)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self._fail(prefix, error)
        for entry in found:
            if entry.name.startswith(TEMPORARY_MARK):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(Path(entry.path), f"{prefix}{entry.name}/")
                continue
            try:
                # A link that leads out is listed as itself: it can be deleted, and not read.
                is_inside = not entry.is_symlink() or self._is_below(os.path.realpath(entry.path))
                status = entry.stat(follow_symlinks=is_inside)
            except FileNotFoundError:  # deleted since the listing
                continue
            yield ObjectInfo(key=prefix + entry.name, size_bytes=status.st_size, modified_at=status.st_mtime)

    def _prune(self, folder: Path) -> None:
        """Remove folders that a delete left empty, up to the root; one that another writer fills stays."""
        while folder != self._root and self._root in folder.parents:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent

    def _unless_missing(self, key: str, call: Callable[[], _T]) -> _T | None:
        try:
            return call()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            self._fail(key, error)

    def _fail(self, key: str, error: OSError) -> NoReturn:
        path = str(self._root / key)
        problem = error.strerror or str(error)
        if error.errno == errno.EMFILE:
            _raise_file_limit()
        kind = StorageUnavailableError if error.errno in _PASSING else StorageError
        fix = _FIXES.get(error.errno or 0, "check that the folder is there and writable")
        raise kind(path, problem, fix) from error


def _real_path(descriptor: int, path: str | Path) -> str:
    """The path of an open file, without symbolic links; by its name where there is no /proc."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return os.path.realpath(path)


def _version_of(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _name(temporary: Path, path: Path, *, replace: bool) -> bool:
    """Give the temporary file its name in one step; False if `replace` is off and the name is taken."""
    try:
        if replace:
            os.replace(temporary, path)
            return True
        try:
            os.link(temporary, path)
        except OSError as error:
            # File systems without hard links (some FUSE and SMB mounts): an exclusive create decides who wins
            # there.
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
            os.replace(temporary, path)
        return True
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)


def _create(path: Path, how: int = os.O_EXCL) -> tuple[tuple[Path, ...], int]:
    """Open a file, by default a new one, its folders created: (folders with a new entry, the descriptor)."""
    for remaining in reversed(range(_CREATE_TRIES)):
        try:
            created = _make_folders(path.parent)
            return created, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o666)
        except (FileNotFoundError, FileExistsError):  # a delete pruned the folder, empty for a moment
            if not remaining:
                raise
            if remaining < _CREATE_TRIES - _TRIES_AT_ONCE:  # in step with those who delete: out of it
                time.sleep(random.uniform(0, _BREATH_S))
    raise AssertionError("unreachable: the loop returns or raises")


def _write_around_cache(descriptor: int, data: memoryview) -> memoryview:
    """Write straight to the disk what can be; returns the rest, which is all where the file system cannot.

    A `sync` follows. The page cache would cost a copy more, and lose what others read: the trial's data.
    """
    end, flags = len(data) - len(data) % _BLOCK_BYTES, fcntl(descriptor, F_GETFL)
    written = 0
    try:
        fcntl(descriptor, F_SETFL, flags | os.O_DIRECT)
        while written < end:
            written += os.write(descriptor, data[written:end])
    except OSError:
        pass  # no such writes here, or not of this memory; what else is wrong, the write of the rest tells
    finally:
        fcntl(descriptor, F_SETFL, flags)
    return data[written:]


def _make_folders(folder: Path) -> tuple[Path, ...]:
    """Create the folder and its parents; returns the parents that got a new entry."""
    if folder.is_dir():
        return ()
    touched = _make_folders(folder.parent)
    folder.mkdir(exist_ok=True)
    return (*touched, folder.parent)


def _sync_folder(folder: Path) -> None:
    _sync_opened(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def _sync_file(path: Path) -> None:
    _sync_opened(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


def _sync_opened(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _raise_file_limit() -> None:
    """Let this process open as many files as it may: the next try finds room, whatever has used up the rest.

    A trial may have lowered the limit while its checkpoint is stored.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
