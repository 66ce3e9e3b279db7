"""The abilities of a whole spec beyond its fields: reading and writing files, and its digest."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path as FilePath
from typing import Annotated, Any, Final, Self

import orjson
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from raysweep.documents.base import SpecModel
from raysweep.documents.code.trainable import check_reference, trainable_name
from raysweep.documents.digest import digest_of
from raysweep.documents.text import read_json, read_yaml, write_yaml
from raysweep.documents.validation import Problem, did_you_mean, show
from raysweep.errors import SpecError
from raysweep.specs.identity import check_name

SCHEMES = ("file", "s3", "gs", "az", "memory")
_SAME_SCHEME = {
    "gcs": "gs",
    "s3a": "s3",
    "s3n": "s3",
    "azure": "az",
    "abfs": "az",
    "abfss": "az",
    "wasb": "az",
    "local": "file",
}
_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//)?")


def check_storage_path(given: Any) -> Any:
    """A local path or a URL of a known scheme, without a trailing slash. Raises Problem."""
    if isinstance(given, os.PathLike):
        given = os.fspath(given)
    if not isinstance(given, str):
        raise Problem(
            f"expected a path or a URL, got {show(given)}", 'write "~/raysweep" or "s3://bucket/sweeps"'
        )
    text = given.strip()
    if not text:
        raise Problem("is empty", 'write "~/raysweep" or "s3://bucket/sweeps", or leave it out')
    _refuse_variable(text, given)
    found = _SCHEME.match(text)
    if found is None:
        return text.rstrip("/") or "/"
    scheme, slashes = found.group(1), found.group(2)
    if scheme.lower() not in SCHEMES:
        if not slashes:
            return text.rstrip("/")  # a file may have a colon in its name
        same = _SAME_SCHEME.get(scheme.lower())
        fix = f"did you mean '{same}://'?" if same else did_you_mean(scheme, SCHEMES)
        raise Problem(f"unknown scheme {scheme!r} in {show(given)}", fix)
    rest = text[found.end() :]
    _refuse_query(scheme.lower(), rest)
    if not slashes:
        raise Problem(f"{show(given)} is not a URL", f'write "{scheme.lower()}://{rest.lstrip("/")}"')
    if scheme.lower() == "file":
        if not rest.startswith("/"):
            raise Problem(f"{show(given)} names a host", f'write "file:///{rest}" with three slashes')
    elif not rest.strip("/") and scheme.lower() != "memory":
        raise Problem(f"{show(given)} names no bucket or folder", f'write "{scheme.lower()}://bucket/folder"')
    if "@" in rest.split("/")[0]:
        raise Problem(
            "has credentials or an '@' in it, and would be stored",
            "give credentials by environment variables",
        )
    tail = rest.rstrip("/")
    return f"{scheme.lower()}://{tail or ('/' if rest.startswith('/') else '')}"


def _refuse_variable(text: str, given: Any) -> None:
    """No variable is expanded: a path means the same on each machine that reads the spec."""
    found = _VARIABLE.search(text)
    if found is not None:
        home = found.group(1) or found.group(2)
        fix = f'write "~{text[found.end() :]}"' if home == "HOME" and not found.start() else ""
        problem = f"{show(given)} has {found.group()}, and variables are not expanded"
        raise Problem(problem, fix or "write the path itself, or expand it with os.path.expandvars")


def _refuse_query(scheme: str, rest: str) -> None:
    """A query, such as Ray Tune's `?endpoint_override=`, would be a part of the folder's name."""
    path, mark, query = rest.partition("?")
    if not mark or scheme in ("file", "memory"):
        return
    options = dict(part.partition("=")[::2] for part in query.split("&"))
    endpoint = options.get("endpoint_override")
    url = f'write "{scheme}://{path}"'
    if endpoint and scheme == "s3":
        address = endpoint if "://" in endpoint else f"{options.get('scheme', 'https')}://{endpoint}"
        url += f", and set AWS_ENDPOINT_URL={address} in the environment where the sweep runs"
    else:
        url += ", and give options by environment variables (docs/guides/storage.md)"
    raise Problem(f"has a query, ?{query}, which a path cannot have", url)


DEFAULT_STORAGE: Final = "~/raysweep"
Name = Annotated[str, AfterValidator(check_name)]
StoragePath = Annotated[str, BeforeValidator(check_storage_path)]
Trainable = Annotated[
    str | Callable[..., Any],
    BeforeValidator(check_reference),
    PlainSerializer(trainable_name, return_type=str),
    WithJsonSchema({"type": "string", "minLength": 1}),
]
ImportPath = Annotated[str, Field(min_length=1)]
"""The JSON Schema of an import path, for a model that reads one too."""


def as_given(given: Any) -> Any:
    """For fields whose model reads more forms than its own schema says: the field's schema adds them."""
    return given


def anywhere(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A spec's fields without tags, callbacks and share, and as if it had the default storage path.

    What is stored is the same run under every name of its store, and after a move.
    """
    kept = {name: value for name, value in fields.items() if name not in ("tags", "callbacks", "share")}
    return kept | ({"storage_path": DEFAULT_STORAGE} if "storage_path" in kept else {})


def read_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields in a `.yaml`, `.yml` or `.json` file, as they are written there. Raises SpecError."""
    where = os.fspath(path)
    suffix = FilePath(path).suffix.lower()
    if suffix not in (".yaml", ".yml", ".json"):
        raise SpecError(where, f"unknown kind of file {suffix!r}", "use a .yaml, .yml or .json file")
    try:
        text = FilePath(path).expanduser().read_bytes()
    except OSError as error:
        raise SpecError(where, f"cannot be read: {error.strerror or error}", "check the path") from None
    return _mapping(read_json(text, where) if suffix == ".json" else read_yaml(text, where), where)


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise SpecError(where, f"expected a mapping, got {show(value)}", "write fields such as name: flights")


class SpecDocument(SpecModel):
    """A whole spec: `SweepSpec` or `TrainSpec`."""

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """From a JSON text. Raises SpecError."""
        return cls.model_validate(_mapping(read_json(text), "JSON"))

    @classmethod
    def from_yaml(cls, text: str | bytes) -> Self:
        """From a YAML text (YAML 1.2: `1e-4` is a number, `on` is a string). Raises SpecError."""
        return cls.model_validate(_mapping(read_yaml(text), "YAML"))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """From a `.yaml`, `.yml` or `.json` file. Raises SpecError."""
        return cls.model_validate(read_document(path))

    @classmethod
    def from_any(cls, given: Any) -> Self:
        """From a spec, a mapping, or the path of a file. Raises SpecError."""
        if isinstance(given, cls):
            return given
        if isinstance(given, Mapping):
            return cls.model_validate(given)
        if isinstance(given, str | os.PathLike):
            return cls.from_file(given)
        raise SpecError(
            "spec", f"expected a {cls.__name__}, a mapping or a path, got {show(given)}", "give one of these"
        )

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, validated as a whole; a new command replaces the trainable."""
        if changes.get("command") is not None:
            changes.setdefault("trainable", None)
        elif changes.get("trainable") is not None and "command" in type(self).model_fields:
            changes = {"command": None, "program": None, **changes}
        return super().replace(**changes)

    def placed(self) -> Self:
        """With a local `storage_path` that means the same in every folder that the spec is used from."""
        path: str = getattr(self, "storage_path", "")
        absolute = path if "://" in path else os.path.abspath(os.path.expanduser(path))
        return self if absolute == path else self.model_copy(update={"storage_path": absolute})

    @property
    def what_runs(self) -> str:
        """The name of its trainable, or its command as one line."""
        command: tuple[str, ...] | None = getattr(self, "command", None)
        return trainable_name(getattr(self, "trainable", "")) if command is None else shlex.join(command)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON data; callables as their references."""
        return self.model_dump(mode="json")

    def to_json(self) -> str:
        """As JSON text on one line, in the order of the fields; callables as their references."""
        return orjson.dumps(self.to_dict()).decode()

    def to_yaml(self) -> str:
        """As YAML, in the order of the fields; callables as their references."""
        return write_yaml(self.to_dict())

    def digest(self) -> str:
        """32 hex digits over everything except tags and storage path: equal specs have equal digests."""
        return digest_of(anywhere(self.to_dict()))

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """The JSON Schema (2020-12) of the JSON and YAML form. It accepts all that the model accepts."""
        schema = cls.model_json_schema(mode="validation")
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
