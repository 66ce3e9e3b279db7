"""A scheduler of the user's own, watched: what it decides is checked, and what it raises names it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from raysweep.documents.code import user_code
from raysweep.documents.code.plugins import Plugins
from raysweep.documents.json_values import plain
from raysweep.documents.kinds import PluginOptions
from raysweep.documents.validation import Problem, show
from raysweep.schedulers.base import (
    NOTHING,
    Config,
    Decisions,
    Exploit,
    Move,
    Pause,
    PolicySetup,
    Resize,
    Resume,
    Scheduler,
    Stop,
    Verdict,
)

PLUGINS: Final[Plugins[Scheduler]] = Plugins("scheduler", Scheduler, "raysweep.schedulers")
_MOVES: Final[dict[type, Move]] = {
    Stop: "stop",
    Pause: "pause",
    Resume: "pause",
    Exploit: "exploit",
    Resize: "exploit",
}


class PluginScheduler(Scheduler):
    """Wraps a scheduler of a class that was loaded. What it raises ends the sweep, resumably.

    Raises:
        SpecError: the class was not loaded, its options do not fit, or it cannot be made from them.
    """

    __slots__ = ("_inner", "_kind", "max_t", "moves", "pauses_again", "time_attr")

    def __init__(self, kind: str, options: PluginOptions, setup: PolicySetup) -> None:
        self._kind = kind
        self._inner = PLUGINS.make(kind, options, setup)
        self.time_attr: str = self._read("time_attr")
        if not isinstance(self.time_attr, str) or not self.time_attr:
            raise PLUGINS.wrong(self._kind, "time_attr", self.time_attr, "the name of a reported value")
        max_t: Any = self._read("max_t")
        if max_t is not None and (isinstance(max_t, bool) or not isinstance(max_t, int | float)):
            raise PLUGINS.wrong(self._kind, "max_t", max_t, "a number, or None")
        self.max_t: float | None = None if max_t is None else float(max_t)
        moves: Any = self._read("moves")
        if not isinstance(moves, frozenset | set) or not moves <= set(_MOVES.values()):
            raise PLUGINS.wrong(
                self._kind, "moves", moves, f"a set of some of {sorted(set(_MOVES.values()))}"
            )
        self.moves: frozenset[Move] = frozenset(moves)
        self.pauses_again = bool(self._read("pauses_again"))

    def add(self, trial: int, config: Config) -> None:
        """Make a trial known."""
        self._call("add", trial, config)

    def report(self, trial: int, time: float, value: float) -> Decisions:
        """Decide what follows from a report."""
        return self._decide("report", trial, time, value)

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        """Take the last report of a trial that has completed into account, and forget the trial."""
        return self._decide("end", trial, time, value)

    def report_several(self, trial: int, time: float, values: Sequence[float]) -> Decisions:
        """Decide what follows from a report of several metrics."""
        return self._decide("report_several", trial, time, tuple(values))

    def end_several(self, trial: int, time: float | None, values: Sequence[float]) -> Decisions:
        """Take the last report of a trial that has completed into account, and forget the trial."""
        return self._decide("end_several", trial, time, tuple(values))

    def remove(self, trial: int) -> Decisions:
        """Forget a trial."""
        return self._decide("remove", trial)

    def idle(self, paused: Sequence[int]) -> Decisions:
        """Decide what becomes of the paused trials."""
        return self._decide("idle", tuple(paused))

    def to_json(self) -> dict[str, Any]:
        """Return the whole state as JSON types."""
        given = self._call("to_json")
        try:
            state = plain(given)
        except Problem as problem:
            raise PLUGINS.wrong(self._kind, "to_json", given, f"plain JSON ({problem})") from None
        if not isinstance(state, dict):
            raise PLUGINS.wrong(self._kind, "to_json", given, "a mapping")
        return state

    def from_json(self, state: dict[str, Any]) -> None:
        """Replace the state by one that `to_json` returned."""
        self._call("from_json", state)

    def _read(self, name: str) -> Any:
        try:
            return user_code.call(getattr, self._inner, name)
        except Exception as error:
            raise PLUGINS.failed(self._kind, name, error) from error

    def _call(self, method: str, *arguments: object) -> Any:
        try:
            return user_code.call(getattr(self._inner, method), *arguments)
        except Exception as error:
            raise PLUGINS.failed(self._kind, method, error) from error

    def _decide(self, method: str, *arguments: object) -> Decisions:
        given = self._call(method, *arguments)
        if given is NOTHING or given == ():
            return NOTHING
        call = f"{method}({', '.join(map(show, arguments))})"
        if not isinstance(given, list | tuple):
            raise PLUGINS.wrong(self._kind, call, given, "a sequence of (trial, verdict), or NOTHING")
        return tuple(self._checked(call, decision) for decision in given)

    def _checked(self, call: str, decision: Any) -> tuple[int, Verdict]:
        match decision:
            case (int() as trial, (Stop() | Pause() | Resume() | Exploit() | Resize()) as verdict):
                move = _MOVES[type(verdict)]
            case _:
                raise PLUGINS.wrong(self._kind, call, decision, "(trial, verdict)")
        if move not in self.moves:
            expected = f"one of its moves, {sorted(self.moves)}"
            raise PLUGINS.wrong(self._kind, call, verdict, expected)
        try:
            if isinstance(verdict, Exploit):
                verdict = Exploit(donor=verdict.donor, config=plain(verdict.config))
            elif isinstance(verdict, Resume) and verdict.config is not None:
                verdict = Resume(config=plain(verdict.config))
            elif isinstance(verdict, Resize):
                verdict = Resize(config=plain(verdict.config))
        except Problem as problem:
            raise PLUGINS.wrong(self._kind, call, verdict, f"a config of plain JSON ({problem})") from None
        return trial, verdict
