"""The request of a run: a spec and the id of its run, together from the door to the storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from raysweep.specs.identity import RunId
from raysweep.specs.sweep import SweepSpec
from raysweep.specs.train import TrainSpec

SpecT = TypeVar("SpecT", bound=SweepSpec | TrainSpec, covariant=True)
GivenT = TypeVar("GivenT", bound=SweepSpec | TrainSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest(Generic[SpecT]):
    """A spec, placed (its local storage path is absolute), and which run of it is meant."""

    spec: SpecT
    run: RunId

    @staticmethod
    def of(spec: GivenT, key: str | None) -> RunRequest[GivenT]:
        """Of this spec under this key; without one the digest of the placed spec is the key."""
        placed: Any = spec.placed()
        return RunRequest(spec=placed, run=RunId.of(placed, key))


AnyRequest = RunRequest[SweepSpec | TrainSpec]
