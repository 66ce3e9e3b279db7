"""Configs that run several times: seeds, means, the race, and that kills change nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import Any, ClassVar

import pytest

from examples import functions
from raysweep.core import SweepState, step
from raysweep.core.seeds import trial_seed
from raysweep.errors import SpecError
from raysweep.outcome import SweepOutcome
from raysweep.search import Searcher, SearchSetup, TrialEnd
from raysweep.search.base import Result
from raysweep.search.machinery.repeat import Repeat, RepeatSearcher
from raysweep.simulate import Kill, Simulated, simulate
from raysweep.specs import SweepSpec
from raysweep.specs.continuing import Continue, Extension
from tests.unit.plugins import Draws, Options
from tests.unit.simulate.exactness import kills_of
from tests.unit.simulate.sweeps import make_spec, shown

RACE: dict[str, Any] = {"times": 6, "race": "wilcoxon", "seed_param": "seed"}


def noisy(config: Mapping[str, Any], iteration: int) -> dict[str, Any] | None:
    """By its config, and much by a seed that all configs have in common."""
    if iteration > 2:
        return None
    noise = random.Random(config["seed"]).gauss(0, 1) + random.Random(str(config)).gauss(0, 0.02)
    return {"loss": config["x"] + noise}


def run(*kills: Kill, curve: Any = noisy, slots: int = 2, **fields: Any) -> Simulated:
    spec = make_spec(**{"num_samples": 7, "repeat": RACE, **fields})
    options = {"slots": slots, "save_every": 1, "is_checked": True, "has_snapshots": bool(kills)}
    return simulate(spec, curve, kills=kills, **options)


def repeats_of(outcome: SweepOutcome, times: int) -> list[list[Any]]:
    return [list(outcome.trials[at : at + times]) for at in range(0, len(outcome.trials), times)]


def test_each_config_runs_with_the_same_seeds() -> None:
    outcome = run(repeat={"times": 3, "seed_param": "seed"}).outcome
    assert len(outcome) == 21 == outcome.num_trials
    seeds = [trial.config["seed"] for trial in outcome.trials]
    assert seeds == seeds[:3] * 7
    assert len(set(seeds)) == 3
    assert all(len({t.config["x"] for t in group}) == 1 for group in repeats_of(outcome, 3))
    assert len({trial.config["x"] for trial in outcome.trials}) == 7


def test_the_trials_own_seeds_are_common_too() -> None:
    spec = make_spec(num_samples=3, repeat=4)
    state = SweepState.create(spec, 9)
    whole = simulate(spec, lambda config, _: {"loss": config["x"]} if _ < 2 else None)
    seeds: dict[int, int] = {}
    for event in whole.journal:
        for command in step(state, event):
            if type(command).__name__ == "StartTrial":
                seeds[command.trial] = command.seed  # type: ignore[union-attr]
    assert seeds == {number: trial_seed(9, number % 4) for number in range(12)}


def test_the_best_config_has_the_best_mean() -> None:
    outcome = run(repeat={"times": 4, "seed_param": "seed"}).outcome
    assert [each.state for each in outcome.configs] == ["completed"] * 7
    means = [each.mean for each in outcome.configs]
    assert means == sorted(means)
    first = outcome.configs[0]
    scores = [outcome.trials[number].score for number in first.trials]
    assert first.mean == pytest.approx(mean(filter(None, scores)))
    assert first.std == pytest.approx(stdev(filter(None, scores)))
    assert outcome.best is not None
    assert outcome.best.number == first.best
    assert outcome.best.score == min(filter(None, scores))
    assert first.config == {"x": outcome.best.config["x"]}
    assert [trial.number for trial in outcome.top(3)] == [each.best for each in outcome.configs[:3]]
    assert "± " in outcome.why
    assert SweepOutcome.from_json(outcome.to_json()) == outcome


def test_one_lucky_repeat_does_not_make_a_config_the_best() -> None:
    plain = run(repeat=RACE | {"race": None}).outcome.trials
    worst, seed = max(trial.config["x"] for trial in plain), plain[0].config["seed"]

    def lucky(config: Mapping[str, Any], iteration: int) -> dict[str, Any] | None:
        is_lucky = config["x"] == worst and config["seed"] == seed
        return {"loss": -1.0 if is_lucky else config["x"]} if iteration == 1 else None

    outcome = run(curve=lucky, repeat=RACE | {"race": None}).outcome
    assert min(trial.score or 0 for trial in outcome.trials) == -1.0
    assert outcome.best is not None
    assert outcome.best.config["x"] != worst


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("search", ["random", {"tpe": {"n_startup_trials": 3}}])
def test_a_race_drops_what_is_worse_and_finds_the_same_best(slots: int, search: Any) -> None:
    whole = run(search=search, slots=slots, repeat=RACE | {"race": False}).outcome
    raced = run(search=search, slots=slots).outcome
    dropped = [each for each in raced.configs if each.state == "dropped"]
    assert dropped
    assert all(4 <= each.completed < 6 for each in dropped)
    assert raced.counts["stopped"] == sum(6 - each.completed for each in dropped)
    assert raced.counts["completed"] < whole.counts["completed"] == 42
    assert raced.status == "completed"
    if search == "random":
        assert raced.configs[0].config == whole.configs[0].config


def test_nothing_that_was_dropped_begins_later() -> None:
    """One trial at a time, and asked one by one: the rest of a config is suggested when it is out already."""
    raced = run(search={"tpe": {"n_startup_trials": 3}}, slots=1, max_concurrent_trials=1).outcome
    stopped = [trial for trial in raced.trials if trial.state == "stopped"]
    assert stopped
    assert not any(trial.attempts for trial in stopped)


@pytest.mark.parametrize("repeat", [{"times": 3, "seed_param": "seed"}, RACE])
@pytest.mark.parametrize(
    "search", ["random", {"tpe": {"n_startup_trials": 2}}, {"cma_es": {"population_size": 4}}]
)
def test_kills_change_nothing(repeat: Any, search: Any) -> None:
    fields = {"repeat": repeat, "search": search, "max_concurrent_trials": 1}
    fields |= {"param_space": {"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}}}
    whole = run(**fields)
    for kill in random.Random(2).sample(kills_of(whole), 6):
        killed = run(kill, **fields)
        assert shown(killed) == shown(whole), kill
        assert killed.outcome.configs == whole.outcome.configs, kill


def fails(config: Mapping[str, Any], iteration: int) -> dict[str, Any] | None:
    if config["x"] < 0.5 and config["seed"] % 3 == 0:
        raise ValueError("for this seed")
    return {"loss": config["x"]} if iteration == 1 else None


def test_a_config_of_which_a_repeat_failed_comes_last() -> None:
    outcome = run(curve=fails, repeat=RACE | {"race": None}, failure={"max_failures": 0}).outcome
    states = [each.state for each in outcome.configs]
    assert set(states) == {"completed", "failed"}
    assert states == sorted(states)
    assert outcome.best is not None
    assert outcome.best.config["x"] >= 0.5


def test_a_deadline_leaves_configs_incomplete() -> None:
    outcome = run(repeat=RACE | {"race": None}, stop={"time_budget_s": 45}, slots=1).outcome
    states = [each.state for each in outcome.configs]
    assert outcome.status == "budget"
    assert "partial" in states
    assert states == sorted(states)


class Listening(Searcher):
    """Notes what it is told."""

    is_adaptive, total, note = True, 2, None

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def ask(self, number: int) -> dict[str, Any] | None:
        return {"x": number} if number < 2 else None

    def restore(self, number: int, config: dict[str, Any]) -> None:
        self.heard.append(("restored", number, config))

    def tell(self, number: int, value: float | None, state: Any) -> None:
        self.heard.append((number, value, state))

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        self.heard.append((config, value))


C, S, F = "completed", "stopped", "failed"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([(1.0, C), (2.0, C), (6.0, C)], (0, 3.0, C)),
        ([(1.0, C), (2.0, C), (None, S)], (0, 1.5, S)),
        ([(1.0, C), (2.0, C), (9.0, S)], (0, 1.5, S)),
        ([(1.0, C), (2.0, C), (None, F)], (0, None, F)),
        ([(None, S), (None, S), (None, S)], (0, None, F)),
    ],
)
def test_a_search_is_told_once(told: Sequence[tuple[float | None, Any]], expected: Any) -> None:
    inner = Listening()
    searcher = RepeatSearcher(inner, Repeat(times=3), 1)
    assert [searcher.ask(number) for number in range(7)] == [*[{"x": 0}] * 3, *[{"x": 1}] * 3, None]
    assert searcher.total == 6
    for number in (2, 0, 1):
        assert inner.heard == []
        searcher.tell(number, *told[number])
    assert inner.heard == [expected]


def test_a_search_takes_note_of_a_config_once_and_without_its_seed() -> None:
    inner = Listening()
    searcher = RepeatSearcher(inner, Repeat(times=3, seed_param="seed"), 1)
    for number in range(2):
        searcher.restore(number, {"x": 0.5, "seed": number})
    assert inner.heard == [("restored", 0, {"x": 0.5})]
    third = searcher.ask(2)
    assert third is not None
    assert third["x"] == 0.5
    fresh = RepeatSearcher(Listening(), Repeat(times=3, seed_param="seed"), 1)
    assert [fresh.ask(number)["seed"] for number in range(3)][2] == third["seed"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"scheduler": {"asha": {"max_t": 9}}}, "scheduler: with repeat, asha would stop or change"),
        ({"search": {"configs": {"configs": [{"x": 1}]}}}, "search: with repeat, a list of configs has"),
        ({"metric": ["loss", "size"], "mode": ["min", "max"]}, "metric: with repeat, configs are"),
        ({"constraints": ["size <= 1"]}, "constraints: with repeat"),
        ({"stop": {"target": 0.1}}, "stop.target: with repeat"),
        ({"stop": {"plateau": {}}}, "stop.plateau: with repeat"),
        ({"stop": {"trial_wilcoxon": {}}}, "stop.trial_wilcoxon: with repeat"),
        ({"checkpoint": {"keep_top_k": 1}}, "checkpoint.keep_top_k: with repeat"),
        ({"warm_start": {}, "search": "tpe", "num_samples": 9}, "warm_start: with repeat, anchors would be"),
        ({"param_space": {"x": {"sample_from": "a.b:c"}}}, "param_space: with repeat, sample_from"),
        ({"repeat": {"times": 4, "race": "wilcoxon"}}, "repeat.race: no p-value of 3 repeats is below"),
        ({"repeat": {"times": 3, "seed_param": "x"}}, "repeat.seed_param: is a parameter"),
        ({"repeat": 1}, "repeat.times: "),
        ({"repeat": {"times": 5, "race": "best"}}, "repeat.race"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_by_name(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(SpecError) as error:
        make_spec(**{"repeat": 5, **fields})
    assert str(error.value).startswith(expected)


def test_a_number_is_enough() -> None:
    assert make_spec(repeat=5) == make_spec(repeat={"times": 5})
    assert make_spec(repeat={"times": 5, "race": True}) == make_spec(repeat={"times": 5, "race": "wilcoxon"})
    spec = make_spec(repeat=RACE)
    assert SweepSpec.from_yaml(spec.to_yaml()) == spec
    assert spec.digest() != make_spec().digest()
    digests = [make_spec(repeat=times).digest() for times in (2, 3, 4)]
    assert all(one != other for one, other in pairwise(digests))


def test_the_example_runs_as_it_stands() -> None:
    path = Path(__file__).parents[3] / "examples/repeats.yaml"
    spec = SweepSpec.from_file(path)
    assert f"raysweep sweep examples/{path.name}" in path.read_text()
    outcome = simulate(spec, lambda config, step: functions.noisy(config) if step < 2 else None).outcome
    assert outcome.counts["stopped"] > 20
    first = outcome.configs[0]
    assert functions.machine(first.config)["loss"] < 0.35
    assert first.completed == 6


def test_repeats_go_no_further() -> None:
    Continue(retry="failed").check_for(make_spec(repeat=3))
    Continue(extend=Extension(max_t=9, top=1)).check_for(make_spec())
    with pytest.raises(SpecError, match="extend: with repeat, trials are repeats of a config"):
        Continue(extend=Extension(max_t=9, top=1)).check_for(make_spec(repeat=3))


class Notes(Draws):
    """Keeps what it is told."""

    told: ClassVar[list[tuple[int, str, Result | float | None]]] = []

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        self.told.append((number, state, value))

    def tell_result(self, number: int, result: Result, state: TrialEnd) -> None:
        self.told.append((number, state, result))

    def tell_earlier_result(self, config: dict[str, Any], result: Result) -> None:
        pass


def test_a_class_of_ones_own_is_told_mean_and_spread() -> None:
    Notes.told.clear()
    outcome = run(
        search=f"{__name__}:Notes", repeat={"times": 3, "seed_param": "seed"}, num_samples=4
    ).outcome
    known = {each.trials[0] // 3: each for each in outcome.configs}
    assert sorted(number for number, *_ in Notes.told) == [0, 1, 2, 3]
    for number, state, result in Notes.told:
        assert state == "completed"
        assert isinstance(result, Result)
        assert (result.value, result.spread) == pytest.approx((known[number].mean, known[number].std))


def told_of(*ends: tuple[float | None, TrialEnd]) -> Any:
    """What the searcher inside is told of a config with these repeats."""
    Notes.told.clear()
    setup = SearchSetup(mode="min", seed=1, param_space={"x": {"uniform": [0, 1]}}, num_samples=3)
    searcher = RepeatSearcher(Notes(Options(), setup), Repeat(times=len(ends)), 1)
    for number, (value, end) in enumerate(ends):
        searcher.ask(number)
        searcher.tell(number, value, end)
    return Notes.told[0][2]


def test_of_one_value_there_is_no_spread_and_of_endless_ones_no_error() -> None:
    assert told_of((1.0, "completed"), (3.0, "completed"), (2.0, "stopped")).spread == pytest.approx(2**0.5)
    assert told_of((1.0, "completed"), (3.0, "stopped")) == 1.0, "by tell: there is no more to say"
    assert told_of((1e200, "completed"), (-1e200, "completed")).spread == math.inf
    assert math.isnan(told_of((math.inf, "completed"), (1.0, "completed")).spread)
