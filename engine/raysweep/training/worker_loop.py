"""The function that each Ray Train worker runs: it loads and calls the user's trainable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from raysweep import trial
from raysweep.errors import message_of
from raysweep.specs.scheduled_config import ScheduledConfig
from raysweep.training.worker_output import kept_output
from raysweep.training.worker_session import (
    TrainWorkerSession,
    keep_checkpoints,
    returned_metrics,
    set_warm_start,
    train_rank,
)
from raysweep.worker.host.pinning import pin
from raysweep.worker.process.stray_guard import guard_descendants
from raysweep.worker.setup import WorkerSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainLoop:
    """A picklable training function.

    The trainable travels as bytes and is loaded in the training thread: an import that fails there is the
    user's error with its traceback, and counts against `failure.max_failures`, instead of a worker that
    never starts.
    """

    run_id: str
    storage_path: str
    """The storage path of the run's folder."""
    payload: bytes
    """The trainable, pickled by `ray.cloudpickle`."""
    warm_start: str | None
    above: int
    """The numbers of its checkpoints are above this one."""
    schedule: tuple[ScheduledConfig, ...] = ()
    """The value of `get_context().schedule`."""
    setup: WorkerSetup | None = None
    """Of the sweep's worker: where output is kept."""
    pinned_cpus: float = 0.0
    """The number of CPUs that each worker has to itself."""

    def __call__(self, config: dict[str, Any]) -> Any:
        from ray import cloudpickle

        guard_descendants()
        pin(self.pinned_cpus)
        set_warm_start(self.warm_start)
        trial.activate(TrainWorkerSession(self.run_id, self.schedule))
        try:
            with (
                kept_output(self.setup, train_rank()[0]),
                keep_checkpoints(self.storage_path, self.run_id, self.above),
            ):
                trainable = cloudpickle.loads(self.payload)
                return returned_metrics(trainable(config))
        except BaseException as error:
            raised = portable(error)
            if raised is error:
                raise
            raise raised from error.__cause__
        finally:
            trial.activate(None)


def portable(error: BaseException) -> BaseException:
    """The error, or one that says the same where it would not survive its way to the controller.

    One that cannot be pickled, or unpickled, as of a class whose `__init__` takes other arguments than those
    that it hands on, would look there like the death of its worker.
    """
    from ray import cloudpickle

    message = message_of(error)
    try:
        pickled: bytes = cloudpickle.dumps(error)  # type: ignore[no-untyped-call]
        if str(cloudpickle.loads(pickled)) == message:
            return error
    except BaseException:  # noqa: BLE001  whatever its class does
        pass
    kind = type(error)
    # Under its own name; it is pickled with the class itself, as this one is not what the module has.
    stand_in = type(
        kind.__name__, (Exception,), {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    )
    raised: BaseException = stand_in(message).with_traceback(error.__traceback__)
    return raised
