"""Anchors: earlier configs run again, and what is told of the past comes from how they did."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.outcome import SweepOutcome
from raysweep.runs.across_runs.champions import Champion, Night
from raysweep.runs.across_runs.releases import add_night
from raysweep.runs.across_runs.warm_start import recall, warm_from_json, warm_to_json
from raysweep.runs.folder import SweepFolder
from raysweep.search import WarmStart, make_searcher
from raysweep.search.base import Result, tell_end
from raysweep.search.machinery.agreement import (
    Entry,
    agreement_of,
    judge,
    key_of,
    line_through,
    rank_correlation,
)
from raysweep.search.machinery.anchors import Anchors, choose_anchors
from raysweep.search.machinery.asking import ask_configs
from raysweep.simulate import simulate
from raysweep.simulate.kills import Kill
from raysweep.specs import SweepSpec, sweep_id
from raysweep.storage.objects.opening import open_store
from raysweep.testing.searcher_contract import SearcherContract
from tests.unit.search.earlier import add_sweep, config, make_spec

MEMORY = {"nights": 5, "anchors": 3, "half_life": None}


def entries(*runs: list[tuple[float, float]]) -> list[Entry]:
    """Runs of configs `x` with scores, the newest first."""
    return [Entry({"x": x}, Result(score), run) for run, known in enumerate(runs) for x, score in known]


def scores(**values: float) -> dict[str, float]:
    """Tonight's scores: `scores(x1=0.5)` of the config x = 1."""
    return {key_of({"x": float(name[1:])}): value for name, value in values.items()}


OLD = [(1.0, 1.0), (2.0, 2.0), (3.0, 4.0), (4.0, 8.0), (5.0, 3.0)]


def test_what_agrees_is_taken_to_tonights_level_and_scale() -> None:
    found = judge(entries(OLD), scores(x1=12.0, x2=14.0, x3=18.0, x4=26.0), None, is_max=False)
    assert found.told == (({"x": 5.0}, Result(16.0)),), (
        "2 x + 10; the anchors themselves are measured tonight"
    )
    assert list(found.agreeing) == pytest.approx([1.0])
    assert (
        str(found) == "memory: 1 of 1 earlier runs agree with 4 anchors that ran again (agreement 1.00): "
        "1 of their trials count, corrected"
    )


def test_what_disagrees_is_dropped_and_so_is_what_cannot_be_compared() -> None:
    turned = judge(entries(OLD), scores(x1=8.0, x2=4.0, x3=2.0, x4=1.0), None, is_max=False)
    assert (turned.told, turned.agreeing) == ((), ())
    assert str(turned).startswith("memory: none of 1 earlier runs agrees with 4 anchors that ran again (agr")
    few = judge(entries(OLD), scores(x1=1.0, x2=2.0), None, is_max=False)
    assert (few.told, few.agreeing, few.others) == ((), (), ())
    assert "cannot be compared by 2 anchors" in str(few)


def test_each_run_is_judged_by_itself_and_the_oldest_is_told_first() -> None:
    runs = entries(OLD, [(1.0, 8.0), (2.0, 4.0), (3.0, 1.0), (6.0, 0.0)], [*OLD[:4], (7.0, 6.0)])
    found = judge(runs, scores(x1=1.0, x2=2.0, x3=4.0, x4=8.0), None, is_max=False)
    assert [told["x"] for told, _ in found.told] == [7.0, 5.0]
    assert (len(found.agreeing), len(found.others)) == (2, 1)


def test_the_same_order_is_not_enough_where_the_line_explains_little() -> None:
    """The good ones have moved away: the best of then is now hardly better than the worst."""
    pairs = [(1.0, 8.9), (1.1, 9.0), (1.2, 9.1), (1.3, 9.2), (8.0, 40.0)]
    assert rank_correlation(pairs) == 1.0
    assert agreement_of(pairs, is_max=False) < 0.5


def test_what_was_best_has_to_be_the_best_again() -> None:
    pairs = [(1.0, 1.1), (1.1, 1.0), (4.0, 4.0), (6.0, 6.0), (8.0, 8.0)]
    assert rank_correlation(pairs) == pytest.approx(0.9)
    assert agreement_of(pairs, is_max=False) == 0.5
    assert agreement_of(pairs, is_max=True) == pytest.approx(0.9)


def test_nothing_counts_as_better_than_what_ran_again() -> None:
    for sign, is_max in ((1, False), (-1, True)):
        past = entries([(x, sign * score) for x, score in [*OLD, (6.0, -5.0)]])
        tonight = {key: sign * value for key, value in scores(x1=1.0, x2=2.0, x3=4.0, x4=8.0).items()}
        found = judge(past, tonight, None, is_max=is_max)
        assert [result.value for _, result in found.told] == [sign * 3.0, sign * 1.0]


def test_old_runs_say_less() -> None:
    run = [*OLD, (6.0, 7.0)]
    found = judge(entries(run, run), scores(x1=1.0, x2=2.0, x3=4.0, x4=8.0), 1.0, is_max=False)
    assert [result.value for _, result in found.told] == [4.0, 6.0, 3.0, 7.0], "half way to their middle"


def test_a_line_of_medians_is_not_tilted_by_one() -> None:
    pairs = [(float(x), 2.0 * x + 1.0) for x in range(6)]
    assert line_through([*pairs, (6.0, 500.0)]) == (2.0, 1.0)
    assert line_through([(1.0, 1.0), (2.0, -9.0)])[0] == 0.25, "never downwards"
    assert rank_correlation([(1.0, 3.0), (2.0, 3.0)]) == 0.0, "no order at all"


def test_anchors_are_those_that_most_runs_have_then_such_as_are_far_from_each_other() -> None:
    newest = [(float(x), float(x)) for x in range(9)]
    runs = entries(newest, [(7.0, 0.0), (8.0, 1.0)], [(8.0, 1.0)])
    chosen = [each["x"] for each in choose_anchors(runs, {"x": 0.0}, 5)]
    assert chosen[:2] == [8.0, 7.0]
    assert chosen[2] in (3.0, 4.0), "in the middle between 0 and 7"
    assert choose_anchors(runs, {"x": 8.0}, 1) == ({"x": 7.0},), "the champion runs anyway"
    assert len(choose_anchors(entries(newest[:2]), None, 5)) == 2
    assert choose_anchors([], {"x": 0.0}, 3) == ()


def test_anchors_lie_on_all_sides_whatever_the_parameters_are() -> None:
    """Of each kind of net, and of the small and the large rates, which no scale is known of."""
    champion = {"net": {"kind": "a", "rate": 1.0}, "deep": True}
    known = [
        Entry({"net": {"kind": kind, "rate": 10.0**-n}, "deep": n < 2}, Result(1.0), 0)
        for kind in ("a", "b")
        for n in range(6)
    ]
    chosen = choose_anchors(known, champion, 3)
    assert chosen[0]["net"]["kind"] == "b"
    assert chosen[0]["deep"] is False
    assert len({(each["net"]["kind"], each["deep"]) for each in chosen}) == 3
    assert choose_anchors(known[::-1], champion, 3) == chosen, "whatever the order of trials"


def test_anchors_differ_in_their_scores_too() -> None:
    """Of configs that lie equally far away, those whose scores lie far apart have an order."""
    known = [Entry({"x": x, "name": str(n)}, Result(float(n)), 0) for x in (0.0, 1.0) for n in range(8)]
    assert choose_anchors(known, {"x": 0.0, "name": "0"}, 1) == ({"x": 1.0, "name": "7"},)


@pytest.mark.parametrize("seed", range(1, 13))
def test_a_jump_shows_in_anchors_on_all_sides(seed: int) -> None:
    """Spread over the scores alone, those on one side agree with a jump to the other under five of these."""
    rng = Random(seed)
    past = [{"x": rng.random(), "y": rng.random()} for _ in range(30)]

    def loss(place: tuple[float, float], each: dict[str, Any]) -> float:
        return float((each["x"] - place[0]) ** 2 + (each["y"] - place[1]) ** 2)

    known = [Entry(each, Result(loss((0.5, 0.5), each)), 0) for each in past]
    champion = min(past, key=lambda each: loss((0.5, 0.5), each))
    anchors = [champion, *choose_anchors(known, champion, 4)]
    for place in ((0.1, 0.5), (0.9, 0.5), (0.5, 0.1), (0.5, 0.9), (0.9, 0.9), (0.1, 0.9), (0.2, 0.2)):
        tonight = {key_of(each): loss(place, each) for each in anchors}
        assert not judge(known, tonight, None, is_max=False).agreeing, place
    drifted = {key_of(each): 1.1 * loss((0.51, 0.49), each) + 0.2 for each in anchors}
    assert judge(known, drifted, None, is_max=False).agreeing


def test_recall_says_what_runs_first_and_which_run_each_result_is_of(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    configs = [config(lr=0.01 + n / 100) for n in range(6)]
    add_sweep(tmp_path, "n1", configs[:5], 100.0)
    newest = add_sweep(tmp_path, "n2", configs, 200.0)
    spec = make_spec(tmp_path, warm_start=MEMORY)
    warm = recall(store, spec, "own")
    assert warm is not None
    assert warm.anchors is not None
    assert warm.first == configs[0] | {"rows": 100}, "the best of the last one, without a champion"
    assert len(warm.anchors.configs) == 3
    assert warm.anchors.runs == (0,) * 6 + (1,) * 5
    assert warm_from_json(warm_to_json(warm)) == warm
    assert warm.first_configs == (warm.first, *warm.anchors.configs)

    def stopped(outcome: SweepOutcome) -> SweepOutcome:
        changed = [trial.model_copy(update={"state": "stopped"}) for trial in outcome.trials[1:]]
        return outcome.model_copy(update={"trials": (outcome.trials[0], *changed)})

    SweepFolder(store, newest).mend_outcome(stopped)
    again = recall(store, spec, "own")
    assert again is not None
    assert again.anchors is not None
    assert again.anchors.configs == (), "what was stopped had less than a whole budget"


def test_the_champion_runs_before_the_anchors(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    night = add_sweep(tmp_path, "n1", [config(lr=0.01 + n / 100) for n in range(5)], 100.0)
    champion = Champion(
        name="flights", metric="auc", mode="max", config=config(lr=0.09), mean=0.9, spread=0, n=3,
        sweep_id=night, at=1.0,
    )  # fmt: skip
    add_night(store, champion.line, night, lambda _: (Night(sweep_id=night, at=1.0, promoted=True), champion))
    warm = recall(store, make_spec(tmp_path, warm_start=MEMORY), "own")
    assert warm is not None
    assert warm.first_configs[0]["lr"] == 0.09
    assert len(warm.first_configs) == 4


def value(config: dict[str, Any]) -> float:
    """The truth of the tests below, larger is better."""
    return float(-abs(config["lr"] - 0.03) * 10 - (config["depth"] != 6))


def warm_of(shift: float = 0.0, sign: float = 1.0) -> WarmStart:
    """A past with this level, or upside down."""
    told = [config(lr=0.001 + n * 0.008, depth=(4, 6, 8)[n % 3], rows=100) for n in range(12)]
    past = tuple((each, sign * value(each) + shift) for each in told)
    anchors = Anchors(configs=(told[1], told[5], told[8], told[10]), runs=(0,) * 12)
    return WarmStart(told=past, anchors=anchors, sources=("n1",))


def play(spec: SweepSpec, warm: WarmStart | None, count: int = 12) -> tuple[list[Any], list[str]]:
    searcher, found, notes = make_searcher(spec, 3, warm), [], []
    for number in range(count):
        answer = ask_configs(searcher, number, 1)
        found.append(answer.configs[0])
        notes.append(answer.note)
        searcher.tell(number, value(answer.configs[0]), "completed")
    return found, notes


def test_the_search_goes_on_with_the_past_once_the_anchors_have_ended(tmp_path: Path) -> None:
    spec, warm = make_spec(tmp_path, num_samples=20), warm_of(shift=5.0)
    found, notes = play(spec, warm)
    assert warm.anchors is not None
    assert tuple(found[:4]) == warm.anchors.configs
    assert [number for number, note in enumerate(notes) if note] == [4], "said once, with the next config"
    assert notes[4].startswith("memory: 1 of 1 earlier runs agree with 4 anchors")
    searcher: Any = make_searcher(spec, 3, warm)
    for number in range(4):
        assert len(searcher._inner._inner._model._study.trials) == number, "nothing is told before"
        searcher.tell(number, value(searcher.ask(number)), "completed")
    model = searcher._inner._inner._model
    assert len(model._study.trials) == 12, "eight of the past, corrected, and the four that ran again"
    best = max(value(each) for each in warm.anchors.configs)
    assert max(trial.values[0] for trial in model._study.trials) <= best
    assert play(spec, warm_of(shift=-7.0))[0] == found, "whatever the level was"


def test_a_past_that_disagrees_costs_its_anchors_only(tmp_path: Path) -> None:
    spec, warm = make_spec(tmp_path, num_samples=20), warm_of(sign=-1.0)
    found, notes = play(spec, warm)
    assert notes[4].startswith("memory: none of 1 earlier runs agrees")
    assert warm.anchors is not None
    points = [
        {name: each[name] for name in ("lr", "depth", "leaves")} for each in warm.anchors.configs
    ]  # as if a person had wanted them
    assert found == play(spec.replace(points=points), None)[0]


@pytest.mark.parametrize(("failed", "stopped"), [({1, 2}, set()), (set(), {1, 2})])
def test_anchors_that_do_not_complete_are_not_compared(
    failed: set[int], stopped: set[int], tmp_path: Path
) -> None:
    searcher = make_searcher(make_spec(tmp_path, num_samples=20), 3, warm_of())
    for number in range(4):
        asked = searcher.ask(number)
        assert asked is not None
        if number in failed:
            searcher.tell(number, None, "failed")
        else:
            searcher.tell(number, value(asked), "stopped" if number in stopped else "completed")
    assert "cannot be compared by 2 anchors" in ask_configs(searcher, 4, 1).note


class TestAnchored(SearcherContract):
    """Rebuilt anywhere, also between anchors, it continues as the one that was never interrupted."""

    def make_searcher(self) -> Any:
        return make_searcher(make_spec(Path("/nowhere"), num_samples=20), 3, warm_of(shift=1.0))

    def score(self, config: dict[str, Any]) -> float:
        return value(config)


class TestAnchoredAndConstrained(TestAnchored):
    """With a constraint, which the past was judged by as well."""

    def make_searcher(self) -> Any:
        warm = warm_of()
        far = tuple((each["lr"] - 0.05,) for each, _ in warm.told)
        warm = WarmStart(told=warm.told, anchors=warm.anchors, violations=far)
        return make_searcher(make_spec(Path("/x"), num_samples=20, constraints=["lr_used <= 0.05"]), 3, warm)

    def violations(self, config: dict[str, Any]) -> tuple[float, ...]:
        return (config["lr"] - 0.05,)


def test_trials_that_run_beside_the_anchors_are_remembered(tmp_path: Path) -> None:
    """Asked for before the past was known, and told after."""
    spec = make_spec(tmp_path, num_samples=20)
    searcher: Any = make_searcher(spec, 3, warm_of())
    asked = [searcher.ask(number) for number in range(6)]
    tell_end(searcher, 5, Result(value(asked[5])), state="completed")
    for number in range(4):
        searcher.tell(number, value(asked[number]), "completed")
    states = [trial.state.name for trial in searcher._inner._inner._model._study.trials]
    assert (states.count("COMPLETE"), states.count("RUNNING")) == (8 + 5, 1)
    searcher.tell(4, value(asked[4]), "completed")
    assert searcher.ask(6) is not None


def test_the_outcome_says_how_much_the_past_agreed(tmp_path: Path) -> None:
    """On the real core, one sweep after the other; a controller that is killed early changes nothing."""
    spec = make_spec(tmp_path, num_samples=12, warm_start=MEMORY, max_concurrent_trials=1)

    def curve(config: Any, step: int) -> Any:
        return {"auc": value(config)} if step < 2 else None

    earlier: list[SweepOutcome] = []
    said = []
    for night in range(3):
        outcome = simulate(spec, curve, slots=1, earlier=earlier).outcome
        for segment in (3, 6, 9):
            kill = Kill(append=segment, when="after")
            killed = simulate(spec, curve, slots=1, earlier=earlier, kills=[kill]).outcome
            assert [trial.config for trial in killed.trials] == [trial.config for trial in outcome.trials]
            assert killed.generation == 2
            assert killed.notes == outcome.notes
        earlier.append(outcome.model_copy(update={"sweep_id": sweep_id("flights", f"n{night}")}))
        said.append([note for note in outcome.notes if note.startswith("memory: ")])
    assert said[0] == []
    assert [len(each) for each in said[1:]] == [1, 1]
    assert "2 of 2 earlier runs agree with 4 anchors" in said[2][0]


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"warm_start": "nightly"}, "warm_start", "expected champion, last, a number of runs or a mapping"),
        ({"warm_start": 0}, "warm_start", "expected champion"),
        ({"warm_start": True}, "warm_start", "expected champion"),
        ({"warm_start": {"anchors": 2}}, "warm_start.anchors", "must be >= 3"),
        ({"warm_start": {"half_life": 0}}, "warm_start.half_life", "must be > 0"),
        ({"warm_start": {"runs": 3}}, "warm_start.runs", "nights"),
        ({"warm_start": {}, "search": "random"}, "warm_start", "does not look at results"),
        ({"warm_start": {"anchors": 11}}, "warm_start.anchors", "leave nothing of num_samples 12"),
        (
            {"warm_start": {}, "metric": ["a", "b"], "mode": ["min", "min"]},
            "warm_start",
            "compared by one metric",
        ),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], field: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as raised:
        make_spec(tmp_path, **fields)
    assert raised.value.field == field
    assert said in str(raised.value)


def test_specs_without_are_written_as_before(tmp_path: Path) -> None:
    for given in (None, "champion", "last", 3):
        assert make_spec(tmp_path, warm_start=given).to_dict()["warm_start"] == given
    spec = make_spec(tmp_path, warm_start={})
    assert spec.to_dict()["warm_start"] == {"nights": 14, "anchors": 4, "half_life": 7}
    assert SweepSpec.from_any(spec.to_dict()) == spec
