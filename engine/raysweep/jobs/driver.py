"""The program of a job on the cluster: `python -m raysweep.jobs.driver`.

It finds its request on `sys.path`, connects to the cluster that it is in, and runs the sweep or the training
step there as `run_sweep` and `run_training` do. What is known of it goes through the storage; its own output
is for people, but for the last line of one that failed: `raysweep-error: {…}`, see `errorline.py`.

- SIGTERM is how Ray stops a job, and SIGKILL follows after 3 s: the sweep is cancelled, and has its outcome
  within two. A training step ends and can be continued with.
- A sweep or training whose lease expires ends, and can be resumed.
- A request in the storage to cancel it counts if it came since, or names this job (`python -m … <job id>`).

Exit codes: 0 an outcome was written, 1 it says `failed` or there is none, 2 bad input, 3 interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from raysweep.jobs.request import JobRequest
    from raysweep.outcome import SweepOutcome

DONE: Final = 0
FAILED: Final = 1
INTERRUPTED: Final = 3
CANCEL_REASON: Final = "its job was stopped"
# A stop that has found no controller by then finds none before SIGKILL either.
HAND_ON_S: Final = 1.5
LOOK_S: Final = 2.0
"""The seconds between two looks of a training's driver for a request to cancel it."""


class Stops:
    """The handling of SIGTERM: before there is anything to end, the process just ends."""

    def __init__(self) -> None:
        self._take: Callable[[], None] | None = None

    def install(self) -> None:
        """Handle SIGTERM from now on; again after `ray.init`, which takes it."""
        signal.signal(signal.SIGTERM, self._handle)

    def pass_to(self, take: Callable[[], None]) -> None:
        """From now on `take` is called, on the main thread."""
        self._take = take

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._take is None:
            os._exit(INTERRUPTED)
        self._take()


def main() -> NoReturn:
    """Run the request that lies on `sys.path`; ends the process."""
    stops = Stops()
    stops.install()
    from raysweep.jobs.releases import explained, submitter_version

    submitter = submitter_version(os.environ)
    error: BaseException | None = None
    code = FAILED
    try:
        code = _run(stops, submitter)
    except BaseException as raised:  # noqa: BLE001  it becomes the last line of the log, and the exit code
        error = explained(raised, submitter)
        code = int(getattr(raised, "exit_code", INTERRUPTED if _is_interrupt(raised) else FAILED))
    _leave()
    if error is not None:
        _say_error(error)
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of Ray or of user code must not keep a driver that is done.
    os._exit(code)


def find_request() -> JobRequest:
    """The request of this job. Raises SpecError where there is none, or it cannot be read."""
    from raysweep.errors import SpecError
    from raysweep.jobs.request import FILE, FOLDER, JobRequest

    for entry in sys.path:
        path = Path(entry or ".") / FOLDER / FILE
        if path.is_file():
            return JobRequest.from_json(path.read_bytes())
    raise SpecError(
        f"{FOLDER}/{FILE}", "is not on sys.path of this job", "submit sweeps with raysweep's client or CLI"
    )


def _run(stops: Stops, submitter: str) -> int:
    from raysweep.cluster.ray.connection import join_cluster
    from raysweep.jobs.releases import check_submitter, first_line

    _say(first_line(submitter))
    check_submitter(submitter)
    request, number = find_request(), own_number(sys.argv)
    with _logged():
        join_cluster()
        stops.install()
        if request.kind == "train":
            return _run_training(request, stops, number)
        return _run_sweep(request, stops, number)


def own_number(arguments: Sequence[str]) -> int:
    """The number of this job, from the id that its entrypoint ends with; 0 where it has none."""
    number = arguments[1].rpartition(".")[2] if len(arguments) > 1 else ""
    return int(number) if number.isdigit() else 0


# --- sweeps


def _run_sweep(request: JobRequest, stops: Stops, number: int) -> int:
    from raysweep.cluster.interrupts import Interrupts
    from raysweep.cluster.run import run_connected
    from raysweep.errors import SweepInterrupted
    from raysweep.jobs.notes import ProgressLines
    from raysweep.specs import RunRequest, SweepSpec
    from raysweep.threads import start_thread

    asked = RunRequest.of(SweepSpec.from_any(request.spec), request.key)
    spec, name = asked.spec, asked.run.id
    interrupts = Interrupts()
    notes = ProgressLines(_say, every_s=10.0)

    def run() -> SweepOutcome:
        return run_connected(
            asked,
            interrupts,
            on_progress=notes,
            takeover=request.options.takeover,
            continuing=request.options.continuing,
            job_number=number,
        )

    ending = _Ending(spec.storage_path, name)

    def cancel() -> None:
        _say(f"sweep {name}: {CANCEL_REASON}, cancelling it")
        interrupts.cancel(CANCEL_REASON)
        ending.begin()

    stops.pass_to(cancel)
    _say(f"sweep {name}: stored at {spec.storage_path}")
    with _leased(request, spec.storage_path, name, lambda: _expire(interrupts, ending)):
        running = start_thread(run, "raysweep-run")  # the main thread stays free for signals
        while not wait([running], 0.1).done:
            if ending.is_overdue and not interrupts.is_taken:
                ending.pass_on()
                raise SweepInterrupted(name, "its job was stopped before it ran; run it again to resume")
        if ending.has_expired and isinstance(running.exception(), SweepInterrupted):
            raise SweepInterrupted(
                name, "its lease was not renewed; run it again with the same key to resume"
            )
        outcome = running.result()
    _say(f"sweep {name}: {outcome.why}")
    _say_outcome(outcome.status)
    return FAILED if outcome.status == "failed" else DONE


def _expire(interrupts: Any, ending: _Ending) -> None:
    ending.has_expired = True
    interrupts.interrupt()
    ending.begin(is_cancel=False)


class _Ending:
    """A request to end that finds no controller in this process: it may be another's."""

    def __init__(self, storage_path: str, sweep_id: str) -> None:
        self._storage_path = storage_path
        self._sweep_id = sweep_id
        self._began_at: float | None = None
        self._is_cancel = True
        self.has_expired = False

    def begin(self, *, is_cancel: bool = True) -> None:
        """Note when the request came."""
        self._began_at, self._is_cancel = time.monotonic(), is_cancel

    @property
    def is_overdue(self) -> bool:
        """True if a controller would have taken the request by now."""
        return self._began_at is not None and time.monotonic() - self._began_at > HAND_ON_S

    def pass_on(self) -> None:
        """Tell the controller elsewhere, whom this process only follows."""
        from raysweep.outcome import Cancellation
        from raysweep.runs.folder import SweepFolder
        from raysweep.storage.objects.opening import open_store

        if self._is_cancel:
            folder = SweepFolder(open_store(self._storage_path), self._sweep_id)
            folder.write_cancellation(Cancellation(at=time.time(), by="a stopped job", reason=CANCEL_REASON))


# --- training steps


def _run_training(request: JobRequest, stops: Stops, number: int) -> int:
    from raysweep.cluster.interrupts import Interrupts
    from raysweep.errors import JobStoppedError, SweepInterrupted
    from raysweep.runs.folder import SweepFolder
    from raysweep.specs import RunRequest, TrainSpec
    from raysweep.storage.objects.opening import open_store
    from raysweep.threads import start_thread
    from raysweep.training import run_training

    asked = RunRequest.of(TrainSpec.from_any(request.spec), request.key)
    spec, run_id = asked.spec, asked.run.id
    interrupts = Interrupts(breaks_off=True)
    ending = _Ending(spec.storage_path, run_id)
    cancelled: list[str] = []

    def cancel(reason: str) -> None:
        cancelled.append(reason)
        if SweepFolder(open_store(spec.storage_path), run_id).read_spec() is None:
            interrupts.interrupt()  # its bridge, whose trials would count as the whole of it
        else:
            interrupts.cancel(reason)

    def stop() -> None:
        _say(f"training {run_id}: {CANCEL_REASON}, ending it")
        interrupts.interrupt("SIGTERM")
        ending.begin(is_cancel=False)

    stops.pass_to(stop)
    _say(f"training {run_id}: stored at {spec.storage_path}")
    with (
        _leased(request, spec.storage_path, run_id, lambda: _expire(interrupts, ending)),
        _cancellable(spec.storage_path, run_id, number, cancel),
    ):
        running = start_thread(
            lambda: run_training(asked, interrupts=interrupts, job_number=number), "raysweep-run"
        )
        while not wait([running], 0.1).done:
            if ending.is_overdue and not interrupts.is_taken:
                raise SweepInterrupted(run_id, "its job was stopped before it ran; run it again to resume")
    try:
        outcome = running.result()
    except SweepInterrupted:
        if cancelled:
            raise JobStoppedError(f"{run_id}.{number}", f"{cancelled[0]}; run it again to resume") from None
        if ending.has_expired:
            raise SweepInterrupted(run_id, "its lease was not renewed; run it again to resume") from None
        raise
    _say(f"training {run_id}: {outcome.status}")
    _say_outcome(outcome.status)
    return DONE


def _is_interrupt(error: BaseException) -> bool:
    return isinstance(error, KeyboardInterrupt)


# --- what ends it from outside


@contextmanager
def _leased(
    request: JobRequest, storage_path: str, run_id: str, on_over: Callable[[], None]
) -> Iterator[None]:
    """Watch the lease, if the request has one, and call `on_over` from another thread when it is over."""
    from raysweep.runs.ownership.lease import LeaseWatch
    from raysweep.storage.objects.opening import open_store

    ttl_s = request.options.lease_ttl_s
    if ttl_s is None:
        yield
        return
    watch = LeaseWatch(open_store(storage_path), run_id, ttl_s)

    def look() -> bool:
        if not watch.is_over():
            return False
        _say(f"{run_id}: its lease was not renewed for {watch.ttl_s:g} s, leaving it")
        on_over()
        return True

    with _watched(look, every_s=watch.interval_s, name="raysweep-lease"):
        yield


@contextmanager
def _cancellable(
    storage_path: str, run_id: str, number: int, on_cancel: Callable[[str], None]
) -> Iterator[None]:
    """Look for a request to cancel a training, and call `on_cancel` from another thread with its reason.

    Its controller looks for itself, but not while its bridge runs, and it gives trials time for a checkpoint.
    A request that lay there before counts if it names this job.
    """
    from raysweep.errors import StorageError
    from raysweep.runs.folder import SweepFolder
    from raysweep.storage.objects.opening import open_store

    folder = SweepFolder(open_store(storage_path), run_id)
    old = folder.read_cancellation()
    if old is not None and old.names(number):
        old = None

    def look() -> bool:
        try:
            asked = folder.read_cancellation()
        except StorageError:
            return False
        if asked is None or asked == old or not asked.concerns(number):
            return False
        reason = f"{asked.reason or 'cancelled'} (by {asked.by})"
        _say(f"training {run_id}: {reason}, ending it")
        on_cancel(reason)
        return True

    with _watched(look, every_s=LOOK_S, name="raysweep-cancel"):
        yield


@contextmanager
def _watched(look: Callable[[], bool], *, every_s: float, name: str) -> Iterator[None]:
    """Look on a thread of its own, first after one interval, until `look` has seen it or the block ends."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(every_s):
            if look():
                return

    threading.Thread(target=watch, name=name, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


# --- messages


@contextmanager
def _logged() -> Iterator[None]:
    """Warnings of raysweep's own logger become lines of the job's log."""
    import logging

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            _say(f"{record.levelname.lower()}: {record.getMessage()}")

    handler = Handler(logging.WARNING)
    logger = logging.getLogger("raysweep")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _leave() -> None:
    """Leave Ray, so that nothing of it writes after the last line."""
    connection = sys.modules.get("raysweep.cluster.ray.connection")
    if connection is not None:
        connection.leave_cluster()


def _say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {' '.join(text.split())}\n")
    sys.stdout.flush()


def _say_outcome(status: str) -> None:
    """For who waits, and does not see it in the storage yet."""
    from raysweep.jobs.errorline import OUTCOME_PREFIX

    sys.stdout.write(f"{OUTCOME_PREFIX}{status}\n")
    sys.stdout.flush()


def _say_error(error: BaseException) -> None:
    import traceback

    from raysweep.errors import RaysweepError
    from raysweep.jobs.errorline import encode_error

    if not isinstance(error, RaysweepError):
        traceback.print_exception(error)
    sys.stdout.flush()
    sys.stderr.write(encode_error(error) + "\n")


if __name__ == "__main__":
    main()
