"""A trial that is worse than the best one, and a trial that a function of the user's ends."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from examples import functions
from raysweep.core import SweepState, step
from raysweep.core.state.trial import Trial
from raysweep.core.views.wilcoxon import p_greater
from raysweep.errors import SpecError
from raysweep.schedulers import load_scheduler
from raysweep.simulate import Kill, Simulated, simulate
from raysweep.specs import SweepSpec
from tests.sampling import sampled
from tests.unit.simulate.exactness import kills_of
from tests.unit.simulate.sweeps import make_spec, shown

HERE = "tests.unit.core.test_trial_stops"
LENGTH = 12


@pytest.mark.parametrize("seed", range(40))
def test_p_values_are_those_of_scipy(seed: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = random.Random(seed)
    # SciPy takes long for up to 13 with ties.
    number = rng.choice([2, 3, 5, 14, 30, 50, 51, 80])
    draw: list[Callable[[], float]] = [
        lambda: rng.gauss(0.3, 1),
        lambda: float(rng.randrange(-2, 4)),
        lambda: rng.choice([0.0, rng.gauss(0, 1)]),
    ]
    differences = [draw[seed % 3]() for _ in range(number)]
    expected = stats.wilcoxon(differences, alternative="greater", zero_method="zsplit").pvalue
    assert p_greater(differences) == pytest.approx(expected, abs=1e-12)


def test_p_values_of_few() -> None:
    assert p_greater([1.0, 2.0, 3.0]) == 0.125
    assert p_greater([-1.0, -2.0, -3.0]) == 1.0
    assert p_greater([0.0] * 20) == 0.5


def noisy(seed: int) -> Callable[[Any, int], dict[str, Any] | None]:
    """Cases of different difficulty, the same for all trials; how good a trial is follows from its config."""

    def curve(config: Any, iteration: int) -> dict[str, Any] | None:
        if iteration > LENGTH:
            return None
        rng = random.Random(f"{seed}:{config['x']}:{iteration}")
        case = random.Random(f"{seed}:{iteration}").gauss(0, 3)
        value = case + config["x"] + rng.gauss(0, 0.3)
        return {"loss": value if seed else round(value)}

    return curve


def by_optuna(whole: Simulated, curve: Callable[[Any, int], Any], **options: Any) -> list[tuple[str, int]]:
    """How each trial ends, and after how many reports, where Optuna prunes the same trials, one by one."""
    optuna = pytest.importorskip("optuna")
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    direction = "minimize" if whole.outcome.mode == "min" else "maximize"
    study = optuna.create_study(direction=direction, pruner=optuna.pruners.WilcoxonPruner(**options))
    ends = []
    for ran in whole.outcome.trials:
        trial = study.ask()
        step, value = 0, math.nan
        for step in range(1, LENGTH + 1):
            value = curve(ran.config, step)["loss"]
            trial.report(value, step)
            if trial.should_prune():
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                ends.append(("stopped", step))
                break
        else:
            study.tell(trial, value)
            ends.append(("completed", step))
    return ends


@pytest.mark.parametrize("seed", sampled(range(12), lambda seed: seed < 3))
def test_decisions_are_those_of_optuna(seed: int) -> None:
    pytest.importorskip("scipy.stats")  # Optuna's pruner needs it
    rng, curve = random.Random(seed), noisy(seed)
    options = {"p_threshold": rng.choice([0.05, 0.1]), "n_startup_steps": rng.choice([0, 2, 5])}
    spec = make_spec(
        mode=rng.choice(["min", "max"]),
        num_samples=16 if seed else 4,
        seed=seed,
        stop={"trial_wilcoxon": options},
        max_concurrent_trials=1,
    )
    whole = simulate(spec, curve)
    ends = [(trial.state, trial.metrics["training_iteration"]) for trial in whole.outcome.trials]
    assert ends == by_optuna(whole, curve, **options)
    assert {"stopped", "completed"} == {state for state, _ in ends} or not seed


def run(stop: dict[str, Any], *kills: Kill, **fields: Any) -> Simulated:
    spec = make_spec(stop=stop, **{"max_concurrent_trials": 1, **fields})
    return simulate(spec, noisy(1), kills=kills, save_every=2, is_checked=True, has_snapshots=True)


WILCOXON = {"trial_wilcoxon": {"p_threshold": 0.1}}


def is_done(history: list[dict[str, Any]]) -> bool:
    """Once three reports were below zero."""
    return sum(report["loss"] < 0 for report in history) >= 3


TRIAL_IF = {"trial_if": f"{HERE}:is_done"}


@pytest.mark.parametrize("stop", [WILCOXON, TRIAL_IF, WILCOXON | TRIAL_IF])
@pytest.mark.parametrize("search", ["random", {"tpe": {"n_startup_trials": 3}}])
def test_kills_change_nothing(stop: dict[str, Any], search: Any) -> None:
    whole = run(stop, search=search)
    lengths = {trial.metrics["training_iteration"] for trial in whole.outcome.trials}
    assert min(lengths) < LENGTH
    for kill in random.Random(1).sample(kills_of(whole), 8):
        assert shown(run(stop, kill, search=search)) == shown(whole), kill


def test_no_histories_are_kept_but_of_who_may_go_on_and_the_best() -> None:
    whole = run(WILCOXON | TRIAL_IF)
    state = last_state(WILCOXON | TRIAL_IF, whole)
    assert state.reports.histories == {}
    assert list(state.reports.curves) == [state.ranking.reference]
    assert state.ranking.reference is not None
    assert state.trials[state.ranking.reference].state == "completed"
    assert last_state({}, run({})).reports.curves == {}


def last_state(stop: dict[str, Any], whole: Simulated) -> SweepState:
    state = SweepState.create(make_spec(stop=stop, max_concurrent_trials=1), 1)
    for event in whole.journal:
        step(state, event)
    return state


def test_a_snapshot_holds_them() -> None:
    load_scheduler(make_spec(stop=TRIAL_IF))
    state = SweepState.create(make_spec(stop=WILCOXON | TRIAL_IF), 1)
    state.trials[0] = Trial(number=0, config={})
    state.reports.curves = {0: [(1, 0.5), (2, 0.25)]}
    state.reports.histories = {0: [(1, {"loss": 0.5, "note": "a"})]}
    state.ranking.reference = 0
    copied = SweepState.from_json(state.to_json())
    assert (copied.reports.curves, copied.reports.histories, copied.ranking.reference) == (
        state.reports.curves,
        state.reports.histories,
        0,
    )


def test_it_is_told_all_that_was_reported() -> None:
    SEEN.clear()
    whole = run({"trial_if": f"{HERE}:keeps"}, num_samples=1)
    assert SEEN[-1][-1] == whole.outcome.trials[0].metrics
    assert [len(history) for history in SEEN] == list(range(1, LENGTH + 1))


SEEN: list[Any] = []


def keeps(history: list[dict[str, Any]]) -> bool:
    SEEN.append([dict(report) for report in history])
    history[0].clear()  # it has a copy
    history.pop()
    return False


def numpy_bool(history: list[dict[str, Any]]) -> Any:
    import numpy as np

    return np.mean([report["loss"] for report in history]) < 100


def test_an_answer_of_numpy_is_one_too() -> None:
    whole = run({"trial_if": f"{HERE}:numpy_bool"}, num_samples=2)
    assert [trial.metrics["training_iteration"] for trial in whole.outcome.trials] == [1, 1]
    assert whole.outcome.counts == {"completed": 2}


def infinite(history: list[dict[str, Any]]) -> bool:
    return math.isinf(history[-1]["loss"])


def test_a_number_that_json_does_not_have_is_one() -> None:
    spec = make_spec(
        stop={"trial_if": f"{HERE}:infinite"}, num_samples=1, score="best", failure={"non_finite": "ignore"}
    )
    outcome = simulate(spec, lambda _, step: {"loss": 1.0 if step < 3 else "Infinity"}).outcome
    assert outcome.trials[0].metrics["training_iteration"] == 3


def raises(history: list[dict[str, Any]]) -> bool:
    return bool(history[-1]["nothing"])


def none(history: list[dict[str, Any]]) -> Any:
    return None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("raises", "raises' failed for report 1 of trial 0: KeyError: 'nothing'; fix the function"),
        ("none", "none' gave None for report 1 of trial 0, not True or False; return a bool"),
        ("nowhere", "has no 'nowhere'"),
        ("SweepSpec", "SweepSpec' is a class; name a function"),
    ],
)
def test_what_is_wrong_with_a_function_is_said(name: str, expected: str) -> None:
    with pytest.raises(SpecError, match=rf"^stop\.trial_if: .*{expected}"):
        run({"trial_if": f"{HERE}:{name}"})


def test_who_only_looks_does_not_import_it() -> None:
    with pytest.raises(SpecError, match="is imported only where the sweep runs"):
        SweepState.create(make_spec(stop={"trial_if": "not.there:at_all"}), 1)


def test_a_function_is_named_by_its_path() -> None:
    spec = make_spec(stop={"trial_if": is_done})
    assert spec.to_dict()["stop"]["trial_if"] == f"{HERE}:is_done"
    assert SweepSpec.from_yaml(spec.to_yaml()) == spec
    with pytest.raises(SpecError, match=r"stop\.trial_if: the function .* has no import path"):
        make_spec(stop={"trial_if": lambda history: True})
    with pytest.raises(SpecError, match=r"stop\.trial_if: 'done' names no module"):
        make_spec(stop={"trial_if": "done"})


def test_an_exploited_trial_begins_anew() -> None:
    options = {"perturbation_interval": 2, "synch": True, "max_t": 9, "perturbation_factors": [2.0, 0.5]}
    spec = make_spec(
        num_samples=4, scheduler={"pbt": options}, stop={"trial_if": f"{HERE}:tells"}, score="best"
    )
    LONGEST.clear()
    outcome = simulate(
        spec, lambda config, step: {"loss": abs(config["x"] - 0.5), "x": config["x"]}, slots=4, save_every=1
    ).outcome
    assert any(attempt.donor is not None for trial in outcome.trials for attempt in trial.attempts)
    assert LONGEST
    assert all(len(set(values)) == 1 for values in LONGEST), "one config each"


LONGEST: list[list[float]] = []


def tells(history: list[dict[str, Any]]) -> bool:
    LONGEST.append([report["x"] for report in history])
    return False


def test_the_example_runs_as_it_stands() -> None:
    path = Path(__file__).parents[3] / "examples/stoppers.yaml"
    spec = SweepSpec.from_file(path)
    assert f"raysweep sweep examples/{path.name}" in path.read_text()
    outcome = simulate(spec, lambda config, step: functions.fold(config, step) if step < 11 else None).outcome
    lengths = {trial.metrics["training_iteration"] for trial in outcome.trials if trial.state == "completed"}
    assert outcome.counts["stopped"] > 5
    assert lengths >= {10}


def test_the_example_of_plateau_and_patience_runs_as_it_stands() -> None:
    path = Path(__file__).parents[3] / "examples/progress.yaml"
    spec = SweepSpec.from_file(path)
    assert f"raysweep sweep examples/{path.name}" in path.read_text()

    def curve(config: Mapping[str, Any], step: int) -> Mapping[str, Any] | None:
        return functions.curve(config, step) if step < 10 else None

    lengths = []
    for stops in (None, "trial_plateau", "trial_patience"):
        alone = spec if stops is None else spec.replace(stop=spec.stop.replace(**{stops: None}))
        outcome = simulate(alone, curve, slots=4).outcome
        assert outcome.counts == {"completed": 12}
        lengths.append([trial.metrics["training_iteration"] for trial in outcome.trials])
    assert min(lengths[0]) < 9
    assert lengths[0] == [min(pair) for pair in zip(*lengths[1:], strict=True)]
    assert lengths[0] not in lengths[1:], "both end some trials"


def test_the_example_with_a_scheduler_object_runs_as_it_stands() -> None:
    path = Path(__file__).parents[3] / "examples/ray_scheduler.py"
    assert f"python -m examples.{path.stem}" in path.read_text()
    pytest.importorskip("ray.tune")
    from examples.ray_scheduler import SPEC

    assert SPEC.scheduler.kind == "asha"
    spec = SPEC.replace(search="random")
    outcome = simulate(
        spec, lambda config, step: functions.curve(config, step) if step < 10 else None
    ).outcome
    assert outcome.counts["stopped"] > 4
    assert outcome.counts["completed"] >= 1
