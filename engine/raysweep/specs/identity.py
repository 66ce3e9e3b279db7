"""The identity of a run: kind, name, key and the id made from them; and the digest of a spec."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, Protocol, Self

from raysweep.documents.validation import Problem, show
from raysweep.errors import SpecError

SLUG_CHARACTERS = 40
Kind = Literal["sweep", "train"]
# Runs of one name and key share a storage path, but no folder. Ids are on disk: this never changes.
_PREFIXES: Final[dict[Kind, str]] = {"sweep": "", "train": "train "}
_SLUG: Final = re.compile("[a-z0-9-]+")
_ID_CHARACTERS: Final = SLUG_CHARACTERS + 1 + 10


def slug(name: str) -> str:
    """The name in at most 40 of `a-z0-9-`, with no dash at either end; may be empty.

    A name that is longer than that ends with a digest of all of it: no two have the same.
    """
    plain = _plain(name)
    if len(plain) <= SLUG_CHARACTERS:
        return plain
    return f"{plain[: SLUG_CHARACTERS - 9].strip('-')}-{_mark(name)}"


def file_name(name: str) -> str:
    """The name as that of a file: no two names have the same, however they are spelled."""
    plain = slug(name)
    return (
        plain
        if (plain and plain == name) or len(_plain(name)) > SLUG_CHARACTERS
        else f"{plain}-{_mark(name)}"
    )


def _plain(name: str) -> str:
    ascii_only = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", ascii_only).strip("-")


def _mark(name: str) -> str:
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def check_distinct(names: Iterable[str], field_name: str) -> None:
    """See that runs of these names have ids of their own. Raises: SpecError that names two that have not."""
    by_slug: dict[str, str] = {}
    for name in names:
        other = by_slug.setdefault(slug(name), name)
        if other != name:
            raise SpecError(
                field_name,
                f"{show(other)} and {show(name)} would have the same id, {slug(name)}-…",
                "let them differ in ASCII letters or digits",
            )


def key_within(key: str, part: str, digest: str) -> str:
    """The key of a run that belongs to another one: `2026-11-21/gate-0123456789ab`."""
    return f"{key}/{part}-{digest}"


def check_name(name: str) -> str:
    """The name, if an id can be made from it. Raises Problem."""
    if not slug(name):
        problem = "is empty" if not name.strip() else f"{show(name)} has no ASCII letter or digit"
        raise Problem(problem, 'give a name such as "flights"')
    if not name.isprintable():
        raise Problem(f"{show(name)} has control characters", f'give a name such as "{slug(name)}"')
    return name


class Identified(Protocol):
    """A spec, as far as the id of its run follows from it."""

    kind: ClassVar[Kind]

    @property
    def name(self) -> str:
        """The name that ids of its runs begin with."""
        ...

    def digest(self) -> str:
        """The digest of the spec."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunId:
    """The identity of a run: made once, where a spec and a key come in, and passed on from there.

    Raises SpecError for a name without a letter or digit.
    """

    kind: Kind
    name: str
    key: str
    id: str = field(init=False)
    """`slug-0123456789`: the slug of the name, and blake2b of the key; equal kind, name and key, equal id."""

    def __post_init__(self) -> None:
        _check_text("name", self.name)
        _check_text("key", self.key)
        if not slug(self.name):
            problem = f"{show(self.name)} has no ASCII letter or digit"
            raise SpecError("name", problem, 'give a name such as "flights"')
        object.__setattr__(self, "id", f"{slug(self.name)}-{_key_digest(self.kind, self.key)}")

    @classmethod
    def of(cls, spec: Identified, key: str | None) -> Self:
        """Of this spec under this key. Without one the digest is the key: the same spec is the same run."""
        named = key if key is not None else f"spec-{spec.digest()[:16]}"
        return cls(kind=spec.kind, name=spec.name, key=named)

    @classmethod
    def stored(cls, kind: Kind, name: str, key: str) -> Self:
        """Of a run that may be stored under this name and key."""
        return cls(kind=kind, name=name, key=key)


def is_run_id(text: str) -> bool:
    """True if a text has the form of a run's id; another one names no folder."""
    return len(text) <= _ID_CHARACTERS and _SLUG.fullmatch(text) is not None


def is_id_of(run_id: str, kind: Kind, key: str) -> bool:
    """True if a text from outside is the id of a run of this kind and key, whatever its name."""
    name, _, digest = run_id.rpartition("-")
    return _SLUG.fullmatch(name) is not None and digest == _key_digest(kind, key)


def _key_digest(kind: Kind, key: str) -> str:
    # A key from outside may hold lone surrogates; they must not make the id fail.
    hashed = (_PREFIXES[kind] + key).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(hashed, digest_size=5).hexdigest()


def _check_text(field_name: str, given: object) -> None:
    """See that it is text: YAML and templates make dates and numbers of some."""
    if not isinstance(given, str):
        problem = f"expected text, got {show(given)} ({type(given).__name__})"
        raise SpecError(field_name, problem, f'write {field_name}="{given}", in YAML in quotes')


def sweep_id(name: str, key: str) -> str:
    """The id of the sweep of this name under this key. Raises SpecError as `RunId`."""
    return RunId(kind="sweep", name=name, key=key).id


def id_beginning(name: str, key: str | None, kind: Kind = "sweep") -> str:
    """The id of the run of this name and key; without a key, how the ids of its runs begin."""
    whole = RunId(kind=kind, name=name, key=key or "").id
    return whole if key is not None else whole.rpartition("-")[0] + "-"
