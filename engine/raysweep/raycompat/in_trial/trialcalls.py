"""The interface of a trial for the calls of Ray Tune and Ray Train."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol


class TrialCalls(Protocol):
    """A trial, as these calls see it."""

    @property
    def experiment(self) -> str:
        """The sweep's id."""
        ...

    @property
    def trial_id(self) -> str:
        """The trial's id."""
        ...

    @property
    def resources(self) -> dict[str, float]:
        """The resources of the trial, in Ray's keys."""
        ...

    @property
    def rank(self) -> int:
        """Among the processes of the trial."""
        ...

    @property
    def local_rank(self) -> int:
        """Among those of them on this node."""
        ...

    @property
    def node_rank(self) -> int:
        """This node's, among theirs."""
        ...

    @property
    def world_size(self) -> int:
        """The number of processes of the trial."""
        ...

    def folder(self) -> Path:
        """A folder of the attempt's own on this node, which is removed at its end."""
        ...

    def report(self, metrics: dict[str, Any], checkpoint: Any) -> None:
        """Report, with a `ray.train.Checkpoint` or None."""
        ...

    def get_checkpoint(self) -> Any:
        """The newest checkpoint as a `ray.train.Checkpoint`, or None."""
        ...
