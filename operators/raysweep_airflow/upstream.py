"""The job that a gate or a training takes from the sweep before it, where its own task gives none.

A task's *sources* are the tasks whose results it is given; where it is given none by reference, as with a
template, those upstream of it. A worker renders a copy of the task, so the DAG still has the references.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow.sdk import XComArg

from raysweep.errors import SpecError


def job_before(operator: Any) -> Any:
    """The `job` of the nearest source that has one; None where none has.

    Each task of the DAG is looked at once. Raises: SpecError where two of the nearest differ.
    """
    dag = operator.get_dag()
    level = {operator.task_id} if dag is not None else set()
    seen: set[str] = set()
    while level := {name for each in level for name in _sources(dag, each)} - seen:
        seen |= level
        found = {name: job for name in level if (job := _job_of(dag.task_dict[name])) is not None}
        jobs = list(found.values())
        if any(job != jobs[0] for job in jobs):
            problem = f"{' and '.join(sorted(found))} have different jobs"
            raise SpecError("job", problem, "give this task a job of its own")
        if jobs:
            return jobs[0]
    return None


def _sources(dag: Any, task_id: str) -> Iterator[str]:
    task = dag.task_dict.get(task_id)
    if task is None:
        return
    given = [getattr(task, name, None) for name in task.template_fields]
    if task.is_mapped:
        given = [task.partial_kwargs, _expanded(task)]
    found = {each.task_id for each, _ in XComArg.iter_xcom_references(given)}
    yield from (name for name in found or task.upstream_task_ids if name in dag.task_dict)


def _expanded(task: Any) -> Any:
    """What a mapped task is mapped over; that of a decorated one stands apart."""
    return getattr(task, "op_kwargs_expand_input", task.expand_input).value


def _job_of(task: Any) -> Any:
    """The job of one of raysweep's tasks, mapped or not; None for any other task."""
    kind = task.operator_class if task.is_mapped else type(task)
    if not getattr(kind, "is_job_operator", False):
        return None
    return task.partial_kwargs.get("job") if task.is_mapped else task.job
