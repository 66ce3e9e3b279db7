"""Something is done once a module is imported: now if it is already, else when user code imports it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final, Generic, NamedTuple, TypeVar

InsideT = TypeVar("InsideT")
_waiting: Final[dict[str, dict[str, Callable[[ModuleType], None]]]] = {}


def after_import(name: str, call: Callable[[ModuleType], None], key: str = "") -> None:
    """Call `call(module)` once the module of this name is imported.

    A later call for it, with the same key, takes the place of this one.
    """
    module = sys.modules.get(name)
    if module is not None and not _is_loading(module):
        call(module)
        return
    _waiting.setdefault(name, {})[key] = call
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def is_awaited(name: str, key: str = "") -> bool:
    """True if a call of `after_import` waits for this module."""
    return key in _waiting.get(name, ())


class Door(NamedTuple, Generic[InsideT]):
    """The changes to the module of this name while something is inside, undone when it leaves."""

    name: str
    enter: Callable[[ModuleType, InsideT], None]
    leave: Callable[[ModuleType], None]


class Doors(Generic[InsideT]):
    """Modules that one thing at a time goes into: now where they are imported, else once they are."""

    def __init__(self, *doors: Door[InsideT]) -> None:
        self._doors = doors
        self._inside: InsideT | None = None

    def enter(self, inside: InsideT) -> None:
        """From now on it is inside."""
        self._inside = inside
        for door in self._doors:
            # What waits for an import continues waiting while nothing is inside: that is free.
            if door.name in sys.modules or door.name not in _waiting:
                after_import(door.name, partial(self._go_through, door.enter))

    def leave(self) -> None:
        """Nothing is inside any more."""
        self._inside = None
        for door in self._doors:
            if (module := sys.modules.get(door.name)) is not None:
                door.leave(module)

    def _go_through(self, enter: Callable[[ModuleType, InsideT], None], module: ModuleType) -> None:
        if self._inside is not None:
            enter(module, self._inside)


def _is_loading(module: ModuleType) -> bool:
    return bool(getattr(module.__spec__, "_initializing", False))


class _Finder(MetaPathFinder):
    """Finds such a module as any other import does, and calls when it has been loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        calls = _waiting.pop(fullname, None)
        if calls is None:
            return None
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            _waiting.setdefault(fullname, calls)
        if spec is not None and spec.loader is not None:
            spec.loader = _CallingLoader(spec.loader, fullname)
        return spec


_FINDER: Final = _Finder()


class _CallingLoader(Loader):
    def __init__(self, inner: Loader, name: str) -> None:
        self._inner = inner
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        for call in _waiting.pop(self._name, {}).values():
            call(module)

    def __getattr__(self, name: str) -> Any:
        # Resources, source code and the like are the real loader's business.
        return getattr(self._inner, name)
