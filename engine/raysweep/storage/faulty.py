"""A store under a plan of faults: slow, failing, or deadly to its user, where the plan says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from raysweep.faultplan import ActivePlan
from raysweep.storage.store import Store, open_store
from raysweep.storage.wrapped import Operation, WrappedStore

T = TypeVar("T")


class FaultyStore(WrappedStore):
    """Each operation comes by the plan before and after. Pickles by its URL, as every store does."""

    def __init__(self, inner: Store, plan: ActivePlan) -> None:
        super().__init__(inner)
        self._plan = plan

    def around(self, operation: Operation, key: str, call: Callable[[], T]) -> T:
        """See the class."""
        self._plan.reach_store(operation, key, "before")
        result = call()
        self._plan.reach_store(operation, key, "after")
        return result

    def __reduce__(self) -> tuple[Callable[[str], Store], tuple[str]]:
        return open_store, (self.url,)
