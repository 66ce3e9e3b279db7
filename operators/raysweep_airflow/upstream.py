"""Facts that a task takes from the tasks around it: the job of the sweep, and whether a judge follows.

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


def is_judged(gate: Any) -> bool:
    """True for the nearest gate before a judge of the DAG. Each task is looked at once."""
    dag = gate.get_dag()
    tasks = dag.task_dict if dag is not None else {}
    level = {name for name, task in tasks.items() if _name_of(task) == "JudgeOperator"}
    seen: set[str] = set()
    while level := {name for each in level for name in _sources(dag, each)} - seen:
        seen |= level
        if gate.task_id in level:
            return True
        level = {name for name in level if _name_of(tasks[name]) != "GateOperator"}
    return False


def is_behind_judge(approval: Any) -> bool:
    """True where the nearest gate or judge before this task is a judge. Each task is looked at once."""
    dag = approval.get_dag()
    level = {approval.task_id} if dag is not None else set()
    seen: set[str] = set()
    while level := {name for each in level for name in _sources(dag, each)} - seen:
        seen |= level
        names = {_name_of(dag.task_dict[name]) for name in level}
        if names & {"JudgeOperator", "GateOperator"}:
            return "JudgeOperator" in names
    return False


def _name_of(task: Any) -> str:
    """Airflow's name of the operator of a task, mapped or not."""
    kind = task.operator_class if task.is_mapped else type(task)
    return str(getattr(kind, "custom_operator_name", ""))


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
    """The values that a mapped task is mapped over; those of a decorated one stand apart."""
    return getattr(task, "op_kwargs_expand_input", task.expand_input).value


def _job_of(task: Any) -> Any:
    """The job of one of raysweep's tasks, mapped or not; None for any other task."""
    kind = task.operator_class if task.is_mapped else type(task)
    if not getattr(kind, "is_job_operator", False):
        return None
    return task.partial_kwargs.get("job") if task.is_mapped else task.job
