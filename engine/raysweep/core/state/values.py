"""Values that are made for each trial: frozen for the type checker, made in a third of the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def hot_value(cls: type[T]) -> type[T]:
    """A dataclass with slots and keywords, whose fields do not change once it is made.

    A frozen dataclass sets each field by a call of `object.__setattr__`: of what the controller did for a
    short trial, a tenth. Here only the type checker forbids it.
    """
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(cls)
