"""A result of a trial that paused counts until a later one takes its place, to every search that learns."""

from __future__ import annotations

import random
from typing import Any

import pytest

from raysweep.search import Result, Searcher, WarmStart, make_searcher, tell_end
from raysweep.search.base import TrialEnd
from raysweep.search.machinery.anchors import Anchors
from raysweep.search.machinery.window import Window
from raysweep.specs import SweepSpec
from tests.sampling import sampled

NUMBERS: dict[str, Any] = {
    "x": {"uniform": [0, 1]},
    "y": {"loguniform": [1e-3, 1]},
    "n": {"randint": [0, 99]},
}
KINDS: dict[str, Any] = {"k": {"choice": ["a", "b", "c"]}, **NUMBERS}
SEARCHES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "tpe": ({"tpe": {"n_startup_trials": 4}}, KINDS, {}),
    "tpe of a few": ({"tpe": {"n_startup_trials": 4, "max_results": 10}}, KINDS, {}),
    "gp": ({"gp": {"n_startup_trials": 4}}, NUMBERS, {}),
    "gp of a few": ({"gp": {"n_startup_trials": 4, "max_results": 10}}, NUMBERS, {}),
    "gp by cost": ({"gp": {"n_startup_trials": 4, "cost_attr": "price"}}, NUMBERS, {}),
    "cma_es": ({"cma_es": {"population_size": 4}}, NUMBERS, {}),
    "nsga2": ({"nsga2": {"population_size": 4}}, KINDS, {}),
    "nsga3": ({"nsga3": {"population_size": 4}}, KINDS, {"metric": ["m", "y"], "mode": ["min", "max"]}),
    "auto": ("auto", NUMBERS, {}),
    "auto, then cma_es": ({"auto": {"switch_after": 12}}, NUMBERS, {}),
    "auto of kinds": ("auto", KINDS, {}),
    "left open": ({}, NUMBERS, {}),
    "under constraints": ("auto", NUMBERS, {"constraints": ["size <= 1"]}),
}
Told = tuple[Result | None, TrialEnd]
TRIALS = 26


def make(kind: str, warm: WarmStart | None = None) -> Searcher:
    search, space, fields = SEARCHES[kind]
    fields = {"name": "s", "trainable": "m:f", "metric": "m", "mode": "min", "param_space": space} | fields
    return make_searcher(SweepSpec(search=search, num_samples=40, **fields), 5, warm)


def result_at(config: dict[str, Any], rung: int, kind: str) -> Result:
    """The longer it runs, the better it is, and the more its own."""
    value = 3.0 / rung + (config["x"] - 0.3) ** 2 * rung + config["n"] / 100
    fields = SEARCHES[kind][2]
    violations = (config["x"] - 0.2 * rung,) if "constraints" in fields else ()
    others = (config["y"],) if "metric" in fields else ()
    cost = config["x"] * rung + 0.1 if kind == "gp by cost" and (config["n"] + rung) % 5 else None
    return Result(value, violations=violations, others=others, cost=cost)


def play(searcher: Searcher, kind: str, *, trials: int = TRIALS, is_final: bool = False) -> list[Any]:
    """Configs one after the other, and what was told before each ask: of some trials three times.

    `is_final`: only the last of what there is to say of a trial until the next ask.
    """
    chance, played = random.Random(3), []
    rungs: dict[int, int] = {}
    configs: list[dict[str, Any]] = []
    for number in range(trials):
        told: list[tuple[int, Told]] = []
        for trial in [number - 1, *chance.sample(sorted(rungs), min(2, len(rungs)))] if number else []:
            for _ in range(chance.randint(1, 2)):
                if trial != number - 1 and trial not in rungs:
                    break
                rungs[trial] = rungs.get(trial, 0) + 1
                result = result_at(configs[trial], rungs[trial], kind)
                if rungs[trial] < 3 and chance.random() < 0.9:
                    told.append((trial, (result, "paused")))
                    continue
                del rungs[trial]
                told.append((trial, (None, "failed") if chance.random() < 0.2 else (result, "completed")))
                break
        for trial, (result, state) in list(dict(told).items()) if is_final else told:
            tell_end(searcher, trial, result, state=state)
        config = searcher.ask(number)
        assert config is not None
        configs.append(config)
        played.append((config, told))
    return played


@pytest.mark.parametrize("kind", sampled(SEARCHES, lambda kind: not kind.startswith("gp")))
def test_the_last_word_on_a_trial_counts(kind: str) -> None:
    played = play(make(kind), kind)
    told = [(trial, state) for _, before in played for trial, (_, state) in before]
    paused = [trial for trial, state in told if state == "paused"]
    assert len(paused) > len(set(paused)), "some pause twice"
    assert {trial for trial, state in told if state == "completed"} & {*paused}
    assert {trial for trial, state in told if state == "failed"} & {*paused}
    assert play(make(kind), kind, is_final=True) == played


@pytest.mark.parametrize("kind", sampled(SEARCHES, lambda kind: not kind.startswith("gp ")))
def test_rebuilt_with_the_last_words_alone_it_goes_on_as_before(kind: str) -> None:
    played = play(make(kind), kind)
    for at in (9, 17, TRIALS - 1):
        known = {trial: told for _, before in played[: at + 1] for trial, told in before}
        rebuilt = make(kind)
        for number, (config, _) in enumerate(played[:at]):
            rebuilt.restore(number, config)
        for number in sorted(known):
            tell_end(rebuilt, number, known[number][0], state=known[number][1])
        assert rebuilt.ask(at) == played[at][0], f"asked for config {at} after a resume there"


@pytest.mark.parametrize("kind", ["tpe", "gp", "cma_es", "nsga2", "auto", "left open"])
def test_it_learns_of_trials_that_have_only_paused(kind: str) -> None:
    told, untold = make(kind), make(kind)
    for number in range(16):
        config = told.ask(number)
        assert config is not None
        untold.restore(number, config)
        tell_end(told, number, result_at(config, 1, kind), state="paused")
    assert told.ask(16) != untold.ask(16)


@pytest.mark.parametrize("later", [Result(9.0), None], ids=["worse", "failed"])
def test_the_best_that_went_on_to_less_is_the_best_no_more(later: Result | None) -> None:
    """`auto` takes steps away from the best config: from what is the best now."""
    searcher, plain = make("auto"), make("auto")
    for number in range(30):
        config = searcher.ask(number)
        assert config is not None
        plain.restore(number, config)
        value = Result(-5.0 if number == 3 else 1.0 + number / 100)
        tell_end(searcher, number, value, state="paused" if number == 3 else "completed")
        tell_end(plain, number, later if number == 3 else value, state="completed")
    tell_end(searcher, 3, later, state="completed")
    assert [searcher.ask(30), searcher.ask(31)] == [plain.ask(30), plain.ask(31)]


def test_one_that_failed_after_a_pause_is_no_result_that_another_model_waits_for() -> None:
    searcher, plain = (make("auto, then cma_es") for _ in range(2))
    for number in range(12):
        config = searcher.ask(number)
        assert config is not None
        plain.restore(number, config)
        tell_end(searcher, number, Result(config["x"]), state="completed" if number else "paused")
        tell_end(plain, number, Result(config["x"]) if number else None, state="completed")
    tell_end(searcher, 0, None, state="failed")
    assert searcher.ask(12) == plain.ask(12)


def test_nothing_is_known_of_one_that_paused_without_a_number() -> None:
    searcher, other = make("tpe"), make("tpe")
    for number in range(16):
        config = searcher.ask(number)
        assert config == other.ask(number)
        for each in (searcher, other) if number < 8 else ():
            tell_end(each, number, Result(number / 10), state="completed")
        if number >= 8:
            tell_end(searcher, number, None if number % 2 else Result(float("nan")), state="paused")
    for each in (searcher, other):
        tell_end(each, 9, Result(0.5), state="completed")
    assert searcher.ask(16) == other.ask(16), "it may still end with one"


def test_anchors_are_waited_for_until_they_have_ended() -> None:
    configs = tuple({"x": x, "y": 0.1, "n": 5} for x in (0.1, 0.5, 0.9))
    others = tuple({"x": x, "y": 0.2, "n": 7} for x in (0.2, 0.3, 0.6, 0.8))
    told = tuple((config, config["x"]) for config in (*configs, *others))
    anchors = Anchors(configs=configs, half_life=7.0, runs=(0,) * len(told))
    warm = WarmStart(told=told, sources=("before",), anchors=anchors)
    searcher = make("gp", warm)
    for number in range(3):
        assert searcher.ask(number) == configs[number]
        tell_end(searcher, number, Result(0.7), state="paused")
    remark = searcher.take_remark()  # type: ignore[attr-defined]
    assert remark is None
    for number, config in enumerate(configs):
        tell_end(searcher, number, Result(config["x"]), state="completed")
    remark = searcher.take_remark()  # type: ignore[attr-defined]
    assert remark is not None
    assert "4 of their trials count" in remark
    rebuilt = make("gp", warm)
    for number, config in enumerate(configs):
        rebuilt.restore(number, config)
        tell_end(rebuilt, number, Result(config["x"]), state="completed")
    assert rebuilt.ask(3) == searcher.ask(3), "told again with what anchors had in the end"


@pytest.mark.parametrize("modes", [("min",), ("max", "min")])
def test_a_window_ranks_what_is_true_now(modes: tuple[str, ...]) -> None:
    changed, plain = Window(9, modes), Window(9, modes)
    others = (0.5,) if len(modes) > 1 else ()
    for place in range(30):
        changed.add(place, Result(-1.0 if place < 9 else place / 10, others=others))
    assert changed.is_full
    changed.kept()
    for place in range(30):
        value = Result((place * 7 % 30) / 10, others=others)
        if place % 5:
            changed.add(place, value)
            plain.add(place, value)
        else:
            changed.add(place, None)
            changed.add(place, None)
    assert changed.count == plain.count == 24
    assert changed.kept() == plain.kept()
