"""Who is asking: the flow run, its attempt, the task run. Names sweeps, so that a retry finds them again.

The key of a sweep comes from the *root* flow run and the task's name. Both stay through `prefect flow-run
retry`; the id of a task run does not, that of a subflow may not, and `task_key` changes with the task's code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext, TaskRunContext
from prefect.runtime import flow_run

from raysweep.spec.identity import digest_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """The flow run on whose behalf something is run."""

    root_id: UUID
    """The flow run that a person sees, cancels and retries."""
    attempt: int
    """How often that has been run, this time included."""
    flow_run_id: UUID
    """The root, or a subflow of it."""
    task_run_id: UUID | None


def find_asker() -> Asker | None:
    """Who runs this task; None outside of a flow."""
    context = FlowRunContext.get()
    task = TaskRunContext.get()
    if context is None or context.flow_run is None:
        return None
    own = context.flow_run
    root_id = UUID(str(flow_run.root_flow_run_id))
    attempt = own.run_count
    if root_id != own.id:
        with get_client(sync_client=True) as client:
            attempt = client.read_flow_run(root_id).run_count
    task_run_id = task.task_run.id if task is not None else None
    return Asker(root_id=root_id, attempt=attempt, flow_run_id=own.id, task_run_id=task_run_id)


def default_key(name: str) -> str | None:
    """The key of a step that was given none: the flow run and the step's name; None outside of a flow."""
    root_id = flow_run.root_flow_run_id
    return f"{root_id}:{name}" if root_id else None


def cache_key(context: TaskRunContext, parameters: dict[str, Any]) -> str | None:
    """For `cache_key_fn`: within one flow run, the same step with the same arguments is not run again.

    Not beyond it: what is finished is returned by the sweep's own storage, which knows when it is gone or has
    to go on.
    """
    root_id = flow_run.root_flow_run_id
    if not root_id:
        return None
    plain = orjson.loads(orjson.dumps(parameters, default=_plain, option=orjson.OPT_NON_STR_KEYS))
    return f"raysweep-{root_id}-{context.task.name}-{digest_of(plain)}"


def _plain(value: Any) -> Any:
    """As JSON, secrets masked; what has no such form counts by its type."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    address = getattr(value, "address", None)
    return str(address) if address is not None else type(value).__qualname__
