"""The identity of a task of a run: the key of a sweep is made of it, and its state is asked for by it.

The ids are the same for every try; a task instance's own id and its try number are not, and no part of a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from raysweep.outcome import Cancellation

# On these a person, or Airflow, wants nothing more of the sweep. All others may be followed by a new try.
DELETED: Final = "deleted"
"""In place of a state, of a task instance that Airflow does not know (any more)."""
_OVER: Final = frozenset({"failed", "success", "skipped", "upstream_failed", "removed", DELETED})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskId:
    """A task instance, whichever try."""

    dag_id: str
    task_id: str
    run_id: str
    map_index: int = -1

    @classmethod
    def of(cls, context: Mapping[str, Any]) -> Self:
        """Of the task that runs."""
        ti = context["ti"]
        index = getattr(ti, "map_index", None)
        return cls(
            dag_id=ti.dag_id,
            task_id=ti.task_id,
            run_id=ti.run_id,
            map_index=index if index is not None else -1,
        )

    @property
    def key(self) -> str:
        """The key of its sweep."""
        mapped = f"[{self.map_index}]" if self.map_index >= 0 else ""
        return f"{self.dag_id}/{self.task_id}/{self.run_id}{mapped}"

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON data."""
        return asdict(self)

    def metadata(self) -> dict[str, str]:
        """The metadata of the Ray job about it, in the dashboard."""
        return {f"airflow_{name}": str(value) for name, value in asdict(self).items()}

    def state(self) -> str | None:
        """Its state now, by the supervisor of this process, which may take a while.

        None: about to be run, as after a clear. `DELETED`: there is no such task instance, as its DAG, or its
        run, was deleted.
        """
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        by_run = RuntimeTaskInstance.get_task_states(
            dag_id=self.dag_id,
            task_ids=[self.task_id],
            run_ids=[self.run_id],
            map_index=self.map_index if self.map_index >= 0 else None,
        )
        states = by_run.get(self.run_id, {})
        name = self.task_id if self.map_index < 0 else f"{self.task_id}_{self.map_index}"
        if name not in states:
            return DELETED
        state = states[name]
        return str(getattr(state, "value", state)) if state is not None else None

    def why_over(self) -> str:
        """The reason why it wants nothing more of its sweep, by its state; empty where it does."""
        return why_over(self.state())

    @property
    def canceller(self) -> str:
        """The name of the task as the one that cancels on its behalf, for people."""
        return f"Airflow: {self.key}"

    def has_ended_by_mark(self, asked: Cancellation | None, number: int) -> bool:
        """True if this request to end job `number` was made on behalf of this task, as it was marked."""
        reasons = {why(state) for state in _OVER for why in (why_over, why_ended)}
        return (
            asked is not None
            and asked.names(number)
            and asked.by == self.canceller
            and asked.reason in reasons
        )


def why_over(state: str | None) -> str:
    """The reason why a task in this state wants nothing more of its sweep; empty where it does."""
    if state == DELETED:
        return "its task was deleted from Airflow"
    return f"its task was marked {state} in Airflow" if state in _OVER else ""


def why_ended(state: str) -> str:
    """The same where it is not known that it was marked: its retries, or its run's time, may be over."""
    return f"its task has ended in Airflow ({state})"
