"""Records of a task's tries for the next one: in the task state store, with a copy beside the run.

Airflow may delete its rows, and deletes them with the DAG run; the copy in the storage stays, and may be that
of an earlier DAG run with the same ids (`is_of_run`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from raysweep.errors import StorageError
from raysweep.runs.reading.view import RunView
from raysweep_airflow.identity import TaskId
from raysweep_airflow.tries import Record, is_of_run

RECORD_KEY: Final = "raysweep"


class Records:
    """Of one try."""

    def __init__(self, context: Mapping[str, Any], store: Any, task: TaskId, log: Any) -> None:
        self._store, self._task, self._log = store, task, log
        self._try_number: int = context["ti"].try_number
        run = context.get("dag_run")
        self._began: datetime | None = getattr(run, "start_date", None)
        self.clear_number: int | None = getattr(run, "clear_number", None)
        """The number of times that tasks of this DAG run were cleared."""
        self._base: RunView

    @property
    def run_began(self) -> str:
        """The begin of this DAG run, as a record has it; empty where Airflow does not say."""
        return self._began.astimezone(UTC).isoformat() if self._began is not None else ""

    def find(self, base: RunView, key: str) -> tuple[Record | None, str]:
        """The record of earlier tries; and the end of the key, of a DAG run that was made again.

        Raises: StorageError.
        """
        self._base = base
        found = Record.from_dict(self._store.get(RECORD_KEY))
        if found is not None:
            return found, ""
        kept, number = Record.from_dict(base.kept_step()), self._try_number
        if not key.startswith(self._task.key):  # a gate's: the same for each task that asks for it
            return (kept if number > 1 else None), ""
        if kept is not None and self._is_ours(kept):
            return kept, ""
        if kept is None and (number > 1 or (base.outcome() is None and not base.newest_job())):
            return None, ""
        self._log.info("an earlier DAG run of this id has left run %r: beginning anew", key)
        return None, f"@{self._began or datetime.now(UTC):%Y%m%d%H%M%S%f}"

    def _is_ours(self, kept: Record) -> bool:
        began, clears = self.run_began, self.clear_number
        return is_of_run(kept, run_began=began, clear_number=clears, try_number=self._try_number)

    def keep(self, record: Record) -> None:
        """Keep it for the next try."""
        self._store.set(RECORD_KEY, record.to_dict())
        try:
            self._base.keep_step(record.to_dict())
        except StorageError as error:
            # Airflow has it; the copy counts only where Airflow has deleted that.
            self._log.warning("what the next try must know was not copied to the storage: %s", error)
