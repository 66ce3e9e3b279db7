"""Earlier nights: what fits tonight's space is told to the search, the rest is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import StorageError
from raysweep.outcome import SweepOutcome
from raysweep.runs.across_runs.champions import Champion, Night
from raysweep.runs.across_runs.releases import add_night
from raysweep.runs.across_runs.warm_start import recall, warm_from_json, warm_to_json
from raysweep.runs.folder import SweepFolder
from raysweep.search import WarmStart, make_searcher
from raysweep.search.machinery.warm_start import refit
from raysweep.specs import SweepSpec, slug, sweep_id
from raysweep.storage.objects.opening import open_store
from tests.unit.search.earlier import add_sweep, config, make_spec


def test_an_earlier_config_gets_tonights_constants(tmp_path: Path) -> None:
    assert refit(make_spec(tmp_path).space, config()) == config(rows=100)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lr": 0.5}, "lr=0.5 is outside"),
        ({"depth": 5}, "depth=5 is outside"),
        ({"depth": "6"}, "depth='6' is outside"),
        ({"leaves": 12}, "leaves=12 is outside"),
        ({"leaves": True}, "leaves=True is outside"),
        ({"extra": 1}, "has extra, which tonight's space has not"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        refit(make_spec(tmp_path).space, config(**change))
    with pytest.raises(ValueError, match="has no leaves"):
        refit(make_spec(tmp_path).space, {"depth": 6})


def test_nights_are_told_and_the_rest_is_named(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    add_sweep(tmp_path, "n1", [config(lr=0.02)], 100.0)
    second = add_sweep(tmp_path, "n2", [config(), config(depth=99), config(lr=0.03)], 200.0)
    add_sweep(tmp_path, "other metric", [config()], 300.0, metric="loss")
    own = sweep_id("flights", "tonight")
    last = recall(store, make_spec(tmp_path, warm_start="last"), own)
    assert last is not None
    assert last.sources == (second,)
    assert last.told == ((config(rows=100), 0.9), (config(lr=0.03, rows=100), pytest.approx(0.7)))
    assert last.first == config(rows=100), "without a champion, the best of the last night"
    assert last.left_out == (f"{second} trial 00001: depth=99 is outside tonight's space",)
    both = recall(store, make_spec(tmp_path, warm_start=5), own)
    assert both is not None
    assert len(both.told) == 3
    assert warm_from_json(warm_to_json(both)) == both
    assert recall(store, make_spec(tmp_path), own) is None
    champion = Champion(
        name="flights",
        metric="auc",
        mode="max",
        config=config(lr=0.05),
        mean=0.9,
        spread=0.0,
        n=3,
        sweep_id=second,
        at=1.0,
    )
    add_night(
        store, champion.line, second, lambda _: (Night(sweep_id=second, at=1.0, promoted=True), champion)
    )
    only = recall(store, make_spec(tmp_path, warm_start="champion"), own)
    assert only == WarmStart(first=config(lr=0.05, rows=100))
    store.put("champions/flights/loss.min/000000000001.jsonl", b"{torn\n")
    assert recall(store, make_spec(tmp_path, warm_start="champion"), own) == only, "of another metric"
    store.put("champions/flights/auc.max.2026/000000000001.jsonl", b"{torn\n")
    with pytest.raises(StorageError, match=r"auc\.max\.2026/000000000001\.jsonl: is damaged"):
        recall(store, make_spec(tmp_path, warm_start="champion"), own)


def test_earlier_trials_are_judged_by_tonights_constraints(tmp_path: Path) -> None:
    """By what they reported then: the night before need not have had any."""
    store, bound = open_store(tmp_path), "latency_ms <= 20"
    night = add_sweep(tmp_path, "n1", [config(lr=0.02), config(lr=0.03), config(lr=0.04)], 100.0)
    folder = SweepFolder(store, night)
    reports: list[dict[str, Any]] = [{"latency_ms": 50.0}, {"latency_ms": 5.0}, {}]

    def mended(outcome: SweepOutcome) -> SweepOutcome:
        pairs = zip(outcome.trials, reports, strict=True)
        trials = tuple(trial.model_copy(update={"metrics": metrics}) for trial, metrics in pairs)
        return outcome.model_copy(update={"trials": trials})

    folder.mend_outcome(mended)
    spec = make_spec(tmp_path, warm_start="last", constraints=[bound])
    warm = recall(store, spec, sweep_id("flights", "tonight"))
    assert warm is not None
    assert [told["lr"] for told, _ in warm.told] == [0.02, 0.03]
    assert warm.violations == ((30.0,), (-15.0,))
    assert warm.left_out == (f"{night} trial 00002: has not reported what {bound!r} names",)
    assert warm_from_json(warm_to_json(warm)) == warm
    searcher: Any = make_searcher(spec, 3, warm)
    trials = searcher._inner._model._study.get_trials()
    assert [list(trial.constraints.values()) for trial in trials] == [[30.0], [-15.0]]
    assert "violations" not in warm_to_json(WarmStart(told=warm.told))


def test_earlier_trials_of_several_metrics_are_told_with_all_of_them(tmp_path: Path) -> None:
    """And those of a night that had other metrics, or fewer, not at all."""
    store, several = open_store(tmp_path), {"metric": ["auc", "size"], "mode": ["max", "min"]}
    night = add_sweep(tmp_path, "n1", [config(lr=0.02), config(lr=0.03), config(lr=0.04)], 100.0)
    reports: list[dict[str, Any]] = [{"auc": 0.7, "size": 9}, {"auc": 0.8, "size": "NaN"}, {"size": 1}]

    def mended(outcome: SweepOutcome) -> SweepOutcome:
        pairs = zip(outcome.trials, reports, strict=True)
        trials = tuple(trial.model_copy(update={"metrics": metrics}) for trial, metrics in pairs)
        return outcome.model_copy(update={"trials": trials, "others": {"size": "min"}})

    SweepFolder(store, night).mend_outcome(mended)
    add_sweep(tmp_path, "n2", [config(lr=0.05)], 200.0)
    spec = make_spec(tmp_path, warm_start=2, search="tpe", **several)
    warm = recall(store, spec, sweep_id("flights", "tonight"))
    assert warm is not None
    assert ([told["lr"] for told, _ in warm.told], warm.others) == ([0.02], ((9.0,),))
    missing = [
        f"{night} trial {number}: has not reported {name!r}"
        for number, name in (("00001", "size"), ("00002", "auc"))
    ]
    assert list(warm.left_out) == missing
    assert warm_from_json(warm_to_json(warm)) == warm
    searcher: Any = make_searcher(spec, 3, warm)
    first, second = searcher._inner._model._study.get_trials()[0].values
    assert (first, second) == (warm.told[0][1], 9.0)
    assert "others" not in warm_to_json(WarmStart(told=warm.told))


@pytest.mark.parametrize("search", ["random", {"tpe": {"n_startup_trials": 4}}])
def test_a_rebuilt_search_goes_on_as_the_first(search: Any, tmp_path: Path) -> None:
    spec = make_spec(tmp_path, search=search)
    told = tuple((config(lr=0.01 + n / 1000, rows=100), 0.5 + n / 100) for n in range(6))
    warm = WarmStart(first=config(rows=100), told=told)
    one = make_searcher(spec, 3, warm)
    asked = []
    for number in range(12):
        found = one.ask(number)
        assert found is not None
        asked.append(found)
        one.tell(number, number / 12, "completed")
    assert asked[0] == config(rows=100)
    assert one.ask(12) is None
    assert one.total == 12
    for crash in (1, 5, 11):
        two = make_searcher(spec, 3, warm_from_json(warm_to_json(warm)))
        for number in range(crash):
            two.restore(number, asked[number])
            two.tell(number, number / 12, "completed")
        for number in range(crash, 12):
            assert two.ask(number) == asked[number]
            two.tell(number, number / 12, "completed")
    assert search == "random" or asked[1:] != plain_configs(spec), "what was told made a difference"


def plain_configs(spec: SweepSpec) -> list[Any]:
    searcher = make_searcher(spec, 3)
    found = []
    for number in range(12):
        found.append(searcher.ask(number))
        searcher.tell(number, number / 12, "completed")
    return found[1:]


def test_a_grid_is_whole_and_the_champion_comes_in_addition(tmp_path: Path) -> None:
    spec = make_spec(
        tmp_path, search="grid", num_samples=1, param_space={"depth": {"grid_search": [4, 6, 8]}}
    )
    searcher = make_searcher(spec, 3, WarmStart(first={"depth": 6}))
    assert searcher.total == 4
    assert [searcher.ask(number) for number in range(5)] == [*({"depth": d} for d in (6, 4, 6, 8)), None]


def test_listed_configs_share_their_seeds(tmp_path: Path) -> None:
    listed = {"configs": {"configs": [{"a": 1}, {"a": 2}], "seeds": 2, "seed_param": "seed"}}
    searcher = make_searcher(make_spec(tmp_path, search=listed), 3)
    found: list[Any] = [searcher.ask(number) for number in range(5)]
    assert [each and each["a"] for each in found] == [1, 2, 1, 2, None]
    assert found[0]["seed"] == found[1]["seed"] != found[2]["seed"] == found[3]["seed"]


def test_nights_of_another_name_with_the_same_slug_are_not_told(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    add_sweep(tmp_path, "other", [config(lr=0.1)], at=2.0, name="Flights!")
    none = recall(store, make_spec(tmp_path, warm_start="last"), "own")
    assert none is not None
    assert none.told == ()
    own = add_sweep(tmp_path, "mine", [config(lr=0.2)], at=1.0)
    found = recall(store, make_spec(tmp_path, warm_start="last"), "own")
    assert found is not None
    assert found.sources == (own,)


def test_nights_of_a_long_name_are_told_apart_from_those_of_a_longer_one(tmp_path: Path) -> None:
    name = "x" * 50
    earlier = add_sweep(tmp_path, "k", [config(lr=0.1)], at=2.0, name=name)
    folder = f"{'x' * 31}-{slug(name)[-8:]}-0123456789"
    (tmp_path / earlier).rename(tmp_path / folder)
    for asked, sources in ((name, (earlier,)), ("x" * 51, ())):
        found = recall(open_store(tmp_path), make_spec(tmp_path, name=asked, warm_start="last"), "own")
        assert found is not None
        assert found.sources == sources
