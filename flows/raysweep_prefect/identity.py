"""The flow run that asks, its attempt, the task run. Names sweeps, so that a retry finds them again.

The key of a sweep comes from its *owner* and the task's name. The owner is the flow run with a process of its
own, which Prefect cancels, retries and loses as one: the root flow run, or, where a flow started the run of a
deployment (`run_deployment`), that run. Both names stay through `prefect flow-run retry`; the id of a task
run does not, that of a subflow may not, and `task_key` changes with the task's code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext, TaskRunContext
from prefect.runtime import flow_run

from raysweep.documents.digest import digest_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """The flow run on whose behalf something is run."""

    owner_id: UUID
    """The flow run with a process of its own, which a person cancels and retries."""
    attempt: int
    """The number of times that this has been run, this time included."""
    flow_run_id: UUID
    """The owner, or a subflow in its process."""
    task_run_id: UUID | None


def find_asker() -> Asker | None:
    """The flow run that runs this task; None outside of a flow."""
    context = FlowRunContext.get()
    task = TaskRunContext.get()
    if context is None or context.flow_run is None:
        return None
    own, owner = context.flow_run, _owner_of(context.flow_run)
    task_run_id = task.task_run.id if task is not None else None
    return Asker(owner_id=owner.id, attempt=owner.run_count, flow_run_id=own.id, task_run_id=task_run_id)


def owner_id() -> str | None:
    """The id of the flow run that owns what is run here; None outside of a flow."""
    context = FlowRunContext.get()
    if context is not None and context.flow_run is not None:
        return str(_owner_of(context.flow_run).id)
    if not flow_run.id:
        return None
    # A task runner without the flow's context: on another machine.
    with get_client(sync_client=True) as client:
        return str(_owner_of(client.read_flow_run(UUID(str(flow_run.id)))).id)


def has_own_process(run: FlowRun) -> bool:
    """True if it is the run of a deployment, or the root; else it is a subflow in the process of its parent.

    A run that `run_deployment` started has a parent too.
    """
    return run.deployment_id is not None or run.parent_task_run_id is None


def _owner_of(run: FlowRun) -> FlowRun:
    """The nearest of the flow run and its parents that has a process of its own."""
    while not has_own_process(run):
        assert run.parent_task_run_id is not None
        with get_client(sync_client=True) as client:
            parent = client.read_task_run(run.parent_task_run_id).flow_run_id
            if parent is None:
                break
            run = client.read_flow_run(parent)
    return run


def default_key(kind: str) -> str | None:
    """The key of a step that was given none: its owner and the task's name; None outside of a flow.

    Args:
        kind: What the step is named where another task calls its function.
    """
    owner = owner_id()
    return f"{owner}:{_task_name() or kind}" if owner else None


def _task_name() -> str | None:
    """The name of the task that runs, if it is one of this package's: `with_options(name=...)` may set it."""
    context = TaskRunContext.get()
    is_ours = context is not None and context.task.fn.__module__.partition(".")[0] == __package__
    return context.task.name if context is not None and is_ours else None


def cache_key(context: TaskRunContext, parameters: dict[str, Any]) -> str | None:
    """For `cache_key_fn`: within one flow run, the same step with the same arguments is not run again.

    Not beyond it: what is finished is returned by the sweep's own storage, which knows when it is gone or has
    to continue.
    """
    owner = owner_id()
    if not owner:
        return None
    plain = orjson.loads(orjson.dumps(parameters, default=_plain, option=orjson.OPT_NON_STR_KEYS))
    return f"raysweep-{owner}-{context.task.name}-{digest_of(plain)}"


def _plain(value: Any) -> Any:
    """As JSON, secrets masked; what has no such form counts by its type."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    address = getattr(value, "address", None)
    return str(address) if address is not None else type(value).__qualname__
