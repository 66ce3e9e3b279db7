"""A plan of faults: how it is written, where it is active, and whether it came true."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from raysweep.errors import RaysweepError
from raysweep.faultplan.faults import IN_TRIALS, Fault, Place, When, describe_error

VARIABLE: Final = "RAYSWEEP_FAULT_PLAN"
StoreOperation = Literal["put", "get", "delete", "list", "head"]


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Faults to be injected into a sweep, each once unless `times` says otherwise.

        plan = FaultPlan().fail_at(trial=0, step=3).kill_worker_at(trial=2, step=1)
        with plan.active():
            outcome = raysweep.run_sweep(spec)
        plan.assert_fired()

    Plans are immutable: each method returns a new one, in the same folder (a temporary one, unless given).
    `trial`, `step` and `attempt` default to any. Trials count from 0; a step is the number of a report, from
    1, those behind the checkpoint that the attempt began from included; attempts count from 1.
    """

    folder: str = field(default_factory=lambda: tempfile.mkdtemp(prefix="raysweep-faults-"))
    faults: tuple[Fault, ...] = ()

    def add(self, fault: Fault) -> FaultPlan:
        """The plan with one more fault."""
        if fault.times < 1 or fault.nth < 1 or fault.seconds < 0:
            raise RaysweepError(f"{fault}: times and nth are at least 1, seconds at least 0")
        return replace(self, faults=(*self.faults, fault))

    def fail_at(
        self,
        *,
        trial: int | None = None,
        step: int | None = None,
        attempt: int | None = None,
        error: BaseException | type[BaseException] = RuntimeError,
        times: int = 1,
    ) -> FaultPlan:
        """Raise `error` in user code, from `raysweep.report`, in place of report `step`.

        `step=0`: before user code begins. The exception must be importable by name and take one message.
        """
        name, message = describe_error(error)
        place: Place = "begin" if step == 0 else "report"
        return self.add(
            Fault(
                place=place,
                action="raise",
                trial=trial,
                step=step or None,
                attempt=attempt,
                error=name,
                message=message,
                times=times,
            )
        )

    def kill_worker_at(
        self,
        *,
        trial: int | None = None,
        step: int | None = None,
        attempt: int | None = None,
        on: Literal["load", "begin", "report", "reported", "checkpoint", "stop"] = "report",
        times: int = 1,
    ) -> FaultPlan:
        """SIGKILL the process that runs the trial (with `isolation="process"`: the trial's own).

        `on`: where in the trial's life; see `Fault.place`. While a worker loads there is no trial yet.
        """
        return self.add(Fault(place=on, action="kill", trial=trial, step=step, attempt=attempt, times=times))

    def exit_at(
        self,
        *,
        trial: int | None = None,
        step: int | None = None,
        attempt: int | None = None,
        code: int = 1,
        times: int = 1,
    ) -> FaultPlan:
        """End the process that runs the trial with `os._exit(code)`, in place of report `step`."""
        place: Place = "begin" if step == 0 else "report"
        return self.add(
            Fault(
                place=place,
                action="exit",
                trial=trial,
                step=step or None,
                attempt=attempt,
                exit_code=code,
                times=times,
            )
        )

    def hang_at(
        self,
        *,
        trial: int | None = None,
        step: int | None = None,
        attempt: int | None = None,
        seconds: float = 3600.0,
        times: int = 1,
    ) -> FaultPlan:
        """Sleep in user code before report `step` (0: before user code begins)."""
        place: Place = "begin" if step == 0 else "report"
        return self.delay_at(place, seconds, trial=trial, step=step or None, attempt=attempt, times=times)

    def delay_at(
        self,
        place: str,
        seconds: float,
        *,
        trial: int | None = None,
        step: int | None = None,
        attempt: int | None = None,
        times: int = 1,
    ) -> FaultPlan:
        """Sleep at a place in a worker (see `Fault.place`), at `append` (of the journal), or at a command of
        the core by its class name (`StartTrial`, `EndSweep`, …); the two last delay the controller.
        """
        if place == "append":
            return self.delay_store("put", seconds, match="journal/*", times=times)
        if place in IN_TRIALS:
            fault = Fault(place=place, action="sleep", trial=trial, step=step, attempt=attempt)  # type: ignore[arg-type]
        else:
            fault = Fault(place="command", action="sleep", operation=place, trial=trial, attempt=attempt)
        return self.add(replace(fault, seconds=seconds, times=times))

    def kill_controller_at(
        self,
        *,
        append: int | None = None,
        command: str | None = None,
        nth: int = 1,
        when: When = "before",
    ) -> FaultPlan:
        """SIGKILL the controller around the append of journal segment `append`, or around a command.

        Segments count from 1, and a claim is one too. `command`: the `nth` of a kind, by its class name.
        """
        if (append is None) == (command is None):
            raise RaysweepError("kill_controller_at takes either append= or command=")
        if command is not None:
            return self.add(Fault(place="command", action="kill", operation=command, nth=nth, when=when))
        key = f"journal/{append:012d}.jsonl"
        return self.add(Fault(place="store", action="kill", operation="put", match=key, when=when))

    def fail_store(self, operation: StoreOperation, *, match: str = "**", times: int = 1) -> FaultPlan:
        """Let a storage operation fail as in an outage, `times` times; it is retried as after any such error.

        `match`: a pattern for the key in the sweep's folder, part by part (`journal/*`, `checkpoints/**`).
        """
        return self.add(Fault(place="store", action="raise", operation=operation, match=match, times=times))

    def delay_store(
        self,
        operation: StoreOperation,
        seconds: float,
        *,
        match: str = "**",
        times: int = 1,
    ) -> FaultPlan:
        """Make a storage operation slow; `match` as in `fail_store`."""
        return self.add(
            Fault(
                place="store", action="sleep", operation=operation, match=match, seconds=seconds, times=times
            )
        )

    def to_json(self) -> str:
        """The plan as JSON."""
        return json.dumps({"faults": [asdict(fault) for fault in self.faults]}, indent=2)

    @classmethod
    def from_json(cls, text: str, folder: str) -> FaultPlan:
        """The plan that `to_json` wrote.

        Raises:
            RaysweepError: The text is no plan.
        """
        try:
            return cls(folder, tuple(Fault(**fields) for fields in json.loads(text)["faults"]))
        except (KeyError, TypeError, ValueError) as error:
            raise RaysweepError(
                f"{folder} holds no plan of faults: {error}; write it with to_json"
            ) from error

    @contextmanager
    def active(self) -> Iterator[FaultPlan]:
        """In this block, in this process and in those that it starts, and in the workers of its sweeps."""
        folder = Path(self.folder)
        (folder / "fired").mkdir(parents=True, exist_ok=True)
        path = folder / "plan.json"
        path.write_text(self.to_json())
        before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = str(path)
        try:
            yield self
        finally:
            if before is None:
                del os.environ[VARIABLE]
            else:
                os.environ[VARIABLE] = before

    def fired(self) -> tuple[int, ...]:
        """The number of times that each fault has fired, in the order of `faults`."""
        names = [path.name for path in (Path(self.folder) / "fired").glob("*")]
        return tuple(sum(name.startswith(f"{index}-") for name in names) for index in range(len(self.faults)))

    def assert_fired(self) -> None:
        """Every fault has fired at least once: what was tested was tested under these.

        Raises:
            AssertionError: Names those that did not.
        """
        missing = [str(fault) for fault, count in zip(self.faults, self.fired(), strict=True) if not count]
        if missing:
            number = f"{len(missing)} of {len(self.faults)}"
            raise AssertionError(f"{number} faults did not fire: {'; '.join(missing)}")
