"""Attempts that do nothing, run by a process before it forks those that do.

Python makes functions faster while they run, and writes that into them. A child that ran them for the first
time would have to copy each of these pages.
"""

from __future__ import annotations

from typing import Any, Final

from raysweep import faultplan
from raysweep.messages import FromWorker, Job
from raysweep.worker.checkpoints import saver  # noqa: F401  a child that makes a checkpoint need not import it
from raysweep.worker.link import Take
from raysweep.worker.runner import run_attempt
from raysweep.worker.shell import WorkerShell
from raysweep.worker.sweep_info import SweepPlace
from raysweep.worker.wire import TO_WORKER, FrameReader, encode, pack

# CPython looks at a function again after eight calls, and at each of its instructions after some more.
TIMES: Final = 20


def rehearse(place: SweepPlace) -> None:
    """Run them. Not under a plan of faults: none of these is meant by it."""
    if faultplan.current() is not None:
        return
    shell = WorkerShell(_Nowhere())
    reader = FrameReader(TO_WORKER)
    for trial in range(TIMES):
        for messages in reader.feed(pack([Job(trial=trial, attempt=1, config={}, seed=trial)])):
            shell.take(messages)
        job = shell.next_job()
        assert job is not None
        run_attempt(_trainable, job, place, shell)


def _trainable(config: dict[str, Any]) -> dict[str, float]:
    return {"rehearsed": 0.0}


class _Nowhere:
    """A link on which nothing leaves."""

    def listen(self, take: Take, on_gone: Any) -> None:
        """See `Link`."""

    def send(self, message: FromWorker, *, waits: bool = False) -> None:
        """See `Link`."""
        encode(message)

    def send_now(self, message: FromWorker) -> None:
        """See `Link`."""
        encode(message)

    def send_row(self, *row: Any) -> None:
        """See `Link`."""

    def close(self, timeout_s: float | None = None) -> None:
        """See `Link`."""
