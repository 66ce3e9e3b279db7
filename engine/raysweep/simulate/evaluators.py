"""The evaluations of a simulation: curves of their own, a number of them at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from pydantic import JsonValue

from raysweep.fleet import CancelEvaluation, StartEvaluation
from raysweep.simulate.delays import Delays
from raysweep.simulate.trials import Work
from raysweep.specs import SweepSpec
from raysweep.worker.rows import to_json

Answer = Callable[[int, dict[str, JsonValue] | None, str], None]
"""Takes an evaluation's number and its metrics; or None, and why there are none."""


class Evaluators:
    """Evaluates first come, first served; what the curve raises is how a try fails."""

    def __init__(self, work: Work, spec: SweepSpec, delays: Delays, answer: Answer) -> None:
        self._work = work
        self._slots = spec.evaluate.slots if spec.evaluate is not None else 0
        self._delays = delays
        self._answer = answer
        self._waiting: deque[StartEvaluation] = deque()
        self._running: dict[int, StartEvaluation] = {}

    def start(self, action: StartEvaluation) -> None:
        """Run it as soon as a slot is free."""
        self._waiting.append(action)
        self._begin_next()

    def cancel(self, action: CancelEvaluation) -> None:
        """Run it no more."""
        self._waiting = deque(each for each in self._waiting if each.evaluation != action.evaluation)
        self._running.pop(action.evaluation, None)
        self._begin_next()

    def _begin_next(self) -> None:
        while self._waiting and len(self._running) < self._slots:
            action = self._waiting.popleft()
            self._running[action.evaluation] = action
            self._delays.after(self._work.evaluate_s, lambda action=action: self._end(action))  # type: ignore[misc]

    def _end(self, action: StartEvaluation) -> None:
        number = action.evaluation
        if self._running.get(number) is not action:
            return  # cancelled meanwhile
        del self._running[number]
        assert self._work.evaluation is not None, "a sweep that evaluates has a curve for it"
        try:
            found = self._work.evaluation(action.config, action.iteration)
        except Exception as error:  # noqa: BLE001  it stands for user code, which may raise anything
            self._answer(number, None, f"{type(error).__name__}: {error}")
        else:
            self._answer(number, {name: to_json(value) for name, value in (found or {}).items()}, "")
        self._begin_next()
