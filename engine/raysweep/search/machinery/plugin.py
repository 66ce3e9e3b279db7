"""A searcher of the user's own, watched: what it gives is checked, and what it raises names it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from raysweep.documents.code import user_code
from raysweep.documents.code.plugins import Plugins
from raysweep.documents.json_values import plain
from raysweep.documents.kinds import PluginOptions
from raysweep.documents.validation import Problem
from raysweep.errors import SpecError
from raysweep.search.base import Result, Searcher, SearchSetup, TrialEnd, tell_earlier, tell_end
from raysweep.search.tune_searcher import adapted, check_repeatable
from raysweep.space.parsed import parse_where

PLUGINS: Final[Plugins[Searcher]] = Plugins(
    "search", Searcher, "raysweep.search", adapted=adapted, required=("ask",)
)


def check_plugin(kind: str, options: PluginOptions, setup: SearchSetup) -> None:
    """See that a searcher of Ray Tune's can be had back by a resume. Raises SpecError."""
    check_repeatable(lambda: PLUGINS.make(kind, options, setup))


class PluginSearcher(Searcher):
    """Wraps a searcher of a class that was loaded.

    What `ask` raises is the failure of that trial, as it is with functions in the search space; what the
    others raise ends the sweep, resumably.

    Raises:
        SpecError: the class was not loaded, its options do not fit, or it cannot be made from them.
    """

    def __init__(self, kind: str, options: PluginOptions, setup: SearchSetup) -> None:
        self._kind = kind
        self._where = parse_where(setup.where, setup.param_space)
        self._inner = PLUGINS.make(kind, options, setup)
        self.is_adaptive = self._read("is_adaptive", bool, "True or False")
        if len(setup.modes) > 1 and self.is_adaptive and not self._inner.judges:
            problem = f"{kind} searches by one metric: it has no tell_result"
            raise SpecError("search", problem, "write tell_result, which receives all, or give one metric")
        self.total: int | None = self._read("total", int | None, "a number of configs, or None")

    @property
    def note(self) -> str | None:  # type: ignore[override]
        """See `Searcher`."""
        note: str | None = self._read("note", str | None, "a line, or None")
        return note

    def take_remark(self) -> str | None:
        """Return one line for the user, once; None where there is none."""
        return user_code.call(self._inner.take_remark)

    def ask(self, number: int) -> dict[str, Any] | None:
        """Return the config of trial `number`, as plain JSON."""
        given: object = user_code.call(self._inner.ask, number)
        if given is None:
            return None
        try:
            config = plain(given)
        except Problem as problem:
            raise PLUGINS.wrong(self._kind, f"ask({number})", given, f"a config ({problem})") from None
        if not isinstance(config, dict):
            raise PLUGINS.wrong(self._kind, f"ask({number})", given, "a config, or None")
        broken = [relation.text for relation in self._where if not relation.holds(config)]
        if broken:
            wanted = f"a config that satisfies {broken[0]!r} (setup.space.sample gives such)"
            raise PLUGINS.wrong(self._kind, f"ask({number})", config, wanted)
        return config

    def restore(self, number: int, config: dict[str, Any]) -> None:
        """Take note of a config that an earlier run asked for."""
        self._call("restore", self._inner.restore, number, config)

    def replay_failed(self, number: int) -> None:
        """See `Searcher.replay_failed`."""
        self._call("ask", self._inner.replay_failed, number)

    def take_given(self, number: int, config: dict[str, Any]) -> None:
        """Take note of a config that it did not suggest; a class without this method gets it by `restore`."""
        self._call("take_given", self._inner.take_given, number, config)

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        """Report how a trial ended."""
        self._call("tell", self._inner.tell, number, value, state)

    def tell_result(self, number: int, result: Result, state: TrialEnd) -> None:
        """Report how a trial ended; a class without this method is told as `tell_end` says."""
        self._call("tell_result", partial(tell_end, self._inner, number, result, state=state))

    def tell_infeasible(self, number: int) -> None:
        """Report a trial that failed by its config; a class without this method is told that it failed."""
        self._call("tell_infeasible", partial(tell_end, self._inner, number, None, state="infeasible"))

    def tell_earlier_result(self, config: dict[str, Any], result: Result) -> None:
        """Report a trial of an earlier sweep, in the same way."""
        self._call("tell_earlier_result", tell_earlier, self._inner, config, result)

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        """Report a trial of an earlier sweep."""
        self._call("tell_earlier", self._inner.tell_earlier, config, value)

    def _call(self, method: str, call: Callable[..., None], *arguments: object) -> None:
        try:
            user_code.call(call, *arguments)
        except SpecError:
            raise
        except Exception as error:
            raise PLUGINS.failed(self._kind, method, error) from error

    def _read(self, name: str, expected: Any, words: str) -> Any:
        try:
            value = user_code.call(getattr, self._inner, name)
        except Exception as error:
            raise PLUGINS.failed(self._kind, name, error) from error
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            raise PLUGINS.wrong(self._kind, name, value, words)
        return value
