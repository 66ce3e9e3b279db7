"""The session behind the API of a trial, and the context that `get_context` returns."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Union

if TYPE_CHECKING:
    from os import PathLike

    from raysweep.specs.scheduled_config import ScheduledConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialContext:
    """The context of the calling code.

    `iteration` is the number of reports that lie behind the checkpoint this attempt began from (0 without
    one); `seed` is at least 0 and below 2**31; `rank`, also `world_rank`, of `world_size`, is that of the
    process in its gang, `local_rank` that among those on its node, `node_rank` that of its node (0 of 1, 0
    and 0 for a trial of one process).
    `schedule`: in a training, the configs that a population's best trial had one after the other, each with
    the number of reports (`start`) that lay behind it; else empty. `trackers`: the environment variables
    that name the trial's runs at the sweep's trackers, such as `WANDB_RUN_GROUP` and `MLFLOW_RUN_ID`.
    """

    sweep_id: str
    trial_id: str
    number: int
    attempt: int
    seed: int
    iteration: int = 0
    rank: int = 0
    world_size: int = 1
    resources: dict[str, float] = field(default_factory=dict)
    local_rank: int = 0
    node_rank: int = 0
    schedule: tuple[ScheduledConfig, ...] = ()
    trackers: Mapping[str, str] = field(default_factory=dict)

    def config_at(self, step: int, config: Mapping[str, Any]) -> dict[str, Any]:
        """The config for the step after `step` steps: the schedule's; without one, `config`.

        Args:
            step: How many steps lie behind, counted as the trial of the sweep counted its reports.
            config: What the trainable was called with.
        """
        found = next((each.config for each in reversed(self.schedule) if each.start <= step), config)
        return dict(found)

    @property
    def world_rank(self) -> int:
        """The same as `rank`, by its name in Ray Train."""
        return self.rank


class RayCheckpoint(Protocol):
    """The part of `ray.train.Checkpoint` that `report` uses."""

    def as_directory(self) -> AbstractContextManager[str]:
        """A local directory with it."""
        ...


@dataclass(frozen=True, slots=True)
class StoredAt:
    """A checkpoint that user code has stored itself."""

    uri: str


Reported = Union["str | PathLike[str]", StoredAt, None]
"""The checkpoint of a report."""


class TrialSession(Protocol):
    """The session behind these calls: a trial's, or a training worker's."""

    @property
    def context(self) -> TrialContext: ...

    @property
    def should_checkpoint(self) -> bool: ...

    def report(self, metrics: dict[str, Any], checkpoint: Reported, wait: bool) -> None: ...

    def get_checkpoint(self) -> AbstractContextManager[Path] | None: ...

    def new_checkpoint(self) -> AbstractContextManager[Path]: ...

    def count_stray(self) -> None:
        """The attempt has ended, and a call of a thread or a task of its is refused."""
        ...
