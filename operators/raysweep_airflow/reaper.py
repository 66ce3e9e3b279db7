"""The reaper: ends jobs whose task is over in Airflow, however that came, within a minute or two.

A mark is seen by the listener and by the trigger, but not all ends are marks: a process that is killed with
no retry left, a run that meets its `dagrun_timeout` while the triggerer is away, a mark while the api-server
was restarted. So a thread of each api-server compares, again and again, the database with the storages.

- It has what it needs already: the database, and the storages (`marks.py` writes the same request).
- It acts on what it has seen in two rounds, so that those that are nearer come first: trigger, listener.
- It names the job, so that a try after a clear is never hit; that try sees by whom its job was ended, and
  continues.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from raysweep_airflow.identity import TaskId, why_ended
from raysweep_airflow.marks import ask_to_end
from raysweep_airflow.page.task import FINISHED

LOG: Final = logging.getLogger("raysweep_airflow.reaper")
EVERY_S: Final = 30.0
WINDOW: Final = timedelta(hours=24)
"""Tasks that ended earlier are not looked at: their jobs have ended by their lease."""
TRIES: Final = 5
"""The number of times that a storage which fails is asked about one task."""

Over = tuple[TaskId, str]


class Reaper:
    """Compares tasks that are over with their jobs; one round after the other."""

    def __init__(self) -> None:
        self._seen: set[Over] = set()
        self._settled: set[Over] = set()
        self._failures: Counter[Over] = Counter()

    def round(self) -> None:
        """Look once. Raises whatever the database raises."""
        from raysweep_airflow.page.lookup import find_over  # the models: of the api-server, not of workers

        over = find_over(datetime.now(UTC) - WINDOW)
        self._settled &= over
        for each in (over & self._seen) - self._settled:
            if self._settle(each):
                self._settled.add(each)
        self._seen = over

    def _settle(self, over: Over) -> bool:
        """Settle a task that is over; True if nothing more is to be done about it."""
        task, _ = over
        try:
            end_if_over(task)
        except Exception as error:  # noqa: BLE001  whatever it is, the next round tries it again
            self._failures[over] += 1
            LOG.warning(
                "%s: whether its job runs is not known: %s: %s", task.key, type(error).__name__, error
            )
            return self._failures[over] >= TRIES
        return True


def end_if_over(task: TaskId) -> None:
    """Ask the job of a task to end, if the task is over. May raise whatever."""
    from raysweep_airflow.page.lookup import find_task

    view = find_task(task.dag_id, task.run_id, task.task_id, task.map_index)
    if view is None or view.state not in FINISHED or view.place is None:
        return
    reason = why_ended(view.state)
    if ask_to_end(view.place, reason, task):
        LOG.warning("%s: %s, job %s was asked to end", task.key, reason, view.place.job_id)


@contextmanager
def reaping(every_s: float = EVERY_S) -> Iterator[None]:
    """Look on a thread of its own until the block ends."""
    ended, reaper = threading.Event(), Reaper()

    def run() -> None:
        while not ended.wait(every_s):
            try:
                reaper.round()
            except Exception:
                LOG.exception("tasks that are over could not be compared with their jobs")

    threading.Thread(target=run, name="raysweep-reaper", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
