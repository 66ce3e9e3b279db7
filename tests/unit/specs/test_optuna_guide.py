"""The guide for those who come from Optuna: its programs run, and its names are there."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from raysweep.schedulers.registry import KINDS as SCHEDULERS
from raysweep.search.registry import KINDS as SEARCHERS
from raysweep.specs import SweepSpec
from raysweep.testing import run_trial

optuna = pytest.importorskip("optuna")
GUIDE = (Path(__file__).parents[3] / "docs/guides/optuna.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", GUIDE, re.DOTALL))


@pytest.fixture
def modules() -> Iterator[dict[str, Any]]:
    """What the files define, in the order of the page; each can import those before it."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    found: dict[str, Any] = {}
    try:
        for name, text in FILES.items():
            module = ModuleType(name)
            sys.modules[name] = module
            exec(compile(text, f"{name}.py", "exec"), module.__dict__)
            found[name] = module
        yield found
    finally:
        for name in found:
            sys.modules.pop(name, None)


def test_the_programs_run_and_compute_the_same(modules: dict[str, Any]) -> None:
    assert list(modules) == ["study", "sweep", "keep"]
    study, spec = modules["study"].study, modules["sweep"].spec
    assert len(study.trials) == 20
    config = {"rate": 0.05, "layers": 3}
    (attempt,) = run_trial(spec.trainable, config)
    expected = modules["study"].objective(optuna.trial.FixedTrial(config))
    assert attempt.reports[-1] == {"loss": pytest.approx(expected), "epoch": 27}
    (kept,) = run_trial(modules["keep"].train, config)
    assert kept.reports == ({"loss": pytest.approx(expected)},)


def test_the_space_is_the_one_of_the_study(modules: dict[str, Any]) -> None:
    from raysweep.export.distributions import Parameters

    best = modules["study"].study.best_trial
    params, distributions, rest = Parameters(modules["sweep"].spec.space).read(best.params)
    assert (params, distributions, rest) == (best.params, best.distributions, {})


def test_its_names_are_there() -> None:
    fields = set(SweepSpec.model_fields)
    for name in ("points", "constraints", "num_samples", "max_concurrent_trials", "storage_path"):
        assert name in fields
        assert f"`{name}" in GUIDE
    stop = SweepSpec.model_fields["stop"].annotation
    assert stop is not None
    for name in re.findall(r"`stop\.(\w+)`", GUIDE):
        assert name in stop.model_fields, name
    assert {"asha", "hyperband", "median_stopping"} <= set(SCHEDULERS)
    for name in ("tpe", "cma_es", "gp", "nsga2", "nsga3", "random", "grid"):
        assert name in SEARCHERS
        assert f"`{name}`" in GUIDE


def test_it_is_short() -> None:
    assert len(GUIDE.split()) < 900
