"""The page's facts about a task instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raysweep_airflow.page.place import Place

OPERATORS: Final = frozenset(
    {"SweepOperator", "GateOperator", "TrainOperator", "JudgeOperator", "@task.sweep"}
)
"""Airflow's names for tasks of raysweep's operators, and of subclasses (`custom_operator_name`)."""
FINISHED: Final = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """One task instance. Times are UTC seconds."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    state: str = ""
    """Airflow's; empty before it is scheduled."""
    operator: str = ""
    try_number: int = 0
    started_at: float | None = None
    place: Place | None = None
    """The place of its sweep, once the operator has said so."""

    @property
    def is_finished(self) -> bool:
        """True if Airflow will do no more with it by itself."""
        return self.state in FINISHED
