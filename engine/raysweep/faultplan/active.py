"""A plan at work: every process of a sweep comes by here, and what is planned for it happens."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal

from raysweep.errors import RaysweepError
from raysweep.faultplan.faults import Fault, Here, Place, When, matches, perform
from raysweep.faultplan.plan import VARIABLE, FaultPlan


class ActivePlan:
    """A plan at work in this process."""

    def __init__(self, plan: FaultPlan) -> None:
        self.plan = plan
        self._folder = Path(plan.folder) / "fired"
        self._met = [0] * len(plan.faults)
        self._reporting = threading.local()

    def reach(self, place: Place, here: Here, when: When = "before") -> None:
        """This process is at such a place: whatever is planned for it happens."""
        for index, fault in enumerate(self.plan.faults):
            if fault.place != place or fault.when != when or not matches(fault, here):
                continue
            self._met[index] += 1
            if self._met[index] >= fault.nth and self._mark(index, fault, here):
                perform(fault)

    def watch_command(self, name: str, carry: Callable[[Any], None]) -> Callable[[Any], None]:
        """A way to carry a command of the core out that comes by here."""

        def carry_out(command: Any) -> None:
            trial, attempt = getattr(command, "trial", None), getattr(command, "attempt", None)
            here = Here(operation=name, trial=trial, attempt=attempt)
            self.reach("command", here)
            carry(command)
            self.reach("command", here, "after")

        return carry_out

    @contextmanager
    def in_report(self, here: Here) -> Iterator[None]:
        """While this lasts, a manifest that is stored belongs to this report."""
        self._reporting.here = here
        try:
            yield
        finally:
            self._reporting.here = None

    @property
    def here(self) -> Here | None:
        """The report that this thread is in."""
        here: Here | None = getattr(self._reporting, "here", None)
        return here

    def reach_store(self, operation: str, key: str, when: When) -> None:
        """A storage operation is about to happen, or has."""
        self.reach("store", Here(operation=operation, key=key), when)
        parts = key.split("/")
        is_manifest = operation == "put" and parts[1:2] == ["checkpoints"] and len(parts) == 4
        if self.here is not None and is_manifest:
            self.reach("checkpoint", self.here, when)

    def _mark(self, index: int, fault: Fault, here: Here) -> bool:
        told = {"fault": str(fault), "pid": os.getpid(), "at": time.time(), "here": asdict(here)}
        for number in range(fault.times):
            with suppress(FileExistsError), open(self._folder / f"{index}-{number}", "x") as file:
                file.write(json.dumps(told))
                return True
        return False


_NAME: Final = VARIABLE.encode()
_VARIABLES: Final[dict[bytes, bytes]] = vars(os.environ)["_data"]
"""Of this process: an attempt looks here several times, which takes longer by their names."""
_current: ActivePlan | None = None
_current_path = ""


def current() -> ActivePlan | None:
    """The plan that this process is under; None in every process that is not being tested.

    Raises:
        RaysweepError: The variable names no plan.
    """
    global _current, _current_path
    if not (named := _VARIABLES.get(_NAME)):  # empty in the workers of a sweep without a plan
        return None
    path = os.fsdecode(named)
    if path != _current_path or _current is None:
        try:
            text = Path(path).read_text()
        except OSError as error:
            problem = f"{VARIABLE}={path} cannot be read ({error.strerror})"
            raise RaysweepError(f"{problem}: unset it, or let FaultPlan.active set it") from error
        _current = ActivePlan(FaultPlan.from_json(text, str(Path(path).parent)))
        _current_path = path
    return _current


def carry_report() -> AbstractContextManager[None]:
    """For another thread: what it stores within this belongs to the report that the calling thread is in."""
    plan = current()
    return nullcontext() if plan is None or plan.here is None else plan.in_report(plan.here)


def reach_in_trial(
    place: Literal["load", "begin", "stop"], trial: int | None = None, attempt: int | None = None
) -> None:
    """This process is at such a place in a trial's life."""
    plan = current()
    if plan is not None:
        plan.reach(place, Here(trial=trial, attempt=attempt))
