"""The contents of a checkpoint: files, made of parts of stored objects; and their written form.

Files are cut into chunks and small ones are packed. An object is named by the hash (blake3) of its content,
in the folder of the checkpoint that stored it first; later ones of the trial refer to it there. A checkpoint
that user code has stored itself has no files: its manifest holds the address (`link`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol

from blake3 import blake3

from raysweep.errors import CheckpointDamagedError, SpecError
from raysweep.storage.formats import other_format

VERSION: Final = 2
DIGEST_BYTES: Final = 20
_HASH: Final = re.compile(rf"[0-9a-f]{{{2 * DIGEST_BYTES}}}")
_DISTRUST: Final = "do not trust this checkpoint"
# What object stores refuse or rewrite in keys; everything else in a file name stays readable.
_ESCAPED: Final = frozenset('%#?\\^`*<>|"') | {chr(code) for code in (*range(32), 127)}


class StoredObject(NamedTuple):
    """An object that holds a chunk of a file, or several small files."""

    name: str
    """Below the trial's folder: `<n>-<token>/<…>`."""
    size_bytes: int
    hash: str
    """Hex, 20 bytes."""


class Part(NamedTuple):
    """A piece of a file, and where it lies in an object."""

    object: int
    """Its place in `Manifest.objects`."""
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file of a checkpoint."""

    path: str
    """Relative to the directory, `/`-separated."""
    size_bytes: int
    executable: bool = False
    parts: tuple[Part, ...] = ()
    """In order; together `size_bytes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The contents of a checkpoint."""

    trial_id: str
    number: int
    folder: str
    """`<n>-<token>`, where what this checkpoint was the first to store lies."""
    files: tuple[FileEntry, ...]
    objects: tuple[StoredObject, ...] = ()
    empty_folders: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    link: str = ""
    """The address of its files, if user code has stored it."""
    link_bytes: int = 0
    """The bytes at that address when it was reported."""

    @property
    def size_bytes(self) -> int:
        """Of all files together."""
        return sum(entry.size_bytes for entry in self.files) + self.link_bytes

    @property
    def new_bytes(self) -> int:
        """The bytes that this checkpoint stored: the rest was there."""
        return sum(each.size_bytes for each in self.objects if each.name.startswith(f"{self.folder}/"))

    def files_of(self, index: int) -> Iterator[FileEntry]:
        """The files with a part in object `index`."""
        return (entry for entry in self.files if any(part.object == index for part in entry.parts))

    def hasher(self) -> Hasher:
        """A hasher for this manifest's objects."""
        return _Blake3()


class Hasher(Protocol):
    """A hash that is fed piece by piece."""

    def update(self, data: bytes, /) -> object: ...

    def hexdigest(self) -> str: ...


class _Blake3:
    def __init__(self) -> None:
        self._hash = blake3()

    def update(self, data: bytes, /) -> None:
        self._hash.update(data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest(length=DIGEST_BYTES)


def hash_of(data: bytes | memoryview) -> str:
    """The hash of one object. Lets other threads run meanwhile."""
    return blake3(data).hexdigest(length=DIGEST_BYTES)


def encode_manifest(manifest: Manifest) -> dict[str, Any]:
    """As JSON holds it."""
    linked = {"link": manifest.link, "link_bytes": manifest.link_bytes} if manifest.link else {}
    return {
        "version": VERSION,
        "trial_id": manifest.trial_id,
        "number": manifest.number,
        "folder": manifest.folder,
        "objects": [list(each) for each in manifest.objects],
        "files": [
            {
                "path": entry.path,
                "size_bytes": entry.size_bytes,
                "executable": entry.executable,
                "parts": [list(part) for part in entry.parts],
            }
            for entry in manifest.files
        ],
        "empty_folders": manifest.empty_folders,
        "metadata": manifest.metadata,
        **linked,
    }


def decode_manifest(body: Mapping[str, Any], uri: str) -> Manifest:
    """The manifest that `encode_manifest` wrote.

    Raises: CheckpointDamagedError: it has another version, would write outside of its target, or does not fit
        together.
    """
    if body.get("version") != VERSION:
        problem = other_format(body.get("version"), VERSION, name="version")
        raise CheckpointDamagedError(f"{uri}.json", problem, "use the version of raysweep that wrote it")
    try:
        manifest = _decode(body)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointDamagedError(f"{uri}.json", "the manifest is damaged", _DISTRUST) from error
    paths = (*(entry.path for entry in manifest.files), *manifest.empty_folders, manifest.folder)
    for path in (*paths, *(each.name for each in manifest.objects)):
        if "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
            raise CheckpointDamagedError(uri, f"the manifest names the path {path!r}", _DISTRUST)
    for stored in manifest.objects:
        if _HASH.fullmatch(stored.hash) is None:  # it names a file of a node's cache
            raise CheckpointDamagedError(uri, f"the manifest has the hash {stored.hash!r}", _DISTRUST)
    for entry in manifest.files:
        if not _fits(entry, manifest):
            raise CheckpointDamagedError(uri, f"the manifest has no whole {entry.path!r}", _DISTRUST)
    return manifest


def _decode(body: Mapping[str, Any]) -> Manifest:
    common = {name: body[name] for name in ("trial_id", "number", "folder", "metadata")}
    empty_folders = tuple(body["empty_folders"])
    if "link" in body:
        return Manifest(files=(), link=body["link"], link_bytes=body["link_bytes"], **common)
    files = tuple(
        FileEntry(
            path=entry["path"],
            size_bytes=entry["size_bytes"],
            executable=entry["executable"],
            parts=tuple(Part(*part) for part in entry["parts"]),
        )
        for entry in body["files"]
    )
    objects = tuple(StoredObject(*each) for each in body["objects"])
    return Manifest(files=files, objects=objects, empty_folders=empty_folders, **common)


def join(parts: Sequence[Manifest], metadata: Mapping[str, Any]) -> Manifest:
    """One checkpoint of what several processes have stored of it, in one folder.

    Of a path that several have, that of the first counts.

    Raises: SpecError: what is a file of one is a folder of another.
    """
    objects: dict[str, tuple[int, StoredObject]] = {}
    files: dict[str, FileEntry] = {}

    def place(stored: StoredObject) -> int:
        return objects.setdefault(stored.name, (len(objects), stored))[0]

    for each in parts:
        for entry in each.files:
            if entry.path not in files:
                moved = tuple(part._replace(object=place(each.objects[part.object])) for part in entry.parts)
                files[entry.path] = replace(entry, parts=moved)
    folders = {folder for each in parts for folder in each.empty_folders}
    full = {path[:index] for path in files for index, letter in enumerate(path) if letter == "/"}
    for path in sorted(files.keys() & (full | folders)):
        problem = f"{path!r} is a file of one worker and a folder of another"
        raise SpecError("checkpoint", problem, "let the workers give files of other names")
    return replace(
        parts[0],
        files=tuple(sorted(files.values(), key=lambda entry: entry.path)),
        objects=tuple(stored for _, stored in objects.values()),
        empty_folders=tuple(sorted(folders - full)),
        metadata=metadata,
    )


def _fits(entry: FileEntry, manifest: Manifest) -> bool:
    objects = manifest.objects
    return sum(part.size_bytes for part in entry.parts) == entry.size_bytes and all(
        0 <= part.object < len(objects)
        and part.offset >= 0
        and part.size_bytes >= 0
        and part.offset + part.size_bytes <= objects[part.object].size_bytes
        for part in entry.parts
    )


def escape(path: str) -> str:
    """A file's path as it stands in keys of plain files (`exports`)."""
    return "".join(f"%{ord(letter):02X}" if letter in _ESCAPED else letter for letter in path)
