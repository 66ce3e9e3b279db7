"""A searcher around a model of what was found: the space, numbers and repeats here, the model in a `Model`.

A model is asked for values and told results; what it gives depends on what it was told, the sweep's seed
and the trial's number, and on no generator that was drawn from earlier. So one that is told again after a
restart continues exactly as the one that was lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from raysweep.errors import SpecError
from raysweep.search.base import Result, Searcher, SearchSetup, TrialEnd, derived_rng, derived_seed
from raysweep.search.machinery.beliefs import Beliefs, are_left, is_turn
from raysweep.search.machinery.cells import (
    Cell,
    Leaf,
    LeafPath,
    NoneLeftError,
    cells_of,
    draw_unused,
    exhausted_note,
    left_over_note,
    total_of,
    widened,
)
from raysweep.search.machinery.config_view import with_views
from raysweep.search.machinery.feasible import Failures, avoids, end_infeasible
from raysweep.space.domains import Grid, SampleFrom
from raysweep.space.parsed import Space
from raysweep.space.unfolding import Unfolding

ATTEMPTS = 8
"""Samples that look for an unused config in a discrete space before the unused ones are counted off."""
STRIDE = 1 << 20
"""The step between the seeds of one attempt's redraws: theirs are those of attempts far beyond all others."""


_WORST = (math.inf, math.inf)


class Model(Protocol):
    """A model of the results, which samples configs that are worth a try."""

    @property
    def paths(self) -> frozenset[LeafPath]:
        """The leaves that it models; the others are drawn at random."""
        ...

    @property
    def substitution(self) -> str | None:
        """One line for the user where it does something else than what was asked for."""
        ...

    def sample(self, number: int, attempt: int) -> dict[LeafPath, Any]:
        """Return values of the leaves that it models, for trial `number`. Changes nothing.

        Those in branches that these values do not take may be left out, or there.
        """
        ...

    def add(self, number: int, values: Mapping[LeafPath, Any]) -> None:
        """Take note of a trial that runs with these values of all leaves that its config has.

        Raises:
            ValueError, TypeError: a value is outside its domain.
        """
        ...

    def end(self, number: int, result: Result | None) -> None:
        """Take note of a result; None: it failed. Called again of one that had paused: the later counts."""
        ...

    def add_earlier(self, values: Mapping[LeafPath, Any], result: Result) -> None:
        """Take note of a result of an earlier sweep."""
        ...


@runtime_checkable
class RungModel(Protocol):
    """A model that learns from trials on the way."""

    def rung(self, number: int, time: float, value: float) -> None:
        """Take note of what a trial had reached at a time."""
        ...


class ModelSearcher(Searcher):
    """Asks a model, and lets it know.

    Trials that were asked for and not told count as running. In a discrete space no config is asked for
    twice, and the search ends with the last one (with a `note`).

    Args:
        space: the parsed search space, without `grid_search`.
        num_samples: how many configs; None: without an end.
        seed: the seed of the sweep.
        model: what the asks come from.
        failures: what the searcher makes of trials that failed by their config; None: nothing.
        is_max: whether the metric is to be large.
    """

    is_adaptive = True

    def __init__(
        self,
        space: Space,
        num_samples: int | None,
        seed: int,
        model: Model,
        *,
        failures: Failures | None = None,
        is_max: bool = False,
    ) -> None:
        self._space = with_views(space)
        self._seed, self._num_samples = seed, num_samples
        self._model, self._failures = model, failures
        # Normally distributed leaves and those with one value, mostly.
        self._unmodelled = [leaf for leaf in space.searched if leaf[0] not in model.paths]
        self._beliefs = Beliefs(space.searched)
        self._sign = -1.0 if is_max else 1.0
        self._judged: dict[int, tuple[float, float]] = {}
        has_functions = any(isinstance(domain, SampleFrom) for _, domain in space.leaves)
        self._cells = None if has_functions else cells_of(space.searched, space.parents)
        size = None if self._cells is None else self._cells.size
        self.total: int | None = total_of(num_samples, size)
        self.note: str | None = None if size is None else exhausted_note(size, num_samples)
        self.substitution: str | None = model.substitution
        self._used: set[Cell] = set()
        self._running: set[int] = set()

    def ask(self, number: int) -> dict[str, Any] | None:
        """Return the config of trial `number`; None past the last sample. A number is asked for once."""
        if self.total is not None and number >= self.total:
            return None
        if self._failures is not None:
            self._failures.settle()
        cell: Cell | None = None
        if self._cells is None:
            values = dict(self._space.draw(lambda attempt: self._sample(number, attempt)))
        else:
            try:
                cell, drawn = draw_unused(
                    self._cells,
                    self._used,
                    lambda attempt: self._sample(number, attempt),
                    derived_rng(self._seed, number),
                    ATTEMPTS,
                    self._space.allows if self._space.where else None,
                )
            except NoneLeftError:
                if not self._used:
                    raise self._space.unsatisfied() from None
                self.note = left_over_note(len(self._used), self._num_samples)
                return None
            values = dict(drawn)
        values = self._space.reached(values)
        # First, as it calls functions of the user: an ask that raises leaves the model as it was.
        config = self._space.build(values)
        self._add(number, values)
        if cell is not None:
            self._used.add(cell)
        return config

    def restore(self, number: int, config: dict[str, Any]) -> None:
        """Let the model know of an earlier ask, as running. Call in the order of the numbers.

        Raises:
            SpecError: the config does not fit the search space.
        """
        try:
            values = self._space.read(config)
            self._add(number, values)
            if self._cells is not None:
                self._used.add(self._cells.cell(values))
        except (ValueError, TypeError, KeyError, IndexError) as error:
            problem = f"the saved config of trial {number} does not fit ({error})"
            raise SpecError(
                "param_space", problem, "resume with the spec that the sweep was started with"
            ) from error

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        """Report how a trial ended; a second report on the same trial changes nothing.

        A stopped or paused trial counts with its value as a completed one does; of one that paused, a later
        report takes the place of this. Without a value, or with NaN, it failed.
        """
        self._end(number, Result(float(value)) if value is not None else None, state)

    def tell_result(self, number: int, result: Result, state: TrialEnd) -> None:
        """Report how a trial ended, with what there is to know of constraints; else as `tell`."""
        self._end(number, result, state)

    def tell_infeasible(self, number: int) -> None:
        """Report a trial that failed by its config; else as `tell`."""
        if self._failures is None:
            self._end(number, None, "failed")
        elif number in self._running:
            self._running.remove(number)
            self._failures.fail(number)
            if self._beliefs:
                self._judged[number] = _WORST

    def tell_rung(self, number: int, time: float, value: float) -> None:
        """Report what a trial had reached, to a model that looks at that."""
        if isinstance(self._model, RungModel):
            self._model.rung(number, time, value)

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        """Let the model know of a trial of an earlier sweep. A discrete space may try its config again."""
        self.tell_earlier_result(config, Result(float(value)))

    def tell_earlier_result(self, config: dict[str, Any], result: Result) -> None:
        """The same, with what there is to know of constraints."""
        values = self._space.read(config)
        self._model.add_earlier(values, result)
        if self._failures is not None:
            self._failures.add_earlier(values, result)

    def _end(self, number: int, result: Result | None, state: TrialEnd) -> None:
        if number not in self._running:
            return
        has_failed = state == "failed" or result is None or any(map(math.isnan, result.values))
        if state != "paused":
            self._running.remove(number)
        elif has_failed:
            return
        told = None if has_failed else result
        self._model.end(number, told)
        if self._failures is not None:
            self._failures.note(number, told)
        if self._beliefs:
            self._judged[number] = _WORST if told is None else (told.penalty, self._sign * told.value)

    def _sample(self, number: int, attempt: int) -> dict[LeafPath, Any]:
        if attempt >= ATTEMPTS and (self._space.where or self._space.parents):
            rng = derived_rng(self._seed, derived_seed(self._seed, number, attempt))
            # Where the model wants to be is not allowed, or used up: it learns as much from what is drawn.
            return {path: widened(domain, attempt).sample(rng) for path, domain in self._space.searched}
        if self._failures is None:
            return self._draw(number, attempt)
        return self._failures.choose(number, lambda redraw: self._draw(number, attempt, redraw))

    def _draw(self, number: int, attempt: int, redraw: int = 0) -> dict[LeafPath, Any]:
        drawn = attempt + redraw * STRIDE
        rng = derived_rng(self._seed, derived_seed(self._seed, number, drawn))
        values = {path: widened(domain, attempt).sample(rng) for path, domain in self._unmodelled}
        values |= self._model.sample(number, drawn)
        is_believed = self._beliefs and is_turn(number) and not are_left(number, self._judged)
        if is_believed and attempt < ATTEMPTS:
            believed = self._beliefs.values(rng, is_first=not number and not drawn)
            # Of a branch that the model did not take, it has given nothing.
            missing = [leaf for leaf in self._space.searched if leaf[0] not in values]
            values |= {path: domain.sample(rng) for path, domain in missing} | believed
        return values

    def _add(self, number: int, values: Mapping[LeafPath, Any]) -> None:
        self._model.add(number, values)
        if self._failures is not None:
            self._failures.add(number, values)
        self._running.add(number)


def refuse_grid(leaves: Iterable[Leaf], kind: str) -> None:
    """See that no leaf is a `grid_search`, for a search that does not walk grids.

    Raises:
        SpecError: names the first one, and two ways out.
    """
    for path, domain in leaves:
        if isinstance(domain, Grid):
            raise SpecError(
                f"param_space.{'.'.join(path)}",
                f"grid_search cannot be combined with the {kind} search",
                'write {"choice": [...]}, or search: "grid"',
            )


def unconditional(space: Space, kind: str) -> tuple[Leaf, ...]:
    """Return the leaves that every config has, for a model that compares configs by the same parameters.

    Raises:
        SpecError: all are in branches, so that there would be nothing to model.
    """
    found = tuple((path, domain) for path, domain in space.searched if path not in space.parents)
    if space.parents and all(path in space.switches for path, _ in found):
        raise without_model(kind)
    return found


def without_model(kind: str) -> SpecError:
    """Return the error for a space of which a search would model nothing."""
    what = f"{kind} models parameters that every config has, and here all are in branches"
    return SpecError("search", what, 'take "tpe" or "auto", which model each branch')


def modes_of(setup: SearchSetup) -> str | tuple[str, ...]:
    """The mode of the metric, or one for each of several."""
    return setup.modes if len(setup.modes) > 1 else setup.mode


def around(model: Model, setup: SearchSetup) -> ModelSearcher:
    """The searcher around a model of `setup.model_space`."""
    unfolding = Unfolding(setup.space)
    if not unfolding.is_plain:
        model = UnfoldedModel(model, unfolding)
    return ModelSearcher(
        setup.space,
        setup.num_samples,
        setup.seed,
        model,
        failures=failures_of(model, setup),
        is_max=setup.mode == "max",
    )


def failures_of(model: Model, setup: SearchSetup) -> Failures:
    """The `Failures` of a searcher of this sweep: the trials that failed by their config."""
    return Failures(setup.space, model, setup.modes or (setup.mode,))


class UnfoldedModel:
    """A model of an unfolded space, as one of the space itself.

    Args:
        model: knows coordinates.
        unfolding: knows how they are made.
    """

    def __init__(self, model: Model, unfolding: Unfolding) -> None:
        self._model, self._unfolding = model, unfolding
        self.paths = unfolding.folded(model.paths)
        self.substitution = model.substitution

    def sample(self, number: int, attempt: int) -> dict[LeafPath, Any]:
        """See `Model`."""
        return self._unfolding.to_values(self._model.sample(number, attempt))

    def add(self, number: int, values: Mapping[LeafPath, Any]) -> None:
        """See `Model`."""
        self._model.add(number, self._unfolding.to_places(values))

    def end(self, number: int, result: Result | None) -> None:
        """See `Model`."""
        self._model.end(number, result)

    def add_earlier(self, values: Mapping[LeafPath, Any], result: Result) -> None:
        """See `Model`."""
        self._model.add_earlier(self._unfolding.to_places(values), result)

    def end_infeasible(self, number: int, worst: Result) -> None:
        """See `feasible.FailureModel`."""
        end_infeasible(self._model, number, worst)

    def avoids(self, number: int) -> bool:
        """See `feasible.AvoidingModel`."""
        return avoids(self._model, number)

    def rung(self, number: int, time: float, value: float) -> None:
        """See `RungModel`."""
        if isinstance(self._model, RungModel):
            self._model.rung(number, time, value)
