"""Names of Airflow that are in other places before 3.3, and the parts that an older Airflow does not have.

Airflow 3.3 has all of them in `airflow.sdk`. Airflow 3.0 to 3.2 has no task state store, no retry policies
and no `on_kill` of triggers; docs/versions.md has the consequences.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from airflow.sdk import BaseHook, conf
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
    )
else:

    def _first(name: str, *modules: str) -> Any:
        for module in modules:
            try:
                return getattr(import_module(module), name)
            except (ImportError, AttributeError):
                continue
        raise ImportError(f"{name} is in none of {', '.join(modules)}")

    BaseHook = _first("BaseHook", "airflow.sdk", "airflow.sdk.bases.hook", "airflow.hooks.base")
    conf = _first("conf", "airflow.sdk", "airflow.configuration")
    _ERRORS = ("airflow.sdk.exceptions", "airflow.exceptions")
    AirflowException = _first("AirflowException", *_ERRORS)
    AirflowFailException = _first("AirflowFailException", *_ERRORS)
    AirflowNotFoundException = _first("AirflowNotFoundException", *_ERRORS)
    AirflowSkipException = _first("AirflowSkipException", *_ERRORS)

try:
    from airflow.sdk.exceptions import TaskAwaitingInput
except ImportError:  # before 3.3 such a task is deferred to a trigger
    TaskAwaitingInput = None  # type: ignore[assignment,misc]

__all__ = [
    "STORE",
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSkipException",
    "BaseHook",
    "TaskAwaitingInput",
    "TryStore",
    "conf",
    "renders_native",
    "store_of",
]

STORE: Final = "task_state_store"
"""The name of the task state store in a task's context, since Airflow 3.3."""


class TryStore:
    """The task state store of an Airflow before 3.3: it lasts as long as the task's process.

    A later try finds what it has to know beside its run in the storage (`RunView.kept_step`).
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        """A value of this try."""
        return self._values.get(key, default)

    def set(self, key: str, value: Any, retention: timedelta | None = None) -> None:
        """Keep a value for this try."""
        self._values[key] = value


def renders_native(operator: Any, dag: Any) -> bool:
    """True if the operator's templates give Python objects; before Airflow 3.2 only its DAG may say so."""
    asked = getattr(operator, "_should_render_native", None)
    if asked is not None:
        return bool(asked(dag))
    return dag is not None and bool(dag.render_template_as_native_obj)


def store_of(context: Mapping[str, Any]) -> Any:
    """The task state store of a task's context, or one for this try where Airflow has none."""
    found = context.get(STORE)
    return TryStore() if found is None else found
