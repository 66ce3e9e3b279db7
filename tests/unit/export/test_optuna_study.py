"""A sweep as an Optuna study: read back with Optuna, it has what the journal has."""

from __future__ import annotations

import math
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.export import optuna_study
from raysweep.export.distributions import Parameters, read_parameter
from raysweep.export.optuna_study import export_optuna
from raysweep.runs.reading.history import reports_of
from raysweep.space.domains import Choice, Float, Integer, Normal
from raysweep.space.parsed import normalise, parse
from tests.unit.cli.conftest import Cli, cli
from tests.unit.pages.sweeps import SPEC, first_half, learn, store

__all__ = ["cli"]
optuna = pytest.importorskip("optuna")
State = optuna.trial.TrialState
D = optuna.distributions


def ignore(what: str, done: int, total: int) -> None:
    pass


def exported(folder: Any, root: Path) -> Any:
    url = f"sqlite:///{root}/study.db"
    export_optuna(folder, url, ignore)
    return optuna.load_study(study_name=folder.sweep_id, storage=url)


def test_the_study_has_what_the_sweep_has(tmp_path: Path) -> None:
    folder, outcome = store(tmp_path / "store")
    study = exported(folder, tmp_path)
    assert study.directions == [optuna.study.StudyDirection.MAXIMIZE]
    assert study.metric_names == ["auc"]
    assert study.user_attrs["raysweep.export"] == "done"
    states = {"completed": State.COMPLETE, "stopped": State.PRUNED, "failed": State.FAIL}
    assert len(study.trials) == len(outcome.trials)
    curves: dict[int, dict[int, float]] = {}
    for row in reports_of(folder):
        if not row["overrun"]:
            curves.setdefault(row["number"], {})[row["iteration"]] = row["auc"]
    for found, trial in zip(study.trials, outcome.trials, strict=True):
        assert (found.number, found.state) == (trial.number, states[trial.state])
        assert found.value == (None if trial.state == "failed" else trial.score)
        assert found.params == {
            "rate": trial.config["rate"],
            "net.width": trial.config["net"]["width"],
            "net.kind": trial.config["net"]["kind"],
        }
        assert found.distributions == {
            "rate": D.FloatDistribution(1e-4, 1e-1, log=True),
            "net.width": D.IntDistribution(4, 63),
            "net.kind": D.CategoricalDistribution(("wide", "deep")),
        }
        assert found.intermediate_values == curves[trial.number]
        assert found.user_attrs["trial_id"] == trial.trial_id
        assert found.user_attrs.get("error", "") == trial.problem
        assert found.user_attrs["metrics/latency_ms"] == trial.metrics["latency_ms"]
        assert found.datetime_start.timestamp() == pytest.approx(trial.started_at, abs=1e-3)
        assert found.datetime_complete.timestamp() == pytest.approx(trial.ended_at, abs=1e-3)
    best = max((trial for trial in outcome.trials if trial.state == "completed"), key=lambda t: t.score or 0)
    assert study.best_trial.number == best.number
    assert {each.state for each in study.trials} == set(states.values()), "the sweep shows them all"


def test_the_study_can_go_on(tmp_path: Path) -> None:
    """Optuna's own sampler and figures take it."""
    folder, outcome = store(tmp_path / "store")
    study = exported(folder, tmp_path)
    study.sampler = optuna.samplers.TPESampler(seed=0, n_startup_trials=1)
    asked = study.ask({"rate": D.FloatDistribution(1e-4, 1e-1, log=True)})
    study.tell(asked, 0.5)
    assert asked.number == len(outcome.trials)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # so few trials
        importances = optuna.importance.get_param_importances(study)
    assert set(importances) == {"rate", "net.width", "net.kind"}


def test_several_metrics_and_constraints(tmp_path: Path) -> None:
    folder, outcome = store(
        tmp_path / "store", learn, metric=["auc", "latency_ms"], mode=["max", "min"],
        constraints=["latency_ms <= 12"], scheduler="fifo",
    )  # fmt: skip
    study = exported(folder, tmp_path)
    assert [each.name for each in study.directions] == ["MAXIMIZE", "MINIMIZE"]
    for found, trial in zip(study.trials, outcome.trials, strict=True):
        if trial.state != "completed":
            assert found.values is None
            continue
        assert found.values == [trial.metrics["auc"], trial.metrics["latency_ms"]]
        assert list(found.constraints.values()) == [trial.violations["latency_ms <= 12"]]
        assert found.intermediate_values == {}
    assert {each.number for each in study.best_trials} == {each.number for each in outcome.pareto}


def test_a_sweep_that_runs(tmp_path: Path) -> None:
    folder, _ = store(tmp_path / "store")
    half = first_half(folder, tmp_path / "half")
    study = exported(half, tmp_path)
    states = {each.state for each in study.trials}
    assert State.RUNNING in states
    assert all(each.datetime_complete is None for each in study.trials if each.state is State.RUNNING)


def test_a_study_that_is_there_is_refused_and_an_unfinished_one_replaced(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, outcome = store(tmp_path / "store")
    monkeypatch.setattr(optuna_study, "BATCH", 5)
    insert, url = optuna_study._insert, f"sqlite:///{tmp_path}/study.db"
    calls = 0

    def die(*given: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        insert(*given)

    monkeypatch.setattr(optuna_study, "_insert", die)
    with pytest.raises(KeyboardInterrupt):
        export_optuna(folder, url, ignore)
    assert len(optuna.load_study(study_name=folder.sweep_id, storage=url).trials) == 10
    monkeypatch.setattr(optuna_study, "_insert", insert)
    ran = cli("export", folder.uri, "--to", "optuna", "--out", "study.db")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[1] == "sqlite:///study.db"
    assert len(optuna.load_study(study_name=folder.sweep_id, storage=url).trials) == len(outcome.trials)
    ran = cli("export", folder.uri, "--to", "optuna", "--out", url)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: --out: has a study '{folder.sweep_id}'; name another URL, or ")


@pytest.mark.parametrize("url", ["sqlite:////nowhere/at/all.db", "nosuch://me:secret@host/db"])
def test_a_database_that_cannot_be_used_is_one_line(tmp_path: Path, url: str) -> None:
    folder, _ = store(tmp_path / "store")
    with pytest.raises(SpecError) as caught:
        export_optuna(folder, url, ignore)
    assert str(caught.value).startswith("--out: ")
    assert "secret" not in str(caught.value)


def test_without_optuna_and_without_a_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = store(tmp_path / "store", metric=None, mode=None, scheduler="fifo")
    with pytest.raises(SpecError, match="has no metric, and an Optuna study needs one; use --to csv"):
        export_optuna(folder, f"sqlite:///{tmp_path}/study.db", ignore)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SpecError, match="optuna is not installed; pip install optuna"):
        export_optuna(folder, f"sqlite:///{tmp_path}/study.db", ignore)


# -- distributions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("domain", "value", "distribution"),
    [
        (Float(lower=0.0, upper=1.0), 0.5, D.FloatDistribution(0.0, 1.0)),
        (Float(lower=0.0, upper=1.0), 1.5, D.FloatDistribution(0.0, 1.5)),
        (Float(lower=0.1, upper=1.0, log=True), 0.5, D.FloatDistribution(0.1, 1.0, log=True)),
        (Float(lower=0.1, upper=1.0, log=True), -0.5, D.FloatDistribution(-0.5, 1.0)),
        (Float(lower=0.0, upper=1.1, q=0.25), 0.75, D.FloatDistribution(0.0, 1.0, step=0.25)),
        (Float(lower=0.0, upper=1.1, q=0.25), 1.1, D.FloatDistribution(0.0, 1.1)),
        (Float(lower=0.1, upper=1.0, q=0.1, log=True), 0.3, D.FloatDistribution(0.1, 1.0, log=True)),
        (Integer(lower=1, upper=9), 8, D.IntDistribution(1, 8)),
        (Integer(lower=1, upper=9), 12, D.IntDistribution(1, 12)),
        (Integer(lower=3, upper=20, q=5), 15, D.IntDistribution(5, 20, step=5)),
        (Integer(lower=3, upper=20, q=5), 4, D.IntDistribution(4, 20)),
        (Integer(lower=1, upper=65, log=True), 8, D.IntDistribution(1, 64, log=True)),
        (Normal(mean=1.0, sd=0.5), 2.0, D.FloatDistribution(-2.0, 4.0)),
        (Normal(mean=1.0, sd=0.5), 9.0, D.FloatDistribution(-2.0, 9.0)),
        (Choice(values=("a", None, 3)), None, D.CategoricalDistribution(("a", None, 3))),
    ],
)
def test_a_domain_keeps_its_own_values(domain: Any, value: Any, distribution: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_parameter(domain, value) == (value, distribution)


@pytest.mark.parametrize(
    ("values", "value", "param"),
    [
        (([8, 8], [16]), [8, 8], "[8,8]"),
        ((1, True, 1.0), True, "true"),
        (({"b": 1, "a": 2}, "x"), {"a": 2, "b": 1}, '{"a":2,"b":1}'),
    ],
)
def test_a_choice_that_optuna_cannot_hold_has_texts(values: Any, value: Any, param: str) -> None:
    found = read_parameter(Choice(values=values), value)
    assert found is not None
    assert found[0] == param
    assert param in found[1].choices


@pytest.mark.parametrize(
    ("domain", "value"),
    [
        (Choice(values=("a", "b")), "c"),
        (Float(lower=0.0, upper=1.0), math.nan),
        (Float(lower=0.0, upper=1.0), True),
        (Integer(lower=0, upper=9), 2.5),
        (Integer(lower=0, upper=9), "3"),
    ],
)
def test_what_no_distribution_holds_is_no_parameter(domain: Any, value: Any) -> None:
    assert read_parameter(domain, value) is None


def test_branches_constants_and_odd_values() -> None:
    space = parse(
        normalise(
            {
                "model": {
                    "choice": {"tree": {"depth": {"randint": [1, 9]}}, "net": {"units": {"choice": [8]}}}
                },
                "seed": 3,
                "rate": {"uniform": [0, 1]},
            }
        )
    )
    config = {"model": {"tree": {"depth": 4}}, "seed": 3, "rate": "auto"}
    params, distributions, rest = Parameters(space).read(config)
    assert params == {"model.=": "tree", "model.tree.depth": 4}
    assert set(distributions["model.="].choices) == {"tree", "net"}
    assert rest == {"seed": 3, "rate": "auto"}
    assert SPEC["param_space"]["rate"]
