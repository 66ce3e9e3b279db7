"""`working_dir` and `py_modules` as packages: zips that are named by their content and uploaded once.

The name is a digest of paths, modes and bytes, and of nothing else: the same files, touched or copied, are
the same package. What is left out unasked, and why, is in `Package.left_out`: see `ignores.py`. No link can
bring in anything from outside the folder.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from raysweep.errors import SpecError
from raysweep.jobs.code.ignores import IGNORE_FILES, SECRET_REASON, Patterns, default_reason
from raysweep.jobs.code.secret_names import is_secret_folder

LIMIT_BYTES: Final = 100 * 1024 * 1024
"""The limit of Ray's head. Counted before compression, so that it is known before anything is read."""
_CHUNK_BYTES: Final = 1024 * 1024
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A file or folder that is not in the package, and why."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path} ({self.why})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file of a package."""

    name: str
    """Its path in the zip."""
    source: Path | bytes = field(repr=False)
    size_bytes: int
    is_executable: bool = False

    def chunks(self) -> Iterator[bytes]:
        """Its content. Raises SpecError if it cannot be read."""
        if isinstance(self.source, bytes):
            yield self.source
            return
        try:
            with open(self.source, "rb", buffering=0) as file:
                while chunk := file.read(_CHUNK_BYTES):
                    yield chunk
        except OSError as error:
            raise SpecError(
                "working_dir", f"{self.source} cannot be read ({error.strerror})", "exclude it"
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package that may be uploaded; its bytes are made only where they are needed."""

    uri: str
    """`gcs://_ray_pkg_<digest>.zip`: the form that Ray's head stores and its nodes unpack."""
    entries: tuple[Entry, ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Before compression."""
        return sum(entry.size_bytes for entry in self.entries)

    def to_zip(self, on_read: Callable[[int], None] | None = None) -> bytes:
        """The zip; equal packages give equal bytes. Raises SpecError where a file has changed meanwhile.

        `on_read`: told how many bytes have been read.
        """
        out, done = io.BytesIO(), 0
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            digest = hashlib.blake2b(digest_size=20)
            for entry in self.entries:
                info = zipfile.ZipInfo(entry.name, _EPOCH)
                info.compress_type = zipfile.ZIP_DEFLATED
                info.create_system = 3
                info.external_attr = (stat.S_IFREG | (0o755 if entry.is_executable else 0o644)) << 16
                _begin(digest, entry)
                content = hashlib.blake2b(digest_size=20)
                with archive.open(info, "w") as file:
                    for chunk in entry.chunks():
                        content.update(chunk)
                        file.write(chunk)
                        done += len(chunk)
                        if on_read is not None:
                            on_read(done)
                digest.update(content.digest())
        if _uri(digest) != self.uri:
            raise SpecError("working_dir", "has changed while it was packed", "submit again")
        return out.getvalue()


def pack_working_dir(
    folder: str | os.PathLike[str], *, excludes: Sequence[str] = (), includes: Sequence[str] = ()
) -> Package:
    """The files of a folder, for the job to run in.

    Args:
        folder: A folder on this machine.
        excludes: Further patterns as in a .gitignore; its `.gitignore` and `.rayignore` files count too.
        includes: Patterns of what to take although its name says that it may be a secret, or made by a tool.

    Raises: SpecError for what is not a folder, holds nothing, cannot be read, or is larger than 100 MiB.
    """
    root = _folder(folder, "working_dir")
    return _pack(root, "", "working_dir", excludes, includes)


def pack_module(
    path: str | os.PathLike[str], *, excludes: Sequence[str] = (), includes: Sequence[str] = ()
) -> Package:
    """A Python package (its folder) or module (its `.py` file), to be imported by its name.

    Raises: SpecError, as `pack_working_dir`.
    """
    given = Path(path).expanduser()
    if given.suffix == ".py" and given.is_file():
        size_bytes = given.stat().st_size
        return make_package((Entry(name=given.name, source=given, size_bytes=size_bytes),))
    root = _folder(given, "py_modules")
    return _pack(root, f"{root.name}/", "py_modules", excludes, includes)


def make_package(entries: Sequence[Entry], left_out: Sequence[LeftOut] = ()) -> Package:
    """A package of these files, in the order of their names."""
    ordered = tuple(sorted(entries, key=lambda entry: entry.name))
    digest = hashlib.blake2b(digest_size=20)
    for entry in ordered:
        _begin(digest, entry)
        content = hashlib.blake2b(digest_size=20)
        for chunk in entry.chunks():
            content.update(chunk)
        digest.update(content.digest())
    return Package(uri=_uri(digest), entries=ordered, left_out=tuple(left_out))


def _begin(digest: hashlib.blake2b, entry: Entry) -> None:
    digest.update(f"{entry.name}\0{'x' if entry.is_executable else '-'}\0".encode())


def _uri(digest: hashlib.blake2b) -> str:
    return f"gcs://_ray_pkg_{digest.hexdigest()}.zip"


def _folder(given: str | os.PathLike[str], field_name: str) -> Path:
    path = Path(given).expanduser()
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise SpecError(field_name, f"{str(path)!r} {what}", "name a folder, or the URI of a package")
    # Resolved: links are judged by where they lead, and a module is called by its folder's own name.
    return path.resolve()


def _pack(
    root: Path, prefix: str, field_name: str, excludes: Sequence[str], includes: Sequence[str]
) -> Package:
    walk = _Walk(root, Patterns.of(excludes), Patterns.of(includes))
    walk.take(root, "", ())
    if not walk.entries:
        raise SpecError(field_name, f"{str(root)!r} holds no file to take", "name another folder")
    total = sum(entry.size_bytes for entry in walk.entries)
    if total > LIMIT_BYTES:
        raise SpecError(
            field_name,
            f"{str(root)!r} has {_mib(total)}, and {_mib(LIMIT_BYTES)} is the limit; largest: "
            + ", ".join(_largest(walk.entries)),
            "exclude data (excludes=, .rayignore), and read it from the storage instead",
        )
    placed = [
        Entry(
            name=prefix + entry.name,
            source=entry.source,
            size_bytes=entry.size_bytes,
            is_executable=entry.is_executable,
        )
        for entry in walk.entries
    ]
    return make_package(placed, walk.left_out)


class _Walk:
    """Collects the files of a folder, and what is left out of it."""

    def __init__(self, root: Path, excludes: Patterns, includes: Patterns) -> None:
        self.entries: list[Entry] = []
        self.left_out: list[LeftOut] = []
        self._root = root
        self._excludes = excludes
        self._includes = includes
        self._above: list[Path] = []

    def take(self, folder: Path, prefix: str, lists: tuple[tuple[str, Patterns], ...]) -> None:
        """One folder, and those in it. `prefix` is its path in the package, with a slash at the end."""
        self._above.append(folder)
        try:
            found = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            raise SpecError(
                "working_dir", f"{folder} cannot be read ({error.strerror})", "exclude it"
            ) from None
        lists = (*lists, *_ignore_lists(found, prefix))
        for entry in found:
            self._take_one(entry, f"{prefix}{entry.name}", lists)
        self._above.pop()

    def _take_one(self, entry: os.DirEntry[str], name: str, lists: tuple[tuple[str, Patterns], ...]) -> None:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise SpecError("working_dir", f"{name!r} is no UTF-8", "rename it, or exclude it") from None
        path = Path(entry.path)
        if entry.is_symlink():
            problem, path = self._follow(path)
            if problem:
                self._leave(name, problem)
                return
        is_folder = path.is_dir()
        why = self._reason(name, path, lists, is_folder=is_folder)
        if why:
            self._leave(f"{name}/" if is_folder else name, why)
        elif is_folder:
            self.take(path, f"{name}/", lists)
        elif path.is_file():
            status = path.stat()
            is_executable = bool(status.st_mode & stat.S_IXUSR)
            self.entries.append(
                Entry(name=name, source=path, size_bytes=status.st_size, is_executable=is_executable)
            )
        else:
            self._leave(name, "no regular file")

    def _follow(self, link: Path) -> tuple[str, Path]:
        """The reason why a link is not followed ("" where it is), and its target."""
        if os.path.isabs(os.readlink(link)):
            return "an absolute link", link
        try:
            target = link.resolve(strict=True)
        except (OSError, RuntimeError):
            return "a link that leads nowhere", link
        if not target.is_relative_to(self._root):
            return "a link that leads out of the folder", link
        if target in self._above:
            return "a link to a folder that it is in", link
        return "", target

    def _reason(
        self, name: str, path: Path, lists: tuple[tuple[str, Patterns], ...], *, is_folder: bool
    ) -> str:
        if self._excludes.match(name, is_folder=is_folder):
            return "excluded"
        if self._includes.match(name, is_folder=is_folder):
            return ""
        # A link may have another name than what it leads to, which may lie in a folder that is left out.
        real = path.relative_to(self._root).parts if path != self._root else ()
        named = [(tuple(name.split("/")), is_folder)]
        named += [(real[:end], is_folder or end < len(real)) for end in range(1, len(real) + 1)]
        for parts, is_one in named:
            folder = "".join(parts[-2:-1])
            if why := default_reason(parts[-1], folder=folder, is_folder=is_one):
                return why
        if is_folder and is_secret_folder(path.name) and not any(path.glob("*.py")):
            return SECRET_REASON
        if is_folder and (path / "pyvenv.cfg").is_file():
            return "a virtual environment"
        for base, patterns in lists:
            if patterns.match(name.removeprefix(base), is_folder=is_folder):
                return "in an ignore file"
        return ""

    def _leave(self, name: str, why: str) -> None:
        self.left_out.append(LeftOut(path=name, why=why))


def _ignore_lists(found: Sequence[os.DirEntry[str]], prefix: str) -> Iterator[tuple[str, Patterns]]:
    for entry in found:
        if entry.name in IGNORE_FILES and entry.is_file(follow_symlinks=False):
            text = Path(entry.path).read_text(encoding="utf-8", errors="replace")
            yield prefix, Patterns.of(text.splitlines())


def _largest(entries: Sequence[Entry]) -> Iterator[str]:
    """The largest files, and the largest folders at the top where they hold more than one."""
    sizes: dict[str, int] = {}
    for entry in entries:
        top, slash, _ = entry.name.partition("/")
        if slash:
            sizes[f"{top}/"] = sizes.get(f"{top}/", 0) + entry.size_bytes
        sizes[entry.name] = entry.size_bytes
    for name in sorted(sizes, key=lambda each: (-sizes[each], each))[:_SHOWN]:
        yield f"{name} ({_mib(sizes[name])})"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 1024**2:.1f} MiB"
