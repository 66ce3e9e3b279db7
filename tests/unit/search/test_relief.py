"""What relieves a Gaussian process that finds nothing better: whose turn it is, and steps from the best."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import pytest

from raysweep.search.base import Result
from raysweep.search.machinery.stalled import FAR, NEAR, PATIENCE, ROUND, STARTUP, TURNS, RelievedModel
from raysweep.space.parsed import Space
from raysweep.specs import SweepSpec

SPACE: dict[str, Any] = {
    "x": {"uniform": [-5, 5]},
    "lr": {"loguniform": [1e-6, 1.0]},
    "n": {"randint": [0, 4]},
    "q": {"quniform": [0, 1, 0.25]},
    "fixed": {"randint": [3, 4]},
}
MIDDLE: dict[Any, Any] = {("x",): 0.0, ("lr",): 1e-3, ("n",): 2, ("q",): 0.5, ("fixed",): 3}
WORSE, BETTER = Result(1.0), Result(-1.0)


class Named:
    """A model that says who was asked."""

    substitution = None

    def __init__(self, name: str, space: Space) -> None:
        self.name = name
        self.paths = frozenset(path for path, _ in space.searched)
        self.told: list[Any] = []

    def sample(self, number: int, attempt: int) -> dict[Any, Any]:
        return {("who",): self.name}

    def add(self, number: int, values: Mapping[Any, Any]) -> None:
        self.told.append((number, values))

    def end(self, number: int, result: Result | None) -> None:
        self.told.append((number, result))

    def add_earlier(self, values: Mapping[Any, Any], result: Result) -> None:
        self.told.append((values, result))


def relieved(mode: str = "min") -> RelievedModel:
    spec = SweepSpec(name="s", trainable="m:f", param_space=SPACE, metric="m", mode="min", num_samples=9)
    return RelievedModel(spec.space, 7, mode, Named("first", spec.space), Named("other", spec.space))


def tell(model: RelievedModel, results: Mapping[int, Result | None], best: dict[Any, Any] = MIDDLE) -> None:
    for number, result in results.items():
        model.add(number, best)
        model.end(number, result)


def who(model: RelievedModel, number: int) -> str:
    return str(model.sample(number, 0).get(("who",), "near"))


def turns(model: RelievedModel, number: int) -> set[str]:
    return {who(model, each) for each in range(number, number + len(TURNS))}


ALL = set(TURNS)


def test_random_trials_at_first_are_no_reason() -> None:
    model = relieved()
    tell(model, {0: BETTER})
    for number in range(1, STARTUP + PATIENCE - 1):
        tell(model, {number: WORSE})
        assert turns(model, number + 1) == {"first"}
    tell(model, {STARTUP + PATIENCE - 1: WORSE})
    assert turns(model, STARTUP + PATIENCE) == ALL


def test_what_is_better_gives_it_its_turn_again() -> None:
    model = relieved()
    tell(model, dict.fromkeys(range(40), WORSE) | {0: Result(0.0)})
    assert turns(model, 40) == ALL
    tell(model, {40: Result(-0.1)})
    for number in range(41, 40 + PATIENCE):
        tell(model, {number: WORSE})
        assert turns(model, number + 1) == {"first"}
    tell(model, {40 + PATIENCE: Result(-0.1)})  # as good is not better
    assert turns(model, 41 + PATIENCE) == ALL


def test_the_turns_are_shared_evenly() -> None:
    model = relieved()
    tell(model, dict.fromkeys(range(30), WORSE))
    asked = [who(model, number) for number in range(30, 60)]
    assert {each: asked.count(each) for each in ALL} == dict.fromkeys(ALL, 10)


def test_failed_trials_are_nothing_better() -> None:
    model = relieved()
    tell(model, {number: BETTER if number == 3 else None for number in range(STARTUP + PATIENCE)})
    assert turns(model, 20) == ALL


def test_where_all_have_failed_there_is_no_best_to_go_from() -> None:
    model = relieved()
    tell(model, dict.fromkeys(range(40), None))
    assert turns(model, 40) == {"first"}


def test_the_order_of_being_told_does_not_matter() -> None:
    told = {12: Result(0.0), 20: Result(0.0), 21: Result(3.0), 22: None}
    samples = []
    for order in permutations(told):
        model = relieved()
        tell(model, {number: Result(1.0 + number) for number in range(20) if number not in told})
        for number in told:
            model.add(number, {**MIDDLE, ("x",): number / 100})
        for number in order:
            model.end(number, told[number])
        samples.append([model.sample(number, 0) for number in (23, 24, 25)])
    assert all(each == samples[0] for each in samples)
    assert turns(model, 23) == ALL


@pytest.mark.parametrize(("mode", "best"), [("min", 11), ("max", 12)])
def test_the_best_is_of_the_mode(mode: str, best: int) -> None:
    model = relieved(mode)
    for number in range(STARTUP + PATIENCE + 5):
        value = {11: -9.0, 12: 9.0}.get(number, 0.0)
        tell(model, {number: Result(value)}, {**MIDDLE, ("x",): number / 10})
    steps = [each["x",] for each in near(model)]
    assert sum(step == best / 10 for step in steps) > len(steps) / 4, "a parameter in two stays"


def test_what_breaks_a_constraint_is_not_the_best() -> None:
    model = relieved()
    tell(model, dict.fromkeys(range(STARTUP + PATIENCE), Result(1.0, (0.5,))) | {11: Result(5.0, (-1.0,))})
    assert turns(model, 20) == {"first"}, "it is the first that satisfies"
    tell(model, dict.fromkeys(range(20, 20 + PATIENCE), Result(-9.0, (0.1,))))
    assert turns(model, 30) == ALL


def stalled(best: dict[Any, Any], for_results: int = 0) -> RelievedModel:
    model = relieved()
    tell(model, {0: BETTER}, best)
    tell(model, dict.fromkeys(range(1, STARTUP + PATIENCE + for_results), WORSE))
    return model


def near(model: RelievedModel, count: int = 600) -> list[dict[Any, Any]]:
    return [model.sample(number, 0) for number in range(100, 100 + count) if who(model, number) == "near"]


def test_steps_go_from_far_to_near_and_begin_anew() -> None:
    def spread(for_results: int) -> float:
        moved = [abs(each["x",]) / 10 for each in near(stalled(MIDDLE, for_results)) if each["x",]]
        return sum(moved) / len(moved) / 0.8  # the mean of a normal distribution's distances, over its width

    widths = [spread(for_results) for for_results in range(ROUND + 1)]
    assert widths[0] == pytest.approx(FAR, rel=0.15)
    assert widths[ROUND - 1] == pytest.approx(NEAR * (FAR / NEAR) ** (1 / ROUND), rel=0.15)
    assert widths[ROUND] == pytest.approx(FAR, rel=0.15)


def test_trials_that_run_take_different_steps() -> None:
    model = stalled(MIDDLE, for_results=5)
    far = [abs(each["x",]) for each in near(model)]
    for number in range(30, 35):
        model.add(number, MIDDLE)
    assert sum(abs(each["x",]) for each in near(model)) < 0.6 * sum(far)


def test_what_was_asked_for_before_is_waited_for() -> None:
    """With ten at a time, five results say little about what the model knows now."""
    model = stalled(MIDDLE)
    for number in range(30, 40):
        model.add(number, MIDDLE)
    assert turns(model, 40) == {"first"}
    tell(model, dict.fromkeys(range(15, 25), WORSE))
    assert turns(model, 40) == ALL


@pytest.mark.parametrize(
    "best",
    [
        MIDDLE,
        {("x",): 5.0, ("lr",): 1.0, ("n",): 3, ("q",): 1.0, ("fixed",): 3},
        {("x",): -5.0, ("lr",): 1e-6, ("n",): 0, ("q",): 0.0, ("fixed",): 3},
    ],
)
def test_steps_stay_in_the_space_and_change_something(best: dict[Any, Any]) -> None:
    for for_results in (0, ROUND - 1):
        found = near(stalled(best, for_results))
        for each in found:
            assert -5 <= each["x",] <= 5
            assert 1e-6 <= each["lr",] <= 1
            assert each["n",] in range(4)
            assert each["q",] in (0, 0.25, 0.5, 0.75, 1)
            assert each["fixed",] == 3
        for path in MIDDLE:
            changed = sum(each[path] != best[path] for each in found)
            assert (changed > len(found) / 10) == (path != ("fixed",)), path
        # A step that leaves all as it is can only be one of whole numbers.
        assert sum(each == best for each in found) < len(found) / 8


def test_attempts_differ_and_asking_changes_nothing() -> None:
    model = stalled(MIDDLE)
    assert model.sample(31, 0) == model.sample(31, 0)
    assert len({tuple(model.sample(31, attempt).values()) for attempt in range(8)}) > 5


def test_both_models_know_all() -> None:
    model = relieved()
    model.add_earlier(MIDDLE, WORSE)
    told = dict.fromkeys(range(3), WORSE) | {3: None}
    tell(model, told)
    first: Any = model._first
    other: Any = model._other
    assert first.told == other.told
    assert len(first.told) == 9
