"""A trial's own plateau and patience: when it ends, and that going back to a checkpoint changes nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from raysweep.core import SweepState
from raysweep.core.handlers.reports import take_reports
from raysweep.core.handlers.trial_rules import has_settled
from raysweep.core.state.compiled_spec import Rules
from raysweep.core.state.trial import Trial
from raysweep.core.state.trial_parts import Continued, Results
from raysweep.core.vocabulary.events import TrialReported
from raysweep.errors import SpecError
from raysweep.schedulers import make_scheduler
from raysweep.simulate import Kill, Simulated, simulate
from raysweep.specs import SweepSpec
from tests.unit.simulate.exactness import kills_of
from tests.unit.simulate.sweeps import make_spec, shown

PLATEAU = {"std": 0.05, "num_results": 3, "grace_period": 4}


def rules(mode: str = "min", **stop: Any) -> Rules:
    spec = make_spec(stop=stop, mode=mode)
    return Rules.of(spec, make_scheduler(spec))


def ends_at(found: Rules, values: Sequence[Any], metric: str = "loss") -> int | None:
    """The iteration at which a trial with these values ends."""
    trial = Trial(number=0, config={})
    for iteration, value in enumerate(values, start=1):
        trial.results.iteration = iteration
        if has_settled(found, trial, {metric: value}):
            return iteration
    return None


@pytest.mark.parametrize(
    ("plateau", "values", "expected"),
    [
        (PLATEAU, [5.0, 1.0, 1.0, 1.0], 4),
        (PLATEAU, [1.0, 1.0, 1.0, 1.0], 4),
        (PLATEAU, [5.0, 4.0, 3.0, 2.0, 1.0], None),
        (PLATEAU, [5.0, 1.0, "NaN", 1.0, 1.0], 5),
        (PLATEAU | {"metric_threshold": 0.5}, [5.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5], 7),
        (PLATEAU | {"metric_threshold": 0.5, "mode": "max"}, [5.0, 0.1, 0.1, 0.1, 1.0, 1.0, 1.0], 7),
        ({"num_results": 2, "grace_period": 0}, [1.0, 1.0], 2),
        # Losses that have exploded, beyond what can be squared.
        (PLATEAU, [1e200, -1e200, 1e308, 1.7e308, 1.7e308, 1.0], None),
        (PLATEAU, [1e200, 2e200, 3e200, 5.0, 5.0, 5.0], 6),
    ],
)
def test_a_trial_whose_last_values_hardly_differ_ends(
    plateau: dict[str, Any], values: list[Any], expected: int | None
) -> None:
    assert ends_at(rules(trial_plateau=plateau), values) == expected


@pytest.mark.parametrize(
    ("patience", "mode", "values", "expected"),
    [
        ({"reports": 2}, "min", [3.0, 2.0, 2.0, 2.5], 4),
        ({"reports": 2}, "max", [3.0, 2.0, 2.9], 3),
        ({"reports": 2}, "min", [3.0, 2.9, 2.8, 2.7], None),
        ({"reports": 2, "min_improvement": 0.15}, "min", [3.0, 2.9, 2.8, 2.7], None),
        ({"reports": 2, "min_improvement": 0.5}, "min", [3.0, 2.9, 2.8, 2.7], 3),
        ({"reports": 1, "grace_period": 4}, "min", [1.0, 1.0, 1.0, 1.0], 4),
    ],
)
def test_a_trial_whose_best_does_not_improve_ends(
    patience: dict[str, Any], mode: str, values: list[Any], expected: int | None
) -> None:
    assert ends_at(rules(mode, trial_patience=patience), values) == expected


@pytest.mark.parametrize("seed", range(200))
def test_a_trial_that_goes_back_ends_where_it_would_have(seed: int) -> None:
    """It makes the same reports again, from any checkpoint, any number of times."""
    rng = random.Random(seed)
    found = rules(
        trial_plateau={"std": 0.2, "num_results": rng.randrange(2, 6), "grace_period": rng.randrange(5)},
        trial_patience={"reports": rng.randrange(3, 7), "min_improvement": rng.choice([0.0, 0.1])},
    )
    values = [rng.gauss(0, 1) / (1 + n / 4) for n in range(60)]
    expected = ends_at(found, values)
    assert expected is not None
    trial, iteration = Trial(number=0, config={}), 0
    while True:
        if rng.random() < 0.2:
            iteration = rng.randrange(iteration + 1)
        iteration += 1
        trial.results.iteration = iteration
        if has_settled(found, trial, {"loss": values[iteration - 1]}):
            break
        assert iteration < expected
    assert iteration == expected


def run(stop: dict[str, Any], *kills: Kill, **fields: Any) -> Simulated:
    spec = make_spec(stop=stop, max_concurrent_trials=1, **fields)
    return simulate(spec, flat, kills=kills, save_every=2, is_checked=True)


def flat(config: Any, iteration: int) -> dict[str, Any] | None:
    """A third of the trials falls for ever, the others from report 5 on no more."""
    end = 30 if int(config["x"] * 997) % 3 == 0 else 5
    return {"loss": config["x"] + 1 / min(iteration, end)} if iteration <= 20 else None


@pytest.mark.parametrize(
    "stop", [{"trial_plateau": {"std": 1e-6, "num_results": 3}}, {"trial_patience": {"reports": 3}}]
)
def test_it_completes_and_kills_change_nothing(stop: dict[str, Any]) -> None:
    whole = run(stop)
    lengths = [trial.metrics["training_iteration"] for trial in whole.outcome.trials]
    assert whole.outcome.counts == {"completed": 8}
    assert {7, 8} & set(lengths)
    assert 20 in lengths
    kills = kills_of(whole)
    for kill in random.Random(1).sample(kills, 12):
        assert shown(run(stop, kill)) == shown(whole), kill


def test_a_snapshot_holds_what_they_look_at() -> None:
    state = SweepState.create(make_spec(), 1)
    reported = Results(recent=((3, 0.5), (4, 0.25)), improved=(4, 0.25))
    state.trials[0] = Trial(number=0, config={}, results=reported)
    state.trials[1] = Trial(number=1, config={})
    copied = SweepState.from_json(state.to_json())
    assert copied.trials[0].results.recent == ((3, 0.5), (4, 0.25))
    assert copied.trials[0].results.improved == (4, 0.25)


def test_another_config_begins_anew() -> None:
    """What was flat with one config says nothing about the next."""
    options = {"perturbation_interval": 2, "synch": True, "max_t": 9, "perturbation_factors": [2.0, 0.5]}
    spec = make_spec(
        num_samples=4, scheduler={"pbt": options}, stop={"trial_patience": {"reports": 3}}, score="best"
    )
    outcome = simulate(
        spec, lambda config, step: {"loss": abs(config["x"] - 0.5) - (step == 1)}, slots=4, save_every=1
    ).outcome
    assert outcome.status == "completed"
    went_on = [t for t in outcome.trials if any(a.donor is not None for a in t.attempts)]
    assert went_on
    # Its first report stays the best of each config; from there patience takes three more.
    assert all(trial.metrics["training_iteration"] >= 6 for trial in went_on)


@pytest.mark.parametrize(("max_t", "left_over"), [(None, 1), (9.0, 0)])
def test_neither_has_a_say_in_a_trial_that_is_extended(max_t: float | None, left_over: int) -> None:
    stop = {"trial_patience": {"reports": 1}, "trial_plateau": {"num_results": 2, "grace_period": 0}}
    state, trial = (
        SweepState.create(make_spec(stop=stop), 1),
        Trial(number=0, config={}, continued=Continued(max_t=max_t)),
    )
    event = TrialReported(at=1.0, trial=0, attempt=0, first=0, keys=("loss",), rows=((1.0,), (1.0,), (1.0,)))
    take_reports(state, trial, event, [])
    assert trial.results.overrun == left_over


def test_a_spec_says_what_is_missing() -> None:
    with pytest.raises(
        SpecError, match=r"stop\.trial_plateau\.mode: nothing says whether less or more 'auc'"
    ):
        make_spec(stop={"trial_plateau": {"metric": "auc", "metric_threshold": 0.9}})


def test_specs_without_them_are_written_and_digested_as_before() -> None:
    plain = make_spec()
    other = make_spec(stop={"trial_patience": {"reports": 3}})
    assert SweepSpec.model_validate(other.to_dict()) == other
    assert plain.digest() != other.digest()


def test_plateaus_are_those_of_ray() -> None:
    ray = pytest.importorskip("ray.tune.stopper")
    for seed in range(200):
        rng = random.Random(seed)
        fields = {
            "std": rng.choice([0.1, 0.3, 0.6]),
            "num_results": rng.randrange(2, 6),
            "grace_period": rng.randrange(8),
        }
        if rng.random() < 0.5:
            fields |= {"metric_threshold": rng.gauss(0, 0.5), "mode": rng.choice(["min", "max"])}
        stopper = ray.TrialPlateauStopper(metric="loss", **fields)
        values = [rng.gauss(0, 1) / (1 + n / 8) for n in range(60)]
        expected = next((n for n, v in enumerate(values, start=1) if stopper("t", {"loss": v})), None)
        assert ends_at(rules(trial_plateau=fields), values) == expected
