"""A training as a sweep: the spec of a sweep of one trial that trains the one config.

The trial is inline: its body (`trial_body`) runs where the sweep runs, and holds nothing of the cluster. Its
workers are asked for by Ray Train, so that their number may change, and a start waits for no further process.
What the sweep decides for trials in general is left to the body, which knows more: retries of workers,
limits with their grace period. Its checkpoints are the trial's: the sweep keeps the last two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from raysweep.documents.json_values import plain
from raysweep.specs import SweepSpec, TrainSpec

CHECKPOINTS_KEPT: Final = 2
Body = Callable[[dict[str, Any]], Any]


def sweep_of(train: TrainSpec, body: Body | str) -> SweepSpec:
    """The sweep of one trial that a training is.

    Args:
        train: The training.
        body: What the trial runs.
    """
    shown = plain(train.config) or {"trainable": train.what_runs}
    return SweepSpec(
        name=train.name,
        trainable=body,
        # A list of configs takes values as they are; in a space some would be read as domains.
        param_space=dict.fromkeys(shown),
        search={"configs": {"configs": [shown]}},
        isolation="inline",
        max_concurrent_trials=1,
        failure={"max_failures": 0, "non_finite": "ignore", "breaker_trials": 0},
        checkpoint={"keep_last": CHECKPOINTS_KEPT, "keep_best": False},
        callbacks=train.callbacks,
        storage_path=train.storage_path,
        tags=dict(train.tags),
    )
