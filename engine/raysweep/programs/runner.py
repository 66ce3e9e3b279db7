"""The trainable that runs a command: one attempt from the start of its program to the end of its processes.

The attempt's thread waits for the program, its readers and `raysweep emit`, and makes each report itself.
What the scheduler says reaches it as `TrialStopped`, from a report or from the session; then the program is
ended.
"""

from __future__ import annotations

import logging
import os
import selectors
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from raysweep import trial as trial_api
from raysweep.documents.placeholders import fill
from raysweep.errors import Infeasible, ProgramFailedError, RaysweepError, TrialStopped
from raysweep.programs.allowed import VARIABLE as PROGRAMS
from raysweep.programs.allowed import check_allowed, listed
from raysweep.programs.arguments import fill_command
from raysweep.programs.checkpoints import CheckpointWatch, Pairing, number_of
from raysweep.programs.claims import claimed
from raysweep.programs.doubts import Doubts
from raysweep.programs.emit import VARIABLE as EMIT
from raysweep.programs.emit_server import EmitServer, Request
from raysweep.programs.failures import MetricNeverReported, failure_of, name_of
from raysweep.programs.open_files import is_written
from raysweep.programs.places import Places, environment_of
from raysweep.programs.plan import Plan, ServicePlan, plan_of
from raysweep.programs.process import LOOK_S, ProgramProcess
from raysweep.programs.readers.base import Reader, Record, step_of
from raysweep.programs.readers.making import make_reader
from raysweep.programs.readers.stdout import StdoutReader
from raysweep.programs.service import MARK, Endpoint, Service
from raysweep.programs.steps import STEP_FILE, Steps
from raysweep.trial.owners import OWN
from raysweep.trial.session import TrialContext
from raysweep.worker.host.memory import count_kernel_ooms

if TYPE_CHECKING:
    from raysweep.specs import SweepSpec, TrainSpec

log = logging.getLogger("raysweep")
FILES_S: Final = 0.1
"""The seconds between two reads of files."""
FOLDERS_S: Final = 0.25
"""The seconds between two looks for checkpoints."""


def run(config: dict[str, Any]) -> None:
    """The `trainable` of a spec with a command; workers are handed a `Program` in its place."""
    raise RaysweepError("a command runs by run_sweep or run_training with a spec that has it")


def runnable(spec: SweepSpec | TrainSpec) -> str | Callable[..., Any]:
    """The callable for the workers: the spec's trainable, or its command."""
    return spec.trainable if spec.command is None else Program(plan_of(spec))


@dataclass(frozen=True, slots=True)
class Program:
    """A command as a function of a config."""

    plan: Plan

    def __call__(self, config: dict[str, Any]) -> None:
        """Run it as the attempt of a trial, or as the worker of a training.

        Raises:
            ProgramFailedError: It cannot be started, ended with an error, or reported nothing.
            Infeasible: It said so, by `raysweep emit --infeasible`.
            TrialStopped: The trial is to end.
        """
        # The controller's list or, without one, the node's; and in any case what the node limits itself.
        for command in self.plan.commands:
            check_allowed(command, self.plan.allowed or listed(), os.environ.get(PROGRAMS, ""))
        context = trial_api.get_context()
        with ExitStack() as stack, _work_folder() as folder:
            opened = trial_api.get_checkpoint()
            restored = stack.enter_context(opened) if opened is not None else None
            _Attempt(self.plan, config, context, folder, restored).run()


@contextmanager
def _work_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="raysweep-program-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Attempt:
    """One attempt of one program."""

    def __init__(
        self,
        plan: Plan,
        config: Mapping[str, Any],
        context: TrialContext,
        folder: Path,
        restored: Path | None,
    ) -> None:
        self._plan = plan
        self._session: Any = OWN.get()
        self._steps = Steps(restored, Doubts("program.metrics", self._note))
        self._places = Places(plan, config, context, folder, restored)
        self._has_reported = False
        self._is_asked = False
        self._pairing = Pairing(self._report, self._store_again)
        self._last: Record | None = None
        """The last record that was reported."""
        self._process: ProgramProcess | None = None
        self._reader = self._make_reader(restored)
        self._watch = self._make_watch()
        self._next_files = self._next_folders = 0.0
        self._command: list[str] = []
        self._service: Service | None = None
        self._selector = selectors.DefaultSelector()
        self._emits = EmitServer(folder, self._selector)

    def _make_reader(self, restored: Path | None) -> Reader | None:
        plan = self._plan
        if plan.metrics == "emit":
            return None
        source = plan.source if plan.metrics == "stdout" else self._places.path(plan.source)
        doubts = Doubts(f"program.metrics.{plan.metrics} ({plan.source})", self._note)
        return make_reader(plan.metrics, source, restored, doubts, plan.ranked)

    def _note(self, text: str) -> None:
        """A note of the sweep; a training has none, and says it in the log."""
        note = getattr(self._session, "note", None)
        if note is not None:
            note(text)
        else:
            log.warning("%s", text)

    def _make_watch(self) -> CheckpointWatch | None:
        if not self._plan.folder:
            return None
        root, pattern = self._places.pattern(self._plan.folder)
        doubts = Doubts(f"program.checkpoints ({self._plan.folder})", self._note)
        return CheckpointWatch(root, pattern, self._plan.marker, is_open=self._has_open, say=doubts.say)

    def _has_open(self, folder: Path) -> bool:
        return self._process is not None and is_written(folder, self._process.find())

    def run(self) -> None:
        """See `Program`."""
        plan, places = self._plan, self._places
        try:
            places.meet(self._session)
            resume = plan.resume if places.restored is not None else ()
            self._command = self._fill(plan.command, resume=resume, adds_args=plan.adds_args)
            with claimed(self._read_paths(), places.output), self._beside(plan.service):
                self._run()
        finally:
            if self._reader is not None:
                self._reader.close()
            self._emits.close()
            self._selector.close()

    def _read_paths(self) -> Iterator[tuple[str, Path]]:
        """The files and folders that are read, each with its option; of a gang, by its first rank."""
        plan = self._plan
        if self._places.context.rank:
            return
        if plan.metrics not in ("emit", "stdout"):
            yield f"program.metrics.{plan.metrics}", self._places.path(plan.source)
        if plan.folder:
            yield "program.checkpoints.folder", Path(*self._places.pattern(plan.folder))

    def _fill(
        self, command: Sequence[str], *, resume: Sequence[str] = (), adds_args: bool = False
    ) -> list[str]:
        """One of the two commands; what either names is not among the `{args}` of the other."""
        plan, places = self._plan, self._places
        return fill_command(
            command,
            places.config,
            places.value_of,
            style=plan.arguments,
            resume=resume,
            adds_args=adds_args,
            also=plan.texts,
        )

    @contextmanager
    def _beside(self, plan: ServicePlan | None) -> Iterator[None]:
        """With the server, ready; it is ended after the program."""
        if plan is None:
            yield
            return
        places = self._places
        environment = environment_of(self._plan, places)
        environment |= {name: fill(text, places.value_of) for name, text in plan.environment.items()}
        environment[MARK] = self._emits.address
        command = self._fill(plan.command)
        at = Endpoint(fill(plan.ready, places.value_of))
        with at.claimed():
            with _named_on_failure(command[0]):
                self._service = Service(
                    [_find(command[0], places.cwd, environment), *command[1:]],
                    cwd=places.cwd,
                    environment=environment,
                    selector=self._selector,
                )
            try:
                self._service.await_ready(at, plan.ready_timeout_s, self._raise_if_over)
                yield
            finally:
                self._service.end("SIGTERM", self._plan.grace_s)

    def _run(self) -> None:
        ooms = count_kernel_ooms()
        process = self._process = self._start()
        try:
            self._follow(process)
            self._finish(process, ooms)
        except TrialStopped:
            self._end(process)
            raise
        finally:
            process.kill()
            process.drain()
            process.close()

    def _start(self) -> ProgramProcess:
        places = self._places
        environment = environment_of(self._plan, places) | {EMIT: self._emits.address}
        program = _find(self._command[0], places.cwd, environment)
        feed = self._reader.feed if isinstance(self._reader, StdoutReader) else None
        with _named_on_failure(self._command[0]):
            return ProgramProcess(
                [program, *self._command[1:]],
                cwd=places.cwd,
                environment=environment,
                mark=EMIT,
                on_stdout=feed,
                selector=self._selector,
            )

    def _follow(self, process: ProgramProcess) -> None:
        """Until the program has ended, or the trial is to end."""
        while not process.has_ended:
            self._selector.select(LOOK_S)
            process.calm()
            self._take_emits()
            self._look()
            self._raise_if_over()
            if self._service is not None:
                self._service.check()
            signal = self._plan.checkpoint_signal
            if signal is not None and not self._is_asked and trial_api.should_checkpoint():
                self._is_asked = True
                process.signal(signal)

    def _finish(self, process: ProgramProcess, ooms: int) -> None:
        """The program has ended: its last records, and what its end means."""
        self._take_emits()
        code = process.kill()
        is_drained, is_well = process.drain(), code == 0
        if self._reader is not None:
            for record in self._reader.read(is_end=True, is_whole=is_well and is_drained):
                self._add(record)
        if self._watch is not None:
            for checkpoint in self._watch.look(has_ended_well=is_well):
                self._pairing.found(checkpoint)
        self._pairing.flush(has_ended_well=is_well)
        if not is_well:
            self._raise_if_asked()
            if self._service is not None:
                self._service.check()  # then that is why the program failed
            is_kernel_oom = count_kernel_ooms() > ooms
            stderr, output = process.stderr, process.output
            code = -9 if code is None else code
            raise failure_of(self._command, code, stderr, is_kernel_oom=is_kernel_oom, output=output)
        # One that was resumed may have had nothing left to report.
        is_silent = not self._has_reported and not self._places.context.rank and self._places.restored is None
        if is_silent and self._plan.has_to_report:
            raise MetricNeverReported(self._say_nothing(), process.output, 0)

    def _say_nothing(self) -> str:
        text = f"{name_of(self._command)} ended without reporting anything"
        why = self._reader.missing() if self._reader is not None else ""
        if why:
            return f"{text}: {why}"
        return f"{text}: it never called raysweep emit, and program.metrics names no file or pattern"

    def _end(self, process: ProgramProcess) -> None:
        """The trial is to end: the signal, the time to act on it, and SIGKILL."""
        process.signal(self._plan.signal)
        process.await_end(self._plan.grace_s, self._refuse_emits)

    def _refuse_emits(self) -> None:
        for request in self._emits.read():
            request.answer(stopped=_stop_reason(self._session))

    def _raise_if_over(self) -> None:
        raise_if_over = getattr(self._session, "raise_if_over", None)
        if raise_if_over is not None:
            raise_if_over()

    def _raise_if_asked(self) -> None:
        """Its exit code counts for nothing where the signal for a checkpoint ended it."""
        reason = _stop_reason(self._session)
        if self._is_asked and reason:
            raise TrialStopped(reason)

    def _look(self) -> None:
        """Read what the program has written, now and then."""
        now = time.monotonic()
        if self._reader is not None and (now >= self._next_files or isinstance(self._reader, StdoutReader)):
            self._next_files = now + FILES_S
            for record in self._reader.read():
                self._add(record)
        if self._watch is not None and now >= self._next_folders:
            self._next_folders = now + FOLDERS_S
            for checkpoint in self._watch.look():
                self._pairing.found(checkpoint)

    def _take_emits(self) -> None:
        for request in self._emits.read():
            self._take(request)

    def _take(self, request: Request) -> None:
        if request.infeasible is not None:
            self._pairing.flush()
            request.answer(ok=True)
            raise Infeasible(request.infeasible)
        checkpoint = Path(request.checkpoint) if request.checkpoint is not None else None
        if checkpoint is not None and not checkpoint.is_dir():
            request.answer(error=f"--checkpoint {checkpoint}: there is no such folder")
            return
        try:
            if checkpoint is None and self._watch is not None:
                self._add(request.metrics)
            else:
                self._pairing.flush()
                self._report(request.metrics, checkpoint)
        except TrialStopped as stopped:
            request.answer(stopped=stopped.reason)
            raise
        except (RaysweepError, OSError) as error:
            request.answer(error=str(error))
        else:
            request.answer(ok=True)

    def _add(self, record: Record) -> None:
        if self._watch is not None:
            self._pairing.add(record)
        else:
            self._report(record, None)

    def _report(self, record: Record, checkpoint: Path | None) -> None:
        """Report a record, unless it lies behind the checkpoint that the attempt began from."""
        if self._steps.is_repeated(record):
            return
        self._has_reported, self._last = True, record
        if checkpoint is None or self._watch is None:
            trial_api.report(record, checkpoint)
            return
        with self._while_copied(checkpoint, step_of(record)) as is_there:
            trial_api.report(record, checkpoint if is_there else None)

    def _store_again(self, checkpoint: Path) -> None:
        """A folder was complete only after the report that it belongs to; a training cannot do that."""
        store_again = getattr(self._session, "store_again", None)
        if self._last is not None and store_again is not None:
            with self._while_copied(checkpoint, step_of(self._last)) as is_there:
                if is_there:
                    store_again(checkpoint, self._last)

    @contextmanager
    def _while_copied(self, checkpoint: Path, step: float | None) -> Iterator[bool]:
        """With the file of its step in a watched folder; whether the folder is there.

        One that the program removes or changes meanwhile is not stored now: the metrics were sent before,
        and a changed folder is found again.
        """
        assert self._watch is not None, "it was found"
        try:
            if step is not None:
                self._steps.write(checkpoint, step, number_of(checkpoint))
        except FileNotFoundError:  # the program keeps only its newest ones, and has removed it
            yield False
            return
        try:
            yield True
        except (OSError, RaysweepError):
            if checkpoint.is_dir() and not self._watch.has_changed(checkpoint):
                raise
        finally:
            with suppress(OSError):
                (checkpoint / STEP_FILE).unlink()


@contextmanager
def _named_on_failure(program: str) -> Iterator[None]:
    """An error of the kernel about the start of a program, as one that names it."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ProgramFailedError(f"{program!r} cannot be started: {why}") from None


def _stop_reason(session: Any) -> str:
    return getattr(session, "stop_reason", None) or ""


def _find(program: str, cwd: str, environment: Mapping[str, str]) -> str:
    """The path of a program. Raises ProgramFailedError, which says where it was looked for."""
    if "/" in program:
        path = os.path.join(cwd, os.path.expanduser(program))
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
        what = "is not executable (chmod +x)" if os.path.isfile(path) else "is not there"
        raise ProgramFailedError(f"the program {path} {what}")
    found = shutil.which(program, path=environment.get("PATH"))
    if found is None:
        is_here = os.path.isfile(os.path.join(cwd, program))
        fix = f": write ./{program}" if is_here else f" ({environment.get('PATH', '')})"
        raise ProgramFailedError(f"there is no program {program!r} on PATH{fix}")
    return found
