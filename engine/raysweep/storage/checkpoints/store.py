"""Checkpoints: directories of a trial, each byte kept once, visible only once their manifest is committed.

    checkpoints/<trial_id>/<n>.json             the manifest: files, parts, hashes, metadata; written last
    checkpoints/<trial_id>/<n>-<token>/<hash>   what checkpoint n was the first of its trial to store; the
                                                token keeps saves off each other's objects

A checkpoint refers to objects that earlier ones of its trial stored. An object goes with the last that
refers to it (ADR 49). `restore_uri` needs only `<storage_path>/<sweep_id>/checkpoints/<trial_id>/<n>`. The
sweep's documents hold the reference `checkpoints/<trial_id>/<n>`, so its folder may move. Reads are checked.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from raysweep.documents.stored_paths import to_reference, to_uri
from raysweep.errors import CheckpointDamagedError, SpecError, StorageError
from raysweep.storage.checkpoints.addresses import (
    Addresses,
    new_folder,
    parse_uri,
    reference_of,
)
from raysweep.storage.checkpoints.deletion import Deletion
from raysweep.storage.checkpoints.directory import scan_directory
from raysweep.storage.checkpoints.links import GONE, Linked, absolute, fetch, look, look_from
from raysweep.storage.checkpoints.manifest import (
    FileEntry,
    Manifest,
    decode_manifest,
    encode_manifest,
)
from raysweep.storage.checkpoints.node_cache import NodeCache
from raysweep.storage.checkpoints.restores import CHOOSE_FIX, OnRead, Restore
from raysweep.storage.checkpoints.uploads import Upload, UploadLimits
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.retries import retrying
from raysweep.storage.objects.sealed import decode_sealed, encode_sealed
from raysweep.storage.objects.store import Store

GIVE_UP_AFTER_S = 120.0
"""The limit for the retries of one object's upload, before the save fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRef:
    """A committed checkpoint."""

    uri: str
    number: int
    size_bytes: int
    files: int
    manifest: Manifest = field(repr=False, compare=False)

    @property
    def reference(self) -> str:
        """Its name in the sweep's own documents."""
        return reference_of(self.manifest.trial_id, self.number)


class CheckpointStore:
    """The checkpoints of one sweep. Pickles by its store's URL, so it can be sent to workers.

    `follows`: addresses outside of the storage path that manifests name are read, too: for the sweep's own
    code, and for a person who asks for it.
    """

    def __init__(
        self,
        store: Store,
        sweep_id: str,
        *,
        give_up_after_s: float = GIVE_UP_AFTER_S,
        cache: NodeCache | None = None,
        follows: bool = False,
    ) -> None:
        self.store = store
        self._follows = follows
        self.sweep_id = sweep_id
        self.addresses = Addresses(store.url, sweep_id)
        # On a local disk there is nothing to be gained.
        self._cache = cache if store.local_path(sweep_id) is None else None
        self._give_up_after_s = give_up_after_s

    @classmethod
    def at(cls, storage_path: str, sweep_id: str) -> CheckpointStore:
        """Open by storage path."""
        return cls(open_store(storage_path), sweep_id)

    def uri(self, trial_id: str, number: int) -> str:
        """The URI of a checkpoint, whether it exists or not."""
        return self.addresses.uri(trial_id, number)

    def save(
        self,
        trial_id: str,
        number: int,
        directory: str | os.PathLike[str],
        metadata: Mapping[str, Any] | None = None,
        *,
        parent: Manifest | None = None,
        carried: Mapping[str, FileEntry] | None = None,
        go_on: Callable[[], None] = lambda: None,
        limits: UploadLimits | None = None,
    ) -> CheckpointRef:
        """Keep a copy of a directory as checkpoint `number` of a trial; durable and visible on return.

        `metadata` must be JSON. Empty folders and executable bits are kept; nothing else of permissions is.

        Args:
            trial_id: Whose it is.
            number: Higher than that of `parent`.
            directory: What is kept.
            metadata: What is to be known of it.
            parent: Another checkpoint of this trial, not deleted before this one is committed: what
                it holds is not stored again.
            carried: Files, by path, that are as they are in `parent`: they are not read, nor need they be
                there.
            go_on: Called before each object; what it raises ends the save.
            limits: How much of the network it may use.

        Raises: SpecError for a directory that cannot be kept (missing, special files or links out of it),
            StorageError if the number is taken, StorageUnavailableError.
        """
        folder = new_folder(number)
        try:
            manifest = self.store_part(
                trial_id,
                number,
                folder,
                directory,
                metadata,
                parent=parent,
                carried=carried,
                go_on=go_on,
                limits=limits,
            )
            go_on()
            return self.commit(manifest)
        except BaseException:
            # What stays is invisible without a manifest, and goes with the next delete in this trial.
            with suppress(StorageError):
                self._delete_folder(f"{self.addresses.prefix(trial_id)}/{folder}")
            raise

    def store_part(
        self,
        trial_id: str,
        number: int,
        folder: str,
        directory: str | os.PathLike[str],
        metadata: Mapping[str, Any] | None = None,
        *,
        parent: Manifest | None = None,
        carried: Mapping[str, FileEntry] | None = None,
        go_on: Callable[[], None] = lambda: None,
        limits: UploadLimits | None = None,
    ) -> Manifest:
        """Store what a directory holds, durably, and commit nothing; args and errors as `save`.

        `folder`: what `new_folder` made for this checkpoint. Several processes may store their parts of one
        checkpoint in it at once; `join` makes one manifest of theirs.
        """
        files, empty_folders = scan_directory(Path(directory))
        upload = Upload(
            store=self.store,
            prefix=self.addresses.prefix(trial_id),
            folder=folder,
            parent=parent,
            give_up_after_s=self._give_up_after_s,
            go_on=go_on,
            limits=limits or UploadLimits(),
            cache=self._cache,
        )
        entries, objects = upload.run(Path(directory), files, carried or {})
        return Manifest(
            trial_id=trial_id,
            number=number,
            folder=folder,
            files=entries,
            objects=objects,
            empty_folders=empty_folders,
            metadata=metadata or {},
        )

    def commit(self, manifest: Manifest) -> CheckpointRef:
        """Make visible what is stored; durable on return.

        Raises: StorageError if the number is taken by another one, StorageUnavailableError.
        """
        self._commit(manifest)
        return self._ref(manifest)

    def save_link(
        self, trial_id: str, number: int, uri: str, metadata: Mapping[str, Any] | None = None
    ) -> CheckpointRef:
        """Keep the address of what user code has stored as checkpoint `number`; durable on return.

        Raises: CheckpointDamagedError: nothing is stored there. StorageNotWritableError: it is no address.
            SpecError: it is a checkpoint of raysweep's. StorageError as `save`.
        """
        _refuse_own(uri)
        manifest = Manifest(
            trial_id=trial_id,
            number=number,
            folder=f"{number}-link",
            files=(),
            metadata=metadata or {},
            link=absolute(uri),
        )
        linked = _something(look(manifest.link, self._give_up_after_s), manifest.link)
        manifest = replace(manifest, link_bytes=linked.size_bytes)
        self._commit(manifest)
        return self._ref(manifest)

    def _linked(self, manifest: Manifest) -> Linked:
        return look_from(self.store, manifest.link, self._give_up_after_s, follows=self._follows)

    def exists(self, ref: CheckpointRef | str) -> bool:
        """True if the checkpoint is committed (and not deleted)."""
        return self.store.exists(self.addresses.manifest_key(*self._locate(ref)))

    def numbers(self, trial_id: str) -> tuple[int, ...]:
        """The committed checkpoints of a trial, ascending."""
        folder = self.addresses.prefix(trial_id)
        names = (info.key.removeprefix(f"{folder}/") for info in self.store.list(folder))
        return tuple(
            sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())
        )

    def read_manifest(self, ref: CheckpointRef | str) -> Manifest:
        """The contents of a checkpoint, and its metadata.

        Raises: CheckpointDamagedError if there is none, or it is damaged.
        """
        trial_id, number = self._locate(ref)
        uri = self.uri(trial_id, number)
        data = retrying(self._give_up_after_s)(self.store.get, self.addresses.manifest_key(trial_id, number))
        if data is None:
            raise CheckpointDamagedError(uri, "there is no such checkpoint (no manifest)", CHOOSE_FIX)
        fields = decode_sealed(data)
        if fields is None or (fields["trial_id"], fields["number"]) != (trial_id, number):
            raise CheckpointDamagedError(f"{uri}.json", "the manifest is damaged", CHOOSE_FIX)
        manifest = decode_manifest(fields, uri)
        return replace(manifest, link=to_uri(self.store.url, manifest.link)) if manifest.link else manifest

    def restore(
        self,
        ref: CheckpointRef | str,
        target_dir: str | os.PathLike[str],
        *,
        on_read: OnRead | None = None,
    ) -> Manifest:
        """Copy a checkpoint to `target_dir`, which must be absent or empty; it appears whole or not at all.

        `on_read` hears, on several threads, how many bytes were read and checked, and of how many.

        Raises: CheckpointDamagedError naming the file, StorageError.
        """
        target = Path(os.path.abspath(target_dir))
        if target.is_dir() and any(target.iterdir()):
            raise StorageError(str(target), "is not empty", "restore into a new folder")
        manifest = self.read_manifest(ref)
        partial = target.parent / f".{target.name}-{secrets.token_hex(4)}"
        try:
            partial.mkdir(parents=True)
            self._fill(manifest, partial, on_read)
            os.replace(partial, target)
        except OSError as error:
            raise StorageError(
                str(target), error.strerror or str(error), "restore to another place"
            ) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return manifest

    def _fill(self, manifest: Manifest, target: Path, on_read: OnRead | None) -> None:
        if manifest.link:
            fetch(self._linked(manifest), manifest.link, target, self._give_up_after_s, on_read)
        else:
            self.reading(manifest).into(target, on_read)

    def check_link(self, manifest: Manifest) -> None:
        """See that something is there, if it is a link.

        Raises: CheckpointDamagedError: nothing is. OutsideStorageError: it is not to be followed.
            StorageError.
        """
        if manifest.link:
            _something(self._linked(manifest), manifest.link)

    def verify(self, ref: CheckpointRef | str) -> Manifest:
        """Read a checkpoint whole and check it, without keeping it. Raises: CheckpointDamagedError.

        Of one that user code has stored, only see that something is there.
        """
        manifest = self.read_manifest(ref)
        self.check_link(manifest)
        for index in range(len(manifest.objects)):
            self.check_object(manifest, index)
        return manifest

    def find_missing(self, ref: CheckpointRef | str) -> tuple[str, ...]:
        """The keys of those of its objects that are not there; none is read.

        Raises: CheckpointDamagedError: there is no such checkpoint, or its manifest is damaged. StorageError.
        """
        manifest = self.read_manifest(ref)
        if not manifest.objects:
            return ()
        there = {info.key for info in self.store.list(self.addresses.prefix(manifest.trial_id))}
        keys = (self.addresses.object_key(manifest, stored) for stored in manifest.objects)
        return tuple(key for key in keys if key not in there)

    def check_object(self, manifest: Manifest, index: int) -> None:
        """Read one object and check it against a manifest. Raises: CheckpointDamagedError, StorageError."""
        self.reading(manifest).check(index)

    def delete(self, *refs: CheckpointRef | str) -> None:
        """Delete checkpoints, their manifests first, and what no other one of the trial refers to.

        One that is not there is no error. What a later checkpoint stores meanwhile is never touched: it lies
        in a folder of a higher number; and what that one refers to beside it, its parent refers to too.

        Raises: StorageError: not everything could be deleted; a later delete in this trial will.
        """
        numbers: dict[str, list[int]] = {}
        for trial_id, number in map(self._locate, refs):
            numbers.setdefault(trial_id, []).append(number)
        for trial_id, gone in numbers.items():
            self._deletion(trial_id).delete(gone)

    def delete_others(self, trial_id: str, kept: Collection[int]) -> None:
        """Delete all of a trial but these checkpoints, while none is being stored.

        Raises: StorageError. CheckpointDamagedError: one that is kept cannot be read; nothing is deleted that
            it might refer to.
        """
        self._deletion(trial_id).delete_others(kept)

    def _deletion(self, trial_id: str) -> Deletion:
        return Deletion(
            self.store, self.addresses, trial_id, lambda: self.numbers(trial_id), self.read_manifest
        )

    def _locate(self, ref: CheckpointRef | str) -> tuple[str, int]:
        return self.addresses.locate(ref if isinstance(ref, str) else ref.uri)

    def reading(self, manifest: Manifest) -> Restore:
        """A reader of a checkpoint's objects, which checks each one."""
        return Restore(
            store=self.store,
            prefix=self.addresses.prefix(manifest.trial_id),
            uri=self.uri(manifest.trial_id, manifest.number),
            manifest=manifest,
            give_up_after_s=self._give_up_after_s,
            cache=self._cache,
        )

    def _delete_folder(self, folder_key: str) -> None:
        self.store.delete(*[info.key for info in self.store.list(folder_key)])

    def _commit(self, manifest: Manifest) -> None:
        key = self.addresses.manifest_key(manifest.trial_id, manifest.number)
        if manifest.link:
            manifest = replace(manifest, link=to_reference(self.store.url, manifest.link))
        data = encode_sealed(encode_manifest(manifest))

        def put() -> bool:
            return self.store.put_if_absent(key, data, durable=True) or self.store.get(key) == data

        if not retrying(self._give_up_after_s)(put):
            problem, fix = "this checkpoint exists already", "use the next number"
            raise StorageError(f"{self.store.url}/{key}", problem, fix)

    def _ref(self, manifest: Manifest) -> CheckpointRef:
        return CheckpointRef(
            uri=self.uri(manifest.trial_id, manifest.number),
            number=manifest.number,
            size_bytes=manifest.size_bytes,
            files=len(manifest.files),
            manifest=manifest,
        )


def restore_uri(
    uri: str,
    target_dir: str | os.PathLike[str],
    *,
    on_read: OnRead | None = None,
    cache: NodeCache | None = None,
    follows: bool = False,
) -> Manifest:
    """Restore a checkpoint from its URI alone, into a folder that is absent or empty.

    `cache`: what this node has of it; what it has not is kept there. `follows`: as in `CheckpointStore`.

    Raises: SpecError for what is not a checkpoint URI, CheckpointDamagedError, StorageError.
    """
    storage_path, sweep_id, _, _ = parse_uri(uri)
    store = CheckpointStore(open_store(storage_path), sweep_id, cache=cache, follows=follows)
    return store.restore(uri, target_dir, on_read=on_read)


@contextmanager
def open_checkpoint(uri: str, *, follows: bool = False) -> Iterator[Path]:
    """A temporary folder with the checkpoint, removed at the end. `follows`: as in `CheckpointStore`."""
    with tempfile.TemporaryDirectory(prefix="raysweep-checkpoint-") as folder:
        target = Path(folder) / "checkpoint"
        restore_uri(uri, target, follows=follows)
        yield target


def _something(linked: Linked, uri: str) -> Linked:
    if not linked.files:
        raise CheckpointDamagedError(uri, GONE, CHOOSE_FIX)
    return linked


def _refuse_own(uri: str) -> None:
    """A checkpoint of a sweep is that sweep's to delete: no other sweep may count on it."""
    try:
        storage_path, sweep_id, trial_id, number = parse_uri(absolute(uri))
    except SpecError:
        return
    store = CheckpointStore.at(storage_path, sweep_id)
    if store.exists(store.uri(trial_id, number)):
        problem = f"{uri} is a checkpoint of sweep {sweep_id!r}, which may delete it"
        raise SpecError("checkpoint_uri", problem, "restore it, and report its directory")
