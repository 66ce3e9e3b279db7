"""PbtScheduler: who is replaced, by whom, with what. Its oracle: tests/engine/test_pbt_differential.py."""

from __future__ import annotations

import json
from math import ceil, floor, inf
from random import Random
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.schedulers import NOTHING, Exploit, Pause, Resume
from raysweep.schedulers.pbt import PbtScheduler, Population
from raysweep.simulate import simulate
from raysweep.space.parsed import normalise, parse
from raysweep.space.perturbation import explore, mutable_leaves
from raysweep.space.units import within
from raysweep.specs import SweepSpec

SPACE = normalise({"lr": {"loguniform": [1e-3, 1.0]}, "width": {"choice": [8, 16, 32]}, "name": "net"})


def pbt(trials: int = 4, *, seed: int = 1, max_t: float | None = None, **changes: Any) -> PbtScheduler:
    population = Population(**{"perturbation_interval": 2, "leaves": mutable_leaves(SPACE), **changes})
    scheduler = PbtScheduler(mode="max", population=population, seed=seed, max_t=max_t)
    for trial in range(trials):
        scheduler.add(trial, {"lr": 0.1, "width": 16, "name": f"net{trial}"})
    return scheduler


def test_the_worst_goes_on_from_the_best_with_its_config_explored() -> None:
    scheduler = pbt()
    for trial in range(4):
        assert scheduler.report(trial, 2, float(trial)) == NOTHING
    ((trial, verdict),) = scheduler.report(0, 4, 0.0)
    assert trial == 0
    assert isinstance(verdict, Exploit)
    assert verdict.donor == 3
    assert verdict.config["name"] == "net3", "what is not explored is the donor's"
    assert verdict.config["lr"] != 0.1
    assert scheduler.report(0, 3, -9.0) == NOTHING, "its next interval is counted from its donor's"
    assert scheduler.report(0, 4, -9.0) != NOTHING


def test_between_two_intervals_and_in_the_burn_in_nothing_is_decided() -> None:
    scheduler = pbt(burn_in_period=5)
    for time in range(1, 5):
        for trial in range(4):
            assert scheduler.report(trial, time, float(trial)) == NOTHING
    assert scheduler.quantiles() == ([], [])


def test_who_has_ended_is_nobodys_donor() -> None:
    scheduler = pbt()
    for trial in range(4):
        scheduler.report(trial, 2, float(trial))
    scheduler.end(3, 2, 3.0)
    ((_, verdict),) = scheduler.report(0, 4, 0.0)
    assert isinstance(verdict, Exploit)
    assert verdict.donor == 2


def test_a_trial_at_max_t_completes() -> None:
    scheduler = pbt(max_t=2)
    assert scheduler.max_t == 2
    for trial in range(4):
        assert scheduler.report(trial, 2, float(trial)) == NOTHING


def test_in_step_all_are_paused_and_decided_about_together() -> None:
    scheduler = pbt(synch=True)
    assert scheduler.moves == {"pause", "exploit"}
    for trial in range(4):
        assert scheduler.report(trial, 2, float(trial)) == ((trial, Pause()),)
    first, *others = scheduler.idle([0, 1, 2, 3])
    assert isinstance(first[1], Exploit)
    assert first[1].donor == 3
    assert others == [(1, Resume()), (2, Resume()), (3, Resume())]
    for trial in range(4):
        assert scheduler.report(trial, 3, float(trial)) == NOTHING
        assert scheduler.report(trial, 4, float(trial)) == ((trial, Pause()),)


def test_chance_is_that_of_the_seed_the_trial_and_the_turn() -> None:
    def configs(seed: int) -> list[Any]:
        scheduler, found = pbt(seed=seed), []
        for time in range(2, 20, 2):
            for trial in (3, 2, 1, 0):
                found += [verdict.config for _, verdict in scheduler.report(trial, time, float(trial))]
        return found

    assert configs(1) == configs(1)
    assert configs(1) != configs(2)
    assert len({json.dumps(config) for config in configs(1)}) > 5, "each turn draws anew"


@pytest.mark.parametrize(
    ("domain", "given", "expected"),
    [
        ({"uniform": [0, 1]}, 1.7, 1.0),
        ({"uniform": [0, 1]}, -0.1, 0.0),
        ({"quniform": [0, 1, 0.25]}, 0.6, 0.5),
        ({"randint": [1, 9]}, 11.4, 8),
        ({"qrandint": [4, 16, 4]}, 9.9, 8),
        ({"lograndint": [2, 9]}, 0.3, 2),
        ({"randn": [0, 1]}, 7.0, 7.0),
        ({"qrandn": [0, 1, 0.5]}, 0.7, 0.5),
    ],
)
def test_what_is_perturbed_stays_in_its_domain(domain: dict[str, Any], given: float, expected: float) -> None:
    ((_, parsed),) = parse(normalise({"x": domain})).leaves
    assert within(parsed, given) == expected


def test_nested_parameters_are_explored_and_functions_are_neither_imported_nor_called() -> None:
    space = normalise({"a": {"b": [{"uniform": [1, 2]}, 5]}, "f": {"sample_from": "not.there:f"}})
    leaves = mutable_leaves(space)
    assert [path for path, _ in leaves] == [("a", "b", "0")]
    found = explore({"a": {"b": [1.5, 5]}, "f": 3}, leaves, 1, resample_probability=1.0, factors=(2.0,))
    assert found["f"] == 3
    assert found["a"]["b"][0] != 1.5
    assert found["a"]["b"][1] == 5
    assert explore({"f": 3}, leaves, 1, resample_probability=1.0, factors=(2.0,)) == {"f": 3}


def spec(**changes: Any) -> dict[str, Any]:
    fields = {"name": "p", "trainable": "m:f", "param_space": SPACE, "metric": "loss", "mode": "min"}
    return {**fields, "num_samples": 4, "seed": 1, "scheduler": "pbt", **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"scheduler": {"pbt": {"hyperparam_mutations": ["lr", "widht"]}}},
            "scheduler.pbt.hyperparam_mutations: 'widht' is not a parameter with a domain in param_space;",
        ),
        (
            {"scheduler": {"pbt": {"hyperparam_mutations": ["name"]}}},
            "scheduler.pbt.hyperparam_mutations: 'name' is not a parameter with a domain in param_space;",
        ),
        ({"param_space": {"x": 1}}, "param_space: pbt has nothing to explore in it;"),
        (
            {"max_concurrent_trials": 2},
            "max_concurrent_trials: pbt compares trials that run at once, and of 4",
        ),
        (
            {"scheduler": {"pbt": {"quantile_fraction": 0.6}}},
            "scheduler.pbt.quantile_fraction: must be <= 0.5",
        ),
        ({"scheduler": {"pbt": {"perturbation_factors": []}}}, "scheduler.pbt.perturbation_factors: "),
    ],
)
def test_a_spec_that_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as error:
        SweepSpec.model_validate(spec(**changes))
    assert str(error.value).startswith(message)


def test_a_population_reaches_what_none_of_its_first_configs_would() -> None:
    """The loss falls by what `lr` allows at each step: the best rate is above all that were drawn."""
    options = {"perturbation_interval": 2, "synch": True, "max_t": 40, "perturbation_factors": [2.0, 0.5]}
    given = spec(param_space={"lr": {"uniform": [0.0, 1.0]}}, num_samples=6, scheduler={"pbt": options})
    rate = 0.9
    outcome = simulate(
        given, lambda config, step: {"loss": abs(config["lr"] - rate) + 1 / step}, slots=3, save_every=1
    ).outcome
    fifo = simulate(
        given | {"scheduler": "fifo"},
        lambda config, step: {"loss": abs(config["lr"] - rate) + 1 / step} if step <= 40 else None,
        slots=3,
    ).outcome
    assert outcome.counts == {"completed": 6}
    donors = [
        attempt.donor for trial in outcome.trials for attempt in trial.attempts if attempt.donor is not None
    ]
    assert len(donors) > 5
    assert outcome.best.score is not None
    assert fifo.best.score is not None
    assert outcome.best.score < fifo.best.score


@pytest.mark.parametrize("kind", ["pbt", "pb2"])
def test_a_trial_that_is_replaced_at_its_end_has_a_result(kind: str) -> None:
    """Its eight steps end with an interval, and nothing says so to the population."""
    options = {"perturbation_interval": 2, "synch": True}
    given = spec(param_space={"lr": {"uniform": [0.0, 1.0]}}, num_samples=4, scheduler={kind: options})
    outcome = simulate(
        given,
        lambda config, step: {"loss": config["lr"] + 1 / step} if step <= 8 else None,
        slots=4,
        save_every=1,
    ).outcome
    assert [trial.metrics.get("training_iteration") for trial in outcome.trials] == [8] * 4
    for trial in outcome.trials:
        assert trial.score == trial.config["lr"] + 1 / 8, "the config is what made the result"
    replaced = [trial for trial in outcome.trials if trial.attempts[-2].donor is not None]
    assert replaced
    assert outcome.best not in replaced
    assert any("reported nothing more" in note for note in outcome.notes)


def ranked_anew(scheduler: PbtScheduler, fraction: float) -> tuple[list[int], list[int]]:
    """The quantiles by a sort of all members, as Ray Tune makes them."""
    members = scheduler.to_json()["members"]
    scored = [(score, trial) for trial, _, score, *_, is_live in members if is_live and score is not None]
    if len(scored) <= 1:
        return [], []
    ranked = [trial for _, trial in sorted(scored)]
    count = ceil(len(ranked) * fraction)
    count = floor(len(ranked) / 2) if count > len(ranked) / 2 else count
    return ranked[:count], ranked[len(ranked) - count :]


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5])
def test_the_kept_order_is_that_of_a_new_sort(fraction: float) -> None:
    chance = Random(7)
    scheduler = pbt(12, quantile_fraction=fraction, perturbation_interval=1)
    for step in range(600):
        trial = chance.randrange(14)
        match chance.randrange(10):
            case 0:
                scheduler.remove(trial)
            case 1:
                scheduler.add(trial, {"lr": 0.1, "width": 8, "name": "again"})
            case 2:
                saved = json.loads(json.dumps(scheduler.to_json()))
                scheduler = pbt(0, quantile_fraction=fraction, perturbation_interval=1)
                scheduler.from_json(saved)
            case _:
                value = float(chance.randrange(6)) if chance.random() < 0.9 else inf
                decisions = scheduler.report(trial, step + 1.0, value)
                lower, upper = ranked_anew(scheduler, fraction)
                assert bool(decisions) == (trial in lower)
                assert all(each.donor in upper for _, each in decisions if isinstance(each, Exploit))
        assert scheduler.quantiles() == ranked_anew(scheduler, fraction)
