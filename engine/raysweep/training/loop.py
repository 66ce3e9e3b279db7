"""What each Ray Train worker runs: the user's trainable, loaded in the worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from raysweep import trial
from raysweep.training.session import TrainWorkerSession, name_checkpoints, set_warm_start


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainLoop:
    """A picklable training function.

    The trainable travels as bytes and is loaded in the training thread: an import that fails there is the
    user's error with its traceback, and counts against `max_failures`, instead of a worker that never starts.
    """

    run_id: str
    payload: bytes
    """The trainable, pickled by `ray.cloudpickle`."""
    warm_start: str | None
    attempt: int
    """The number of the attempt, which the names of its checkpoints end with."""

    def __call__(self, config: dict[str, Any]) -> Any:
        from ray import cloudpickle

        set_warm_start(self.warm_start)
        name_checkpoints(self.attempt)
        trial.activate(TrainWorkerSession(self.run_id))
        try:
            trainable = cloudpickle.loads(self.payload)
            return trainable(config)
        finally:
            trial.activate(None)
