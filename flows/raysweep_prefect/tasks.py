"""A sweep and a training run as Prefect tasks: retried where a retry can help, resumed where they stopped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed

import raysweep as rs
from raysweep_prefect.listening import tell_listeners

SpecT = TypeVar("SpecT", rs.SweepSpec, rs.TrainSpec)
Document = dict[str, Any] | str
"""A spec as a mapping, or the path of a YAML or JSON file."""


def is_retryable(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """Whether another try may help: for lost clusters and storage yes, for bad specs and user code no."""
    try:
        state.result()
    except rs.RaysweepError as error:
        return error.retryable
    except Exception:  # noqa: BLE001  not ours: whatever it was, the same call would end the same way
        return False
    return False


@task(
    name="sweep",
    task_run_name="sweep {key}",
    retries=2,
    retry_delay_seconds=[10, 60],
    retry_condition_fn=is_retryable,
    cache_policy=NO_CACHE,
)
def sweep(
    spec: Document, key: str, address: str | None = None, storage_path: str | None = None
) -> rs.SweepOutcome:
    """Run a sweep, or go on with it where an earlier run with this key stopped.

    Args:
        spec: The sweep's spec.
        key: Names the run: the same key is the same sweep.
        address: A Ray cluster; default: the Ray of this process, else an embedded one.
        storage_path: In place of the spec's own.

    Raises:
        SweepFailedError: The sweep ended without a result that may be used.
        RaysweepError: As `raysweep.run_sweep`.
    """
    asked = _placed(rs.SweepSpec.from_any(spec), storage_path)
    with _interruptible():
        outcome = rs.run_sweep(asked, key=key, address=address, on_progress=tell_listeners)
    return outcome.raise_for_status()


@task(
    name="gate",
    task_run_name="gate {key}",
    retries=2,
    retry_delay_seconds=[10, 60],
    retry_condition_fn=is_retryable,
    cache_policy=NO_CACHE,
)
def gate(
    spec: Document,
    key: str,
    outcome: rs.SweepOutcome,
    gate_spec: dict[str, Any],
    address: str | None = None,
    storage_path: str | None = None,
) -> rs.SweepOutcome:
    """Run the best configs again beside the champion; returns the sweep's outcome with the verdict in it.

    Args:
        spec: The sweep's spec.
        key: Names the night.
        outcome: What the sweep gave.
        gate_spec: What its best has to show: the fields of a `GateSpec`.
        address: As in `sweep`.
        storage_path: As in `sweep`.

    Raises:
        RaysweepError: As `raysweep.pipeline.run_gate`.
    """
    from raysweep.pipeline import run_gate, with_gate
    from raysweep.spec.pipeline import GateSpec

    asked = _placed(rs.SweepSpec.from_any(spec), storage_path)
    with _interruptible():
        verdict = run_gate(
            asked,
            outcome,
            GateSpec.model_validate(gate_spec),
            address=address,
            on_progress=tell_listeners,
        )
    return with_gate(outcome, verdict)


@task(
    name="train",
    task_run_name="train {key}",
    retries=2,
    retry_delay_seconds=[10, 60],
    retry_condition_fn=is_retryable,
    cache_policy=NO_CACHE,
)
def train(
    spec: Document,
    key: str,
    outcome: rs.SweepOutcome | None = None,
    address: str | None = None,
    storage_path: str | None = None,
) -> Any:
    """Train at full scale, with the best config of `outcome` under the spec's own `config`.

    With a key that was trained before it returns that run's outcome, or goes on from its newest checkpoint.
    What the gate did not promote is not trained: the task is completed, named Skipped, and says why.

    Raises:
        TrainingFailedError: The training failed.
        RaysweepError: As `raysweep.run_training`.
    """
    from raysweep.pipeline import train_best
    from raysweep.pipeline.night import why_skipped

    asked = _placed(rs.TrainSpec.from_any(spec), storage_path)
    with _interruptible():
        if outcome is None:
            return rs.run_training(asked, key=key, address=address).raise_for_status()
        skipped = why_skipped(asked, outcome)
        if skipped:
            return Completed(name="Skipped", message=skipped)  # Prefect takes a state that a task returns
        return train_best(asked, outcome, key=key, address=address)


@contextmanager
def _interruptible() -> Iterator[None]:
    """An interruption is no failure of the task: Prefect sees it as what it is, and nothing retries it."""
    try:
        yield
    except rs.SweepInterrupted as error:
        raise KeyboardInterrupt(str(error)) from None


def _placed(spec: SpecT, storage_path: str | None) -> SpecT:
    return spec if storage_path is None else spec.replace(storage_path=storage_path)
