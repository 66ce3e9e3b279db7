"""The actor that splits a data set among workers, with its executor in a trial's bundle for data.

Imports Ray Data, and runs in a process of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import ray
from ray.data._internal.iterator import stream_split_iterator

from raysweep.raycompat.in_trial.dataplace import DataPlace, enter_data

_theirs: Final[Any] = stream_split_iterator
_TheirCoordinator: Final[Any] = _theirs.SplitCoordinator.__ray_metadata__.modified_class.__ray_actor_class__
_splitting: Final = threading.Lock()


class PlacedCoordinator(_TheirCoordinator):  # type: ignore[misc]
    """Ray Data's own, whose executor has its tasks and actors there."""

    def __init__(self, place: DataPlace, *args: Any) -> None:
        enter_data(place)
        super().__init__(*args)


class _Placed:
    """In place of `SplitCoordinator` where an iterator makes one."""

    def __init__(self, place: DataPlace, options: dict[str, Any] | None = None) -> None:
        self._place, self._options = place, options or {}

    def options(self, **options: Any) -> _Placed:
        return _Placed(self._place, options)

    def remote(self, *args: Any) -> Any:
        made: Any = ray.remote(num_cpus=0)(PlacedCoordinator)
        return made.options(**self._options).remote(self._place, *args)


@contextmanager
def coordinators_at(place: DataPlace) -> Iterator[None]:
    """Data sets that are split meanwhile are read there."""
    with _splitting:
        before = _theirs.SplitCoordinator
        _theirs.SplitCoordinator = _Placed(place)
        try:
            yield
        finally:
            _theirs.SplitCoordinator = before
