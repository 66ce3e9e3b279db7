"""A function of the user's own that says whether a trial ends (`stop.trial_if`), watched.

It is imported as a scheduler of the user's own is (`load_judge`): by those who run a sweep, or replay what it
decided. What it says follows from a trial's reports, so nothing of it is in the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf, nan
from typing import Any, Final, Protocol

from pydantic import JsonValue

from raysweep.documents.code import user_code
from raysweep.documents.code.trainable import load_function
from raysweep.documents.json_values import plain
from raysweep.documents.validation import Problem, show
from raysweep.errors import SpecError, one_line

FIELD: Final = "stop.trial_if"
# JSON has no such numbers: reports carry them as these strings.
_NON_FINITE: Final = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}
_LOADED: Final[dict[str, Callable[..., Any]]] = {}


class _Stop(Protocol):
    @property
    def trial_if(self) -> str | None: ...


class Judged(Protocol):
    """A spec that names such a function: `SweepSpec` does."""

    @property
    def stop(self) -> _Stop:
        """The rules that end trials early."""
        ...


class Judge:
    """Calls the function. What it raises, or answers but a bool, ends the sweep, resumably."""

    __slots__ = ("_function", "_path")

    def __init__(self, path: str, function: Callable[..., Any]) -> None:
        self._path = path
        self._function = function

    def ends(self, trial: int, history: Iterable[Mapping[str, JsonValue]]) -> bool:
        """True if a trial with these reports ends.

        Raises:
            SpecError: the function raised, or its answer is no bool; names the trial and its report.
        """
        reports = [_as_reported(metrics) for metrics in history]
        where = f"for report {len(reports)} of trial {trial}"
        try:
            given = user_code.call(self._function, reports)
        except Exception as error:
            what = one_line(f"{type(error).__name__}: {error}", 200)
            problem = f"{self._path!r} failed {where}: {what}"
            raise SpecError(FIELD, problem, "fix the function, and run again") from error
        return self._checked(given, where)

    def _checked(self, given: object, where: str) -> bool:
        try:
            answer = plain(given)
        except Problem:
            answer = None
        if not isinstance(answer, bool):
            problem = f"{self._path!r} gave {show(given)} {where}, not True or False"
            raise SpecError(FIELD, problem, "return a bool, and run again")
        return answer


def load_judge(spec: Judged) -> None:
    """Import the function of `stop.trial_if`, if there is one.

    Raises:
        SpecError: it cannot be imported, or is a class.
    """
    path = spec.stop.trial_if
    if path is None:
        return
    found = load_function(path, FIELD)
    if isinstance(found, type):
        raise SpecError(FIELD, f"{path!r} is a class", "name a function of a trial's reports")
    _LOADED[path] = found


def make_judge(spec: Judged) -> Judge | None:
    """The function of `stop.trial_if`, to be called; None without one.

    Raises:
        SpecError: it was not loaded in this process.
    """
    path = spec.stop.trial_if
    if path is None:
        return None
    if path not in _LOADED:
        problem = f"{path!r} is imported only where the sweep runs or is verified"
        raise SpecError(FIELD, problem, "use `raysweep verify`, or run the sweep")
    return Judge(path, _LOADED[path])


def _as_reported(metrics: Mapping[str, JsonValue]) -> dict[str, Any]:
    return {
        name: _NON_FINITE.get(value, value) if isinstance(value, str) else value
        for name, value in metrics.items()
    }
