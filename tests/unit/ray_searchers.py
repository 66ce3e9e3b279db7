"""Searchers on Ray Tune's base class, for the tests that name them by import path."""

from __future__ import annotations

import random
from typing import Any

from ray.tune.search import Searcher


class Climbs(Searcher):
    """Suggests places near the best that it was told of, from a generator of its own that continues."""

    def __init__(self, seed: int | None = None, width: float = 0.3) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._width = width
        self._places: dict[str, dict[str, Any]] = {}
        self._best: tuple[float, float] | None = None

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict, **spec: Any) -> bool:
        assert mode == "min"
        self._metric, self._mode, self._space = metric, mode, config
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        at = self._random.random()
        if self._best is not None:
            at = min(max(self._best[1] + self._width * (at - 0.5), 0.0), 1.0)
        self._places[trial_id] = {"x": at}
        return {"x": at}

    def on_trial_complete(self, trial_id: str, result: dict | None = None, error: bool = False) -> None:
        place = self._places.pop(trial_id)
        if error:
            return
        assert result is not None
        found = result[self.metric], place["x"]
        self._best = found if self._best is None else min(self._best, found)
        self._random.random()  # the order of asks and tells matters


class Global(Climbs):
    """Draws from the generator that all share, and has no seed."""

    def __init__(self) -> None:
        super().__init__()
        self._random = random  # type: ignore[assignment]


class Careless(Climbs):
    """Has a generator without a seed, whatever it is given."""

    def __init__(self) -> None:
        super().__init__()


class Forgets(Climbs):
    """Goes by its seed for four suggestions, and then by the machine's own chance."""

    _asked = 0

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        self._asked += 1
        if self._asked > 4:
            self._random = random.SystemRandom()
        return super().suggest(trial_id)


class Stubborn(Climbs):
    """Suggests 0.9 until it is told of something worse than 1, and then 0.2."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, float | None]] = []

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        is_sorry = any(value is not None and value > 1 for _, value in self.told)
        return {"x": 0.2 if is_sorry else 0.9}

    def on_trial_complete(self, trial_id: str, result: dict | None = None, error: bool = False) -> None:
        self.told.append((trial_id, None if error or result is None else result[self.metric]))


class Waits(Climbs):
    """Wants to know of a trial before it suggests a third."""

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        return None if len(self._places) >= 2 else super().suggest(trial_id)


class Ends(Climbs):
    """Has five configs."""

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        return self.FINISHED if int(trial_id) >= 5 else super().suggest(trial_id)


class Learns(Climbs):
    """Can be told of what it has not suggested."""

    def add_evaluated_point(self, parameters: dict, value: float, **more: Any) -> None:
        self._best = (value, parameters["x"])


class Deaf(Searcher):
    """Takes no space."""

    def suggest(self, trial_id: str) -> dict[str, Any]:
        return {"x": 0.5}

    def on_trial_complete(self, trial_id: str, result: dict | None = None, error: bool = False) -> None:
        pass


class Everything(Searcher):
    """Draws from each of Ray's domains."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict, **spec: Any) -> bool:
        self.space = config
        return True

    def suggest(self, trial_id: str) -> dict[str, Any]:
        def drawn(node: Any) -> Any:
            return (
                {key: drawn(each) for key, each in node.items()} if isinstance(node, dict) else node.sample()
            )

        found: dict[str, Any] = drawn(self.space)
        return found

    def on_trial_complete(self, trial_id: str, result: dict | None = None, error: bool = False) -> None:
        pass


class Raises(Climbs):
    """Fails for its fourth trial."""

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if trial_id == "3":
            raise ArithmeticError("the matrix is singular")
        return super().suggest(trial_id)


class Stumbles(Climbs):
    """Fails for every third trial once it has drawn, and so is no more what it was before."""

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        given = super().suggest(trial_id)
        if int(trial_id) % 3 == 1:
            raise ArithmeticError("the matrix is singular")
        return given


class Overshoots(Climbs):
    """Suggests what lies beyond the bounds, now on this side, now on the other."""

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        is_even = int(trial_id) % 2 == 0
        return {"x": 1.5 if is_even else -2.0, "n": 9 if is_even else 1}
