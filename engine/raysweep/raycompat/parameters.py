"""`tune.with_parameters`: where it keeps what it was given, taken out of the trainable that is sent.

A wrapped trainable holds on to a registry. It is pickled without its registries, and unpickled with others in
their places that give references to Ray's object store, or values.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from raysweep.threads import loaded_module

Objects = Mapping[str, Any]
"""The objects given to one call of `with_parameters`: by its names, references or values."""


class Registry:
    """Gives what it holds, as Ray's registry does; from the object store where it holds references."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def get(self, name: str) -> Any:
        """Called by the wrapped trainable, at the start of each trial."""
        held = self._objects[name]
        return _fetch(held) if _is_reference(held) else held


def dump(trainable: Any) -> tuple[bytes, list[Any]]:
    """The trainable, pickled by value without its registries; and these, in their order."""
    import cloudpickle
    from ray.tune.registry import _ParameterRegistry

    registries: list[Any] = []

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
        def persistent_id(self, obj: Any) -> int | None:
            if not isinstance(obj, _ParameterRegistry):
                return None
            if obj not in registries:
                registries.append(obj)
            return registries.index(obj)

    buffer = io.BytesIO()
    Pickler(buffer).dump(trainable)
    return buffer.getvalue(), registries


def load(pickled: bytes, parameters: Sequence[Objects]) -> Any:
    """The trainable again, with these in the places of its registries."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> Registry:
            return Registry(parameters[pid])

    return Unpickler(io.BytesIO(pickled)).load()


def references(registries: Sequence[Any]) -> tuple[Objects, ...]:
    """Their objects, put into the object store of the Ray that this process is connected to, once."""
    for registry in registries:
        registry.flush()
    return tuple(dict(registry.references) for registry in registries)


def fetch(parameters: Sequence[Objects]) -> tuple[Objects, ...]:
    """The values behind references."""
    return tuple({name: _fetch(held) for name, held in objects.items()} for objects in parameters)


@contextmanager
def kept(registries: Sequence[Any]) -> Iterator[None]:
    """Keep their objects beyond a Ray that begins and ends in here: the next one is given them anew."""
    import ray

    held = [dict(registry.to_flush) for registry in registries]
    try:
        yield
    finally:
        if not ray.is_initialized():
            for registry, objects in zip(registries, held, strict=True):
                for name, value in objects.items():
                    registry.references.pop(name, None)
                    registry.to_flush[name] = value


def _is_reference(held: Any) -> bool:
    ray = loaded_module("ray")
    return ray is not None and isinstance(held, ray.ObjectRef)


def _fetch(held: Any) -> Any:
    import ray

    return ray.get(held)
