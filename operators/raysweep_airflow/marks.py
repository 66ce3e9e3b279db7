"""Marks: who marks a task by hand ends its sweep, whatever the task is doing at that moment.

Its process, or its trigger, sees the mark and cancels the job. Between its deferral and the start of its
trigger there is neither. So Airflow's listener, in the api-server that takes the mark, sees it as well, and
asks the job's driver, through the storage, to end.

- **The api-server waits for nothing.** A hook notes which task it was, and returns. A few threads do the
  rest, and what they cannot do is logged: then the trigger does it, or the lease.
- **Only what is so.** Hooks are called before the mark is committed: it is believed once the database has it.
- **Only ours.** Tasks of raysweep's operators, and a run of which the storage has a job: nothing is made
  elsewhere.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from airflow.listeners import hookimpl

from raysweep_airflow.identity import TaskId, why_over
from raysweep_airflow.page.task import FINISHED, OPERATORS

if TYPE_CHECKING:
    from raysweep_airflow.page.place import Place
    from raysweep_airflow.page.task import TaskView

LOG: Final = logging.getLogger("raysweep_airflow.marks")
MAX_WAITING: Final = 1000
"""The number of marks that may wait for a thread: a run with many mapped sweeps is marked at once."""
THREADS: Final = 4
COMMIT_S: Final = 10.0
"""The longest time for the database to show a mark."""
LOOK_S: Final = 0.2
PAUSES_S: Final = (1.0, 3.0, 9.0, 27.0)
"""Between the times that it is tried."""


class Marks:
    """Airflow's listener: the process that changes a task's state calls its hooks, within its transaction."""

    def __init__(self) -> None:
        self._marked: queue.Queue[TaskId] = queue.Queue(MAX_WAITING)
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    @hookimpl
    def on_task_instance_failed(self, previous_state: Any, task_instance: Any) -> None:
        """A task has failed, or was marked so."""
        self._note(previous_state, task_instance)

    @hookimpl
    def on_task_instance_success(self, previous_state: Any, task_instance: Any) -> None:
        """A task has succeeded, or was marked so."""
        self._note(previous_state, task_instance)

    @hookimpl
    def on_task_instance_skipped(self, previous_state: Any, task_instance: Any) -> None:
        """A task has skipped itself, or was marked as skipped."""
        self._note(previous_state, task_instance)

    def _note(self, previous_state: Any, task_instance: Any) -> None:
        """Never raises, and never waits."""
        if previous_state is not None:
            return  # not by hand: workers and schedulers say what it was
        try:
            if task_instance.operator_name not in OPERATORS:
                return
            fields = ("dag_id", "run_id", "task_id", "map_index")
            self._marked.put_nowait(TaskId(**{name: getattr(task_instance, name) for name in fields}))
            self._start_threads()
        except queue.Full:
            LOG.warning("%s was marked among too many others: its trigger ends its sweep", task_instance)
        except Exception:
            LOG.exception("a mark was not understood: its trigger ends its sweep")

    def _start_threads(self) -> None:
        """At the first mark, and not before: the process may fork until then."""
        with self._lock:
            while len(self._threads) < THREADS:
                thread = threading.Thread(target=self._work, name="raysweep-marks", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _work(self) -> None:
        while True:
            end_patiently(self._marked.get())
            self._marked.task_done()


def end_patiently(task: TaskId) -> None:
    """End what a marked task had running; never raises."""
    for pause_s in (*PAUSES_S, None):
        try:
            end_if_over(task)
            return
        except Exception as error:
            if pause_s is None:
                LOG.exception("%s: its mark was not handed on; its trigger ends its sweep", task.key)
                return
            LOG.warning("%s: %s: %s; trying again", task.key, type(error).__name__, error)
            time.sleep(pause_s)


def end_if_over(task: TaskId) -> None:
    """Ask the job of a task to end, if the database says that the task is over. May raise whatever."""
    view = _committed(task)
    if view is None or view.place is None or not view.place.job_id:
        return  # it was cleared since, or has submitted nothing: then its process ends it
    if ask_to_end(view.place, why_over(view.state), task):
        LOG.warning("%s: job %s was asked to end", why_over(view.state), view.place.job_id)


def _committed(task: TaskId) -> TaskView | None:
    """The task as it is in the database, once that shows the mark; None where it never does."""
    from raysweep_airflow.page.lookup import find_task  # the models: of the api-server, not of workers

    deadline = time.monotonic() + COMMIT_S
    while True:
        view = find_task(task.dag_id, task.run_id, task.task_id, task.map_index)
        if view is not None and view.state in FINISHED:
            return view
        if time.monotonic() > deadline:
            return None
        time.sleep(LOOK_S)


def ask_to_end(place: Place, reason: str, task: TaskId) -> bool:
    """Store the request, of a task's own DAG; whether there was a job to end."""
    from raysweep.runs.reading.view import RunView

    run = RunView(place.kind, place.storage_path, place.run_id)
    number = place.job_number
    # A storage that is another one here, as a folder of this machine, knows no job.
    if not number or not place.is_of(task.dag_id) or run.newest_job() < number or run.outcome() is not None:
        return False
    asked = run.cancellation()
    if asked is not None and asked.number >= number:
        return False
    run.ask_to_cancel(reason, task.canceller, number=number)
    return True
