"""Python objects in a tuner's space: a config holds a text for each, and the trainable has the object.

Configs are stored as JSON, and nothing that is read back is unpickled. The text names the object's type and,
where its content has one, a digest: a resume with another object is another spec. The objects themselves go
to the workers with the trainable. They are never ranked: to a search, they are texts.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
from collections.abc import Mapping
from typing import Any, Final

from raysweep.documents.code.trainable import digest_of_code
from raysweep.documents.code.tune_objects import is_tune_class
from raysweep.documents.json_values import plain
from raysweep.documents.validation import Problem

_ORDERED: Final = (set, frozenset)
"""Their pickled form follows from the order of hashes, which is another in each process."""


class Objects(dict[str, Any]):
    """Objects by the texts that stand for them."""

    def text_of(self, value: Any) -> str:
        """The text for an object: the same for the same object."""
        base = _describe(value)
        number, text = 1, f"<{base}>"
        while text in self and self[text] is not value:
            number += 1
            text = f"<{base} #{number}>"
        self[text] = value
        return text


def to_texts(value: Any, objects: Objects) -> Any:
    """A constant in which texts stand for what JSON cannot hold; `objects` receives these."""
    if isinstance(value, Mapping):
        return {
            key if isinstance(key, str) else objects.text_of(key): to_texts(item, objects)
            for key, item in value.items()
        }
    if type(value) in (list, tuple):
        return type(value)(to_texts(item, objects) for item in value)
    try:
        return plain(value)
    except Problem:
        return objects.text_of(value)


def to_objects(value: Any, objects: Mapping[str, Any]) -> Any:
    """A config, or a part of one, with the objects in the places of their texts."""
    if isinstance(value, str):
        return objects.get(value, value)
    if isinstance(value, dict):
        return {objects.get(key, key): to_objects(item, objects) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(to_objects(item, objects) for item in value)
    return value


def with_objects(trainable: Any, objects: Mapping[str, Any]) -> Any:
    """The trainable, whose configs have the objects in the places of their texts."""
    if is_tune_class(trainable):
        return _class_with(trainable, dict(objects))
    return _function_with(trainable, dict(objects))


def _function_with(trainable: Any, objects: Mapping[str, Any]) -> Any:
    @functools.wraps(trainable, updated=("__dict__",) if hasattr(trainable, "__dict__") else ())
    def inner(config: dict[str, Any]) -> Any:
        return trainable(to_objects(config, objects))

    return inner


def _class_with(cls: type[Any], objects: Mapping[str, Any]) -> type[Any]:
    def make(self: Any, config: dict[str, Any] | None = None, *args: Any, **named: Any) -> None:
        cls.__init__(self, to_objects(config, objects), *args, **named)

    def reset(self: Any, config: dict[str, Any], *args: Any, **named: Any) -> Any:
        return cls.reset(self, to_objects(config, objects), *args, **named)

    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    return type(cls.__name__, (cls,), {"__init__": make, "reset": reset, **names})


def _describe(value: Any) -> str:
    if isinstance(value, int | float | str):
        return f"{type(value).__name__} {value}"
    if callable(value) and hasattr(value, "__qualname__"):
        return (
            f"{getattr(value, '__module__', None) or 'builtins'}:{value.__qualname__} {digest_of_code(value)}"
        )
    kind = f"{type(value).__module__}:{type(value).__qualname__}"
    return f"{kind} {digest}" if (digest := _digest(value)) else kind


def _digest(value: Any) -> str:
    """Ten hex digits over the content; empty where it has none that is the same in another process."""
    if type(value).__module__.partition(".")[0] == "ray" or isinstance(value, _ORDERED):
        return ""
    try:
        content = pickle.dumps(value, protocol=4)
    except Exception:  # noqa: BLE001  whatever its parts raise
        return ""
    return hashlib.blake2b(content, digest_size=5).hexdigest()
