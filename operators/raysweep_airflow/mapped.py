"""Arguments of a task that other tasks returned: data, in which nothing is rendered.

Airflow names such values to an operator by their identity (`seen_oids`), which a copy of them does not have,
and names none of `expand_kwargs`. So it is asked here by the argument's name: which arguments of the mapped
task are references to other tasks' results, and not values that the DAG's author wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflow.sdk.definitions._internal.mixins import ResolveMixin


def handed_over(operator: Any, context: Mapping[str, Any]) -> frozenset[str]:
    """The arguments of a task that came from other tasks; what it is mapped over costs one more request."""
    own = {name for name in (*operator.template_fields, "job") if is_reference(getattr(operator, name, None))}
    return frozenset(own | _mapped_over(operator, context))


def without_references(operator: Any, names: Iterable[str], seen_oids: set[int]) -> set[int]:
    """The identities of data alone: in rows of `expand_kwargs` Airflow names references too, unresolved."""
    values = (getattr(operator, name, None) for name in names)
    return seen_oids - {id(value) for value in values if is_reference(value)}


def is_reference(value: Any) -> bool:
    """True if a value is the result of another task, which is known only when the task runs."""
    return isinstance(value, ResolveMixin)


def _mapped_over(operator: Any, context: Mapping[str, Any]) -> set[str]:
    dag = operator.get_dag()
    task: Any = dag.task_dict.get(operator.task_id) if dag is not None else None
    if not getattr(task, "is_mapped", False):
        return set()
    given = task.expand_input.value
    if isinstance(given, Mapping):
        return {name for name, value in given.items() if is_reference(value)}
    row = given[context["ti"].map_index] if isinstance(given, Sequence) else given
    if is_reference(row):
        return set(task.expand_input.resolve(context)[0])
    return {name for name, value in row.items() if is_reference(value)}
