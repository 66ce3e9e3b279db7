"""Checkpoints: directories of a trial, kept file by file, visible only once their manifest is committed.

    checkpoints/<trial_id>/<n>.json             the manifest: files, sizes, hashes, metadata; written last
    checkpoints/<trial_id>/<n>-<token>/<path>   the files; the token keeps attempts off each other's files

The URI is `<storage_path>/<sweep_id>/checkpoints/<trial_id>/<n>`, and is all that `restore_uri` needs.
Whatever is read back is checked against the manifest, byte for byte, before it is handed out.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from raysweep.errors import CheckpointDamagedError, SpecError, StorageError
from raysweep.storage.directory import FileEntry, read_chunks, scan_directory
from raysweep.storage.opening import open_store
from raysweep.storage.retries import retrying
from raysweep.storage.sealed import decode_sealed, encode_sealed
from raysweep.storage.store import Store

GIVE_UP_AFTER_S = 120.0
"""How long one file's upload is tried again before the save fails."""

_REMOTE_THREADS = 4
_CHOOSE_FIX = "choose another checkpoint"
# What object stores refuse or rewrite in keys; everything else in a file name stays readable.
_ESCAPED = frozenset('%#?\\^`*<>|"') | {chr(code) for code in (*range(32), 127)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRef:
    """A committed checkpoint."""

    uri: str
    number: int
    size_bytes: int
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a checkpoint consists of."""

    trial_id: str
    number: int
    folder: str
    """`<n>-<token>`, where the files lie."""
    files: tuple[FileEntry, ...]
    empty_folders: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Of all files together."""
        return sum(entry.size_bytes for entry in self.files)


class CheckpointStore:
    """The checkpoints of one sweep. Pickles by its store's URL, so it can be sent to workers."""

    def __init__(self, store: Store, sweep_id: str, *, give_up_after_s: float = GIVE_UP_AFTER_S) -> None:
        self.store = store
        self.sweep_id = sweep_id
        self._give_up_after_s = give_up_after_s

    @classmethod
    def at(cls, storage_path: str, sweep_id: str) -> CheckpointStore:
        """Open by storage path."""
        return cls(open_store(storage_path), sweep_id)

    def uri(self, trial_id: str, number: int) -> str:
        """The URI of a checkpoint, whether it exists or not."""
        return f"{self.store.url}/{self._stem(trial_id, number)}"

    def save(
        self,
        trial_id: str,
        number: int,
        directory: str | os.PathLike[str],
        metadata: Mapping[str, Any] | None = None,
    ) -> CheckpointRef:
        """Keep a copy of a directory as checkpoint `number` of a trial; durable and visible on return.

        `metadata` must be JSON. Empty folders and executable bits are kept; nothing else of permissions is.

        Raises: SpecError for a directory that cannot be kept (missing, links or special files in it),
            StorageError if the number is taken, StorageUnavailableError.
        """
        files, empty_folders = scan_directory(Path(directory))
        folder = f"{number}-{secrets.token_hex(4)}"
        try:
            manifest = Manifest(
                trial_id=trial_id,
                number=number,
                folder=folder,
                files=self._upload(Path(directory), files, self._folder_key(trial_id, folder)),
                empty_folders=empty_folders,
                metadata=metadata or {},
            )
            self._commit(manifest)
        except BaseException:
            # What stays is invisible without a manifest, and goes with the next delete of this number.
            with suppress(StorageError):
                self._delete_folder(self._folder_key(trial_id, folder))
            raise
        return self._ref(manifest)

    def exists(self, ref: CheckpointRef | str) -> bool:
        """Whether the checkpoint is committed (and not deleted)."""
        return self.store.exists(self._manifest_key(*self._locate(ref)))

    def numbers(self, trial_id: str) -> tuple[int, ...]:
        """The committed checkpoints of a trial, ascending."""
        folder = f"{self.sweep_id}/checkpoints/{trial_id}"
        names = (info.key.removeprefix(f"{folder}/") for info in self.store.list(folder))
        return tuple(
            sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())
        )

    def read_manifest(self, ref: CheckpointRef | str) -> Manifest:
        """What a checkpoint consists of, and its metadata.

        Raises: CheckpointDamagedError if there is none, or it is damaged.
        """
        trial_id, number = self._locate(ref)
        uri = self.uri(trial_id, number)
        data = retrying(self._give_up_after_s)(self.store.get, self._manifest_key(trial_id, number))
        if data is None:
            raise CheckpointDamagedError(uri, "there is no such checkpoint (no manifest)", _CHOOSE_FIX)
        fields = decode_sealed(data)
        if fields is None or (fields["trial_id"], fields["number"]) != (trial_id, number):
            raise CheckpointDamagedError(f"{uri}.json", "the manifest is damaged", _CHOOSE_FIX)
        files = tuple(FileEntry(**entry) for entry in fields.pop("files"))
        empty_folders = tuple(fields.pop("empty_folders"))
        for path in (*(entry.path for entry in files), *empty_folders, fields["folder"]):
            _check_inside(path, uri)
        return Manifest(files=files, empty_folders=empty_folders, **fields)

    def restore(self, ref: CheckpointRef | str, target_dir: str | os.PathLike[str]) -> Manifest:
        """Copy a checkpoint to `target_dir`, which must be absent or empty; it appears whole or not at all.

        Raises: CheckpointDamagedError naming the file, StorageError.
        """
        target = Path(os.path.abspath(target_dir))
        if target.is_dir() and any(target.iterdir()):
            raise StorageError(str(target), "is not empty", "restore into a new folder")
        manifest = self.read_manifest(ref)
        partial = target.parent / f".{target.name}-{secrets.token_hex(4)}"
        try:
            partial.mkdir(parents=True)
            self._download(manifest, partial)
            os.replace(partial, target)
        except OSError as error:
            raise StorageError(
                str(target), error.strerror or str(error), "restore to another place"
            ) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return manifest

    def verify(self, ref: CheckpointRef | str) -> Manifest:
        """Read a checkpoint whole and check it, without keeping it. Raises: CheckpointDamagedError."""
        manifest = self.read_manifest(ref)
        for entry in manifest.files:
            self.check_file(manifest, entry)
        return manifest

    def check_file(self, manifest: Manifest, entry: FileEntry) -> None:
        """Read one file and check it against its manifest. Raises: CheckpointDamagedError, StorageError."""

        def read() -> None:
            for _ in self._checked_chunks(manifest, entry):
                pass

        retrying(self._give_up_after_s)(read)

    def file_key(self, manifest: Manifest, entry: FileEntry) -> str:
        """Where a file of a checkpoint lies in the store."""
        return f"{self._folder_key(manifest.trial_id, manifest.folder)}/{_escape(entry.path)}"

    def delete(self, ref: CheckpointRef | str) -> None:
        """Delete a checkpoint, the manifest first. One that is not there is no error."""
        trial_id, number = self._locate(ref)
        self.store.delete(self._manifest_key(trial_id, number))
        parent = f"{self.sweep_id}/checkpoints/{trial_id}"
        for name in self.store.list_folders(parent):
            if name.partition("-")[0] == str(number):
                self._delete_folder(f"{parent}/{name}")

    def _delete_folder(self, folder_key: str) -> None:
        self.store.delete(*[info.key for info in self.store.list(folder_key)])

    def _upload(self, directory: Path, paths: tuple[str, ...], folder_key: str) -> tuple[FileEntry, ...]:
        def upload(path: str) -> FileEntry:
            key = f"{folder_key}/{_escape(path)}"
            return retrying(self._give_up_after_s)(self._upload_file, directory, path, key)

        if self.store.local_path(folder_key) is not None or len(paths) < 2:
            return tuple(map(upload, paths))
        with ThreadPoolExecutor(_REMOTE_THREADS, thread_name_prefix="raysweep-upload") as pool:
            return tuple(pool.map(upload, paths))

    def _upload_file(self, directory: Path, path: str, key: str) -> FileEntry:
        source = _Hashing(read_chunks(directory / path))
        first = next(source.chunks, b"")
        second = next(source.chunks, None)
        if second is None:
            self.store.put(key, first, durable=True)
        else:
            self.store.put_chunks(key, _chain(first, second, source.chunks), durable=True)
        return FileEntry(
            path=path,
            size_bytes=source.size_bytes,
            blake2b=source.hexdigest(),
            executable=os.access(directory / path, os.X_OK),
        )

    def _commit(self, manifest: Manifest) -> None:
        key = self._manifest_key(manifest.trial_id, manifest.number)
        data = encode_sealed(asdict(manifest))

        def put() -> bool:
            return self.store.put_if_absent(key, data, durable=True) or self.store.get(key) == data

        if not retrying(self._give_up_after_s)(put):
            problem, fix = "this checkpoint exists already", "use the next number"
            raise StorageError(f"{self.store.url}/{key}", problem, fix)

    def _download(self, manifest: Manifest, target: Path) -> None:
        for path in manifest.empty_folders:
            (target / path).mkdir(parents=True, exist_ok=True)
        for entry in manifest.files:
            (target / entry.path).parent.mkdir(parents=True, exist_ok=True)
            retrying(self._give_up_after_s)(self._download_file, manifest, entry, target / entry.path)

    def _download_file(self, manifest: Manifest, entry: FileEntry, target: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(target, flags, 0o777 if entry.executable else 0o666), "wb", buffering=0) as file:
            for chunk in self._checked_chunks(manifest, entry):
                view = memoryview(chunk)
                while view:
                    view = view[file.write(view) :]

    def _checked_chunks(self, manifest: Manifest, entry: FileEntry) -> Iterator[bytes]:
        """The file's content; an error after the last chunk if it was not what the manifest says."""
        chunks = self.store.get_chunks(self.file_key(manifest, entry))
        name = f"{self.uri(manifest.trial_id, manifest.number)}: {entry.path}"
        if chunks is None:
            raise CheckpointDamagedError(name, "the file is missing", _CHOOSE_FIX)
        source = _Hashing(chunks)
        yield from source.chunks
        if source.size_bytes != entry.size_bytes:
            problem = f"{source.size_bytes} bytes instead of {entry.size_bytes}"
            raise CheckpointDamagedError(name, problem, _CHOOSE_FIX)
        if source.hexdigest() != entry.blake2b:
            raise CheckpointDamagedError(name, "the content changed (its hash is wrong)", _CHOOSE_FIX)

    def _locate(self, ref: CheckpointRef | str) -> tuple[str, int]:
        """(trial_id, number) of a checkpoint of this sweep."""
        uri = ref if isinstance(ref, str) else ref.uri
        _, sweep_id, trial_id, number = _parse_uri(uri)
        if sweep_id != self.sweep_id:
            raise SpecError("checkpoint", f"{uri} is not of sweep {self.sweep_id!r}", "use restore_uri")
        return trial_id, number

    def _ref(self, manifest: Manifest) -> CheckpointRef:
        return CheckpointRef(
            uri=self.uri(manifest.trial_id, manifest.number),
            number=manifest.number,
            size_bytes=manifest.size_bytes,
            files=len(manifest.files),
        )

    def _stem(self, trial_id: str, number: int) -> str:
        return f"{self.sweep_id}/checkpoints/{trial_id}/{number}"

    def _manifest_key(self, trial_id: str, number: int) -> str:
        return f"{self._stem(trial_id, number)}.json"

    def _folder_key(self, trial_id: str, folder: str) -> str:
        return f"{self.sweep_id}/checkpoints/{trial_id}/{folder}"


def restore_uri(uri: str, target_dir: str | os.PathLike[str]) -> Manifest:
    """Restore a checkpoint from its URI alone, into a folder that is absent or empty.

    Raises: SpecError for what is no checkpoint URI, CheckpointDamagedError, StorageError.
    """
    storage_path, sweep_id, _, _ = _parse_uri(uri)
    return CheckpointStore.at(storage_path, sweep_id).restore(uri, target_dir)


@contextmanager
def open_checkpoint(uri: str) -> Iterator[Path]:
    """A temporary folder with the checkpoint in it, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="raysweep-checkpoint-") as folder:
        target = Path(folder) / "checkpoint"
        restore_uri(uri, target)
        yield target


class _Hashing:
    """Chunks that are hashed and counted as they pass."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.size_bytes = 0
        self._hash = blake2b(digest_size=20)
        self.chunks = self._pass(chunks)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def _pass(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._hash.update(chunk)
            self.size_bytes += len(chunk)
            yield chunk


def _chain(first: bytes, second: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield second
    yield from rest


def _parse_uri(uri: str) -> tuple[str, str, str, int]:
    """(storage_path, sweep_id, trial_id, number)."""
    parts = uri.rstrip("/").rsplit("/", 4)
    if len(parts) != 5 or parts[2] != "checkpoints" or not parts[4].isdecimal():
        raise SpecError(
            "checkpoint",
            f"{uri!r} is no checkpoint URI",
            "use <storage_path>/<sweep_id>/checkpoints/<trial>/<n>",
        )
    return parts[0], parts[1], parts[3], int(parts[4])


def _escape(path: str) -> str:
    return "".join(f"%{ord(letter):02X}" if letter in _ESCAPED else letter for letter in path)


def _check_inside(path: str, uri: str) -> None:
    """Refuse a manifest that would write outside of the target."""
    if "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise CheckpointDamagedError(
            uri, f"the manifest names the path {path!r}", "do not trust this checkpoint"
        )
