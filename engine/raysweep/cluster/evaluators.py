"""The slots for evaluations, in each of which one process runs; `ray.evaluators` has those on Ray."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from raysweep.cluster.preparation import pickle_trainable
from raysweep.cluster.ray.preflight import show
from raysweep.core.state.compiled_spec import reported_names
from raysweep.documents.code import allow_list
from raysweep.documents.code.trainable import trainable_name
from raysweep.fleet import CancelEvaluation, StartEvaluation
from raysweep.programs.plan import plan_of_evaluation
from raysweep.programs.runner import Program
from raysweep.space.held_tuples import tuples_of
from raysweep.worker.evaluation import Evaluated, EvaluationJob, EvaluationSetup
from raysweep.worker.host.cpus import said_by_driver

if TYPE_CHECKING:
    from raysweep.runs.folder import SweepFolder
    from raysweep.specs import SweepSpec
    from raysweep.specs.trial.evaluate import EvaluateSpec

Answer = Callable[[int, dict[str, Any], str], None]
"""Takes an evaluation's number, its metrics, and the problem; one of the two is empty."""
LOOK_S: Final = 0.05
LATE_S: Final = 30.0
"""A place that is awaited for so long, or for `failure.placement_timeout_s`, is late."""
log = logging.getLogger("raysweep")


@dataclass(eq=False, slots=True, kw_only=True)
class Slot:
    """One slot: `group` is its place, `ref` what runs there, as those who made them know them."""

    group: Any = None
    running: int | None = None
    ref: Any = None
    timer: asyncio.TimerHandle | None = None


class Evaluators(ABC):
    """Runs what the fleet wants evaluated, first come first served. On the event loop.

    `answer` is called once for each `StartEvaluation` that is not cancelled.
    """

    def __init__(self, spec: SweepSpec, asked: EvaluateSpec, answer: Answer) -> None:
        self._asked = asked
        self._answer = answer
        self._bundle = asked.resources.to_bundle()
        self._waiting: deque[StartEvaluation] = deque()
        self._slots: list[Slot] = []
        self._is_closed = False
        self.is_placed = False
        """True if all slots had their places."""
        self._late_s = min(LATE_S, spec.failure.placement_timeout_s)
        self._late_at = math.inf

    @property
    def is_late(self) -> bool:
        """True if the places are awaited for long: on a busy cluster they come after some seconds."""
        return not self.is_placed and time.monotonic() >= self._late_at

    @property
    def problem(self) -> str:
        """The reason why trials wait, while there is no place."""
        return f"{self._asked.slots} x {show(self._bundle)} for evaluations have no place yet"

    async def open(self, timeout_s: float | None = None) -> None:
        """Ask for the slots, and wait until all have their places, or for so long."""
        if not self._slots:
            self._late_at = time.monotonic() + self._late_s
            self._slots = [Slot(group=self._ask_for_place()) for _ in range(self._asked.slots)]
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s if timeout_s is not None else float("inf")
        pause_s = LOOK_S
        while not all(self._has_place(slot) for slot in self._slots):
            if loop.time() >= until or self._is_closed:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(1.0, 1.5 * pause_s)
        self.is_placed = True

    def find_groups(self) -> dict[str, list[dict[str, float]]]:
        """The places by names that the cluster knows, with their bundles."""
        return {}

    @abstractmethod
    def _ask_for_place(self) -> Any:
        """Ask for the place of one slot."""

    @abstractmethod
    def _has_place(self, slot: Slot) -> bool:
        """True if the slot has its place by now."""

    @abstractmethod
    def _give_back(self, slot: Slot) -> None:
        """Give its place back, or ask for it no more."""

    @abstractmethod
    def _launch(self, slot: Slot, job: EvaluationJob) -> Any:
        """Start an evaluation; `_take_end` is to be called at its end with what this returns."""

    @abstractmethod
    def _kill(self, ref: Any) -> None:
        """End it, if it runs."""

    def start(self, action: StartEvaluation) -> None:
        """Run it as soon as a slot is free."""
        self._waiting.append(action)
        self._begin_next()

    def cancel(self, action: CancelEvaluation) -> None:
        """Run it no more; nothing is answered."""
        self._waiting = deque(each for each in self._waiting if each.evaluation != action.evaluation)
        for slot in self._slots:
            if slot.running == action.evaluation:
                self._end(slot)
        self._begin_next()

    def close(self) -> None:
        """End what runs, and give the room back."""
        self._is_closed = True
        self._waiting.clear()
        for slot in self._slots:
            if slot.running is not None:
                self._end(slot)
            self._give_back(slot)
        self._slots = []

    def _begin_next(self) -> None:
        for slot in self._slots:
            if slot.running is None and self._waiting:
                self._begin(slot, self._waiting.popleft())

    def _begin(self, slot: Slot, action: StartEvaluation) -> None:
        job = EvaluationJob(
            trial=action.trial,
            attempt=action.attempt,
            iteration=action.iteration,
            seed=action.seed,
            config=action.config,
            uri=action.uri,
            validation=action.validation,
        )
        slot.running, slot.ref = action.evaluation, self._launch(slot, job)
        limit_s = action.validation.timeout_s if action.validation is not None else None
        limit_s = limit_s or self._asked.timeout_s
        if limit_s is not None:
            loop = asyncio.get_running_loop()
            slot.timer = loop.call_later(limit_s, lambda: self._time_out(slot, action.evaluation, limit_s))

    def _take_end(self, slot: Slot, ref: Any, found: Evaluated | None, error: BaseException | None) -> None:
        number = slot.running
        if self._is_closed or slot.ref is not ref or number is None:
            return
        self._free(slot)
        if found is not None and not found.problem:
            self._answer(number, found.metrics, "")
        else:
            problem = found.problem if found is not None else _explain(error)
            log.warning("an evaluation failed: %s", problem)
            self._answer(number, {}, problem)
        self._begin_next()

    def _time_out(self, slot: Slot, number: int, limit_s: float) -> None:
        if slot.running == number:
            self._end(slot)
            self._answer(number, {}, f"Timeout: it took longer than {limit_s:g} s (timeout_s)")
            self._begin_next()

    def _end(self, slot: Slot) -> None:
        self._kill(slot.ref)
        self._free(slot)

    def _free(self, slot: Slot) -> None:
        if slot.timer is not None:
            slot.timer.cancel()
        slot.running = slot.ref = slot.timer = None


def _explain(error: BaseException | None) -> str:
    """One line for a task that did not answer: its process or its node is gone."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first}"[:500]


def make_evaluation_setup(spec: SweepSpec, asked: EvaluateSpec, folder: SweepFolder) -> EvaluationSetup:
    """All that the evaluations of a sweep are told."""
    evaluator = Program(plan_of_evaluation(asked)) if asked.is_program else asked.trainable
    return EvaluationSetup(
        sweep_id=folder.sweep_id,
        storage_path=folder.store.url,
        resources=asked.resources.to_bundle(),
        evaluator=trainable_name(asked.trainable),
        pickled=pickle_trainable(evaluator),
        is_program=asked.is_program,
        nested=tuple(name for name in reported_names(spec) if "/" in name),
        tuples=tuples_of(spec.param_space),
        sys_path=tuple(path or os.getcwd() for path in ["", *sys.path]),
        threads=said_by_driver(),
        allowed=os.environ.get(allow_list.VARIABLE, ""),
    )
