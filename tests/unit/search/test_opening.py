"""A search that is left open: at random at first, then learning; in sweeps of before as it was."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from raysweep.search import make_searcher
from raysweep.search.random_then_auto import STARTUP
from raysweep.search.variants import VariantSearcher
from raysweep.simulate import simulate
from raysweep.specs import SweepSpec
from raysweep.specs.changes import changes
from tests.unit.search.left_open import NUMBERS, play, spec


def test_the_first_configs_are_those_of_random_and_then_it_learns() -> None:
    learnt, drawn = play(make_searcher(spec(), 1), 20), play(make_searcher(spec(search="random"), 1), 20)
    assert learnt[:STARTUP] == drawn[:STARTUP]
    assert not [config for config in learnt[STARTUP:] if config in drawn]
    assert min(config["y"] for config in learnt) < 0.02
    assert all(abs(config["x"] - 0.3) < 0.3 for config in learnt[-5:])


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, "auto"),
        ({"num_samples": STARTUP}, "random"),
        ({"num_samples": STARTUP + 1}, "auto"),
        ({"num_samples": None, "stop": {"time_budget_s": 60}}, "auto"),
        ({"param_space": {"x": {"choice": [1, 2, 3]}}}, "auto"),
        ({"param_space": {"x": {"qrandint": [0, 9, 3]}}}, "auto"),
        ({"param_space": {**NUMBERS, "g": {"grid_search": [1, 2]}}}, "random"),
        ({"param_space": {"x": {"randn": [0, 1]}, "seed": 5}}, "random"),
        ({"param_space": {"x": {"sample_from": "random:random"}}}, "random"),
        ({"param_space": {"m": {"choice": {"a": {"u": {"uniform": [0, 1]}}, "b": {}}}}}, "auto"),
        ({"scheduler": {"pbt": {"perturbation_interval": 2, "max_t": 9}}}, "random"),
        ({"metric": ["loss", "size"], "mode": ["min", "min"]}, "auto"),
        ({"repeat": 2}, "auto"),
    ],
)
def test_it_learns_where_there_is_something_to_learn(fields: dict[str, Any], kind: str) -> None:
    found = spec(**fields)
    assert found.search.kind == kind
    assert found.search.is_open
    assert found.to_dict()["search"] == {}
    assert SweepSpec.from_json(found.to_json()) == found
    assert make_searcher(found, 1).ask(0) is not None


def test_a_stored_sweep_goes_on_with_the_search_that_it_began_with() -> None:
    assert len({spec().digest(), spec(search="random").digest(), spec(search="auto").digest()}) == 3
    before = spec(search="random", num_samples=20)
    assert spec().settled_by(before).search == before.search
    assert changes(before, spec()).safe == ("num_samples: 20 -> 40",)
    assert not changes(spec(), spec(search="auto"))
    assert changes(spec(), spec(search="random")).unsafe
    short = spec(num_samples=5)
    assert spec().settled_by(short).search.kind == "random"
    assert not changes(short, spec()).unsafe
    assert short.replace(num_samples=50).search.kind == "auto"
    assert spec(search="random").replace(num_samples=50).search.kind == "random"


def test_who_did_not_ask_for_auto_is_not_told_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "raysweep.search.models.auto._is_there", lambda package: False
    )  # this environment has all
    assert "torch and scipy are not installed" in str(make_searcher(spec(search="auto"), 1).substitution)
    searcher = make_searcher(spec(), 1)
    play(searcher, 14)
    assert searcher.substitution is None


def test_a_short_sweep_and_a_first_config_import_no_model() -> None:
    code = (
        "import sys; from tests.unit.search.left_open import make_searcher, play, spec;"
        "s = make_searcher(spec(), 1);"
        "play(s, 10); assert not {'optuna', 'torch', 'scipy'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_sweeps_with_a_space_that_runs_out_end_with_its_last_config() -> None:
    found = spec(
        param_space={"x": {"choice": [0.1, 0.3, 0.5, 0.7]}, "y": {"choice": [1, 2, 3]}}, num_samples=30
    )
    outcome = simulate(found, lambda config, step: {"loss": config["x"]} if step < 2 else None).outcome
    assert outcome.counts == {"completed": 12}
    assert len({str(trial.config) for trial in outcome.trials}) == 12


def test_it_is_told_apart_from_a_list_of_variants() -> None:
    assert isinstance(make_searcher(spec(num_samples=5), 1), VariantSearcher)
