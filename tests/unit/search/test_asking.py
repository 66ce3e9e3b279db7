"""A `sample_from` that raises for one draw costs its own trial, in every searcher, and after a resume too."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from raysweep.cluster.suggestions import suggest
from raysweep.core.vocabulary.commands import SuggestConfigs
from raysweep.errors import SampleFromError
from raysweep.search import Searcher, WarmStart, make_searcher
from raysweep.search.machinery.asking import ask_configs
from raysweep.specs import SweepSpec

TOTAL = 40


def rare(config: dict[str, Any]) -> float:
    """Raises for about one config in eight."""
    if config["x"] * 1000 % 1 < 0.125:
        raise ZeroDivisionError(f"nothing for {config['x']:.3f}")
    return float(config["x"]) * 2


SPACE = {"x": {"uniform": [0, 1]}, "n": {"randint": [1, 9]}, "y": {"sample_from": rare}}
SEARCHES: dict[str, dict[str, Any]] = {
    "random": {"search": "random"},
    "grid": {
        "search": "grid",
        "param_space": {**SPACE, "x": {"grid_search": [i / 97 for i in range(TOTAL)]}},
    },
    "random-grid": {"param_space": {**SPACE, "g": {"grid_search": ["a", "b"]}}, "num_samples": TOTAL // 2},
    "tpe": {"search": {"tpe": {"n_startup_trials": 4}}},
    "tpe-multivariate": {"search": {"tpe": {"n_startup_trials": 4, "multivariate": True}}},
    "gp": {"search": {"gp": {"n_startup_trials": 34}}},
    "cma_es": {"search": {"cma_es": {"population_size": 4}}},
    "auto": {"search": {"auto": {"switch_after": 10}}},
    "points": {"search": "tpe", "points": [{"x": i / 97} for i in range(TOTAL // 2)]},
    "warm": {"search": {"tpe": {"n_startup_trials": 4}}},
}


def make(name: str) -> Searcher:
    plain = {
        "name": "toy",
        "trainable": "toys.module:train",
        "param_space": SPACE,
        "metric": "loss",
        "mode": "min",
        "num_samples": TOTAL,
    }
    if name == "grid":
        plain["num_samples"] = 1
    warm = WarmStart(first={"x": 0.5, "n": 3, "y": 1.0}, told=(({"x": 0.25, "n": 2, "y": 0.5}, 0.1),))
    spec = SweepSpec.from_any(plain | SEARCHES[name])
    return make_searcher(spec, 5, warm if name == "warm" else None)


def tell(searcher: Searcher, number: int, config: dict[str, Any], *, has_failed: bool) -> None:
    value = None if has_failed else (config["x"] - 0.3) ** 2
    searcher.tell(number, value, "failed" if has_failed else "completed")


@pytest.mark.parametrize("name", SEARCHES)
def test_one_failed_config_costs_its_own_trial(name: str) -> None:
    """Restarted at any point, also right behind a failed config, the search continues as the first did."""
    first = make(name)
    configs: list[dict[str, Any]] = []
    failed: set[int] = set()
    for number in range(TOTAL):
        answer = ask_configs(first, number, 1)
        configs += answer.configs
        failed |= {number for number, _ in answer.failed}
        assert all(isinstance(error, SampleFromError) for _, error in answer.failed)
        tell(first, number, configs[-1], has_failed=number in failed)
    assert 0 < len(failed) < TOTAL / 2
    assert len(configs) == TOTAL
    assert answer.is_exhausted
    for at in sorted({0, *failed, *(number + 1 for number in failed), TOTAL - 1} - {TOTAL}):
        again = make(name)
        for number, config in enumerate(configs[:at]):
            again.restore(number, orjson.loads(orjson.dumps(config)))
            tell(again, number, config, has_failed=number in failed)
        for number in range(at, min(at + 3, TOTAL)):
            answer = ask_configs(again, number, 1)
            assert list(answer.configs) == [configs[number]], (at, number)
            assert [number for number, _ in answer.failed] == [number] * (number in failed)
            tell(again, number, configs[number], has_failed=number in failed)


@pytest.mark.parametrize("name", SEARCHES)
def test_what_had_been_drawn_is_kept(name: str) -> None:
    answer = ask_configs(make(name), 0, TOTAL)
    assert len(answer.configs) == TOTAL
    for number, config in enumerate(answer.configs):
        is_failed = number in dict(answer.failed)
        assert config.keys() - {"g"} == ({"x", "n"} if is_failed else {"x", "n", "y"})


def test_the_failure_is_the_functions_own() -> None:
    event = suggest(make("random"), SuggestConfigs(first=0, count=TOTAL), at=3.0)
    assert event.at == 3.0
    assert event.is_exhausted
    for config in event.failed:
        failure = config.failure
        assert failure.origin == "exception"
        assert failure.type == "ZeroDivisionError"
        drawn = event.configs[config.number]["x"]
        assert failure.message == f"nothing for {drawn:.3f} (sample_from of param_space.y)"
        assert "in rare\n" in failure.traceback
        assert "space.py" not in failure.traceback, "our own frames tell the user nothing"


def test_a_searchers_own_error_costs_one_trial_too() -> None:
    """Nothing had been drawn then, and nothing is noted."""

    class Broken(Searcher):
        total = None
        is_adaptive = False
        note = None

        def ask(self, number: int) -> dict[str, Any]:
            if number == 1:
                raise RuntimeError("a bug")
            return {"x": number}

        def restore(self, number: int, config: dict[str, Any]) -> None:
            raise AssertionError("there is nothing to restore")

        def tell(self, number: int, value: float | None, state: Any) -> None: ...

        def tell_earlier(self, config: dict[str, Any], value: float) -> None: ...

    event = suggest(Broken(), SuggestConfigs(first=0, count=3), at=0.0)
    assert event.configs == ({"x": 0}, {}, {"x": 2})
    assert [(config.number, config.failure.type) for config in event.failed] == [(1, "RuntimeError")]
    assert not event.is_exhausted


def test_a_place_in_a_list_is_kept() -> None:
    spec = {
        "name": "toy",
        "trainable": "toys.module:train",
        "metric": "loss",
        "mode": "min",
        "param_space": {"widths": [{"sample_from": lambda: 1 / 0}, {"randint": [1, 9]}]},
        "search": {"tpe": {}},
    }
    searcher = make_searcher(SweepSpec.from_any(spec), 1)
    answer = ask_configs(searcher, 0, 1)
    config = answer.configs[0]
    assert config["widths"][0] is None
    assert config["widths"][1] in range(1, 9)
    make_searcher(SweepSpec.from_any(spec), 1).restore(0, config)
