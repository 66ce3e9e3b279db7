"""Freeze-thaw: what a curve is predicted to come to, and who has the slot because of it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.schedulers import NOTHING, Pause, Resume, Stop, make_scheduler
from raysweep.schedulers.freeze_thaw import FreezeThawScheduler
from raysweep.schedulers.machinery.curves import Curve, Prior, expected_gain, prior_of
from raysweep.simulate import simulate
from raysweep.specs import SweepSpec

WIDE = Prior(asymptote=0.0, fall=0.0, asymptote_sd=1e3, fall_sd=1e3, noise_sd=1e-3)


def curve(asymptote: float, fall: float, decay: float, reports: int) -> Curve:
    found = Curve()
    for time in range(1, reports + 1):
        found.add(time, asymptote + fall * time**-decay)
    return found


@pytest.mark.parametrize("decay", [0.25, 0.5, 1.0, 2.0])
def test_a_power_law_is_found_again(decay: float) -> None:
    mean, sd = curve(0.2, 1.5, decay, 12).predict(81, WIDE)
    assert mean == pytest.approx(0.2 + 1.5 * 81**-decay, abs=2e-3)
    assert sd < 0.02


def test_what_was_not_seen_yet_is_the_priors() -> None:
    prior = Prior(asymptote=0.5, fall=2.0, asymptote_sd=0.1, fall_sd=0.2, noise_sd=0.01)
    mean, sd = Curve().predict(1, prior)
    assert mean == pytest.approx(2.5)
    assert sd == pytest.approx(math.hypot(0.1, 0.2))


def test_one_report_by_hand() -> None:
    """y = 1 at t = 1, c ~ N(0, 1), a ~ N(0, 1), noise 1: both have the mean 1/3, whatever the decay."""
    prior = Prior(asymptote=0.0, fall=0.0, asymptote_sd=1.0, fall_sd=1.0, noise_sd=1.0)
    found = Curve()
    found.add(1, 1.0)
    mean, sd = found.predict(1, prior)
    assert mean == pytest.approx(2 / 3)
    assert sd == pytest.approx(math.sqrt(2 / 3))


def test_more_reports_leave_less_doubt_and_the_same_one_again_nothing() -> None:
    doubts = [curve(0.2, 1.0, 0.5, reports).predict(27, WIDE)[1] for reports in (2, 4, 8, 16)]
    assert doubts == sorted(doubts, reverse=True)
    found = curve(0.2, 1.0, 0.5, 4)
    before = found.predict(27, WIDE)
    found.add(3, 99.0)
    assert found.predict(27, WIDE) == before


def test_the_prior_is_what_the_others_did() -> None:
    found = prior_of([1.0, 3.0], [0.5, 1.5])
    assert (found.asymptote, found.fall) == (1.0, 1.0)
    assert found.asymptote_sd == found.fall_sd == 2.0
    flat = prior_of([2.0, 2.0], [])
    assert 0 < flat.noise_sd < 1e-6, "where all are alike nothing is divided by 0"


def test_expected_gain_by_hand() -> None:
    assert expected_gain(1.0, 1.0, 1.0) == pytest.approx(1 / math.sqrt(2 * math.pi))
    assert expected_gain(1.0, 0.0, 0.0) == 1.0
    assert expected_gain(1.0, 2.0, 0.0) == 0.0
    assert expected_gain(1.0, 5.0, 1.0) < 1e-4


# -- who has the slot -------------------------------------------------------------------------------------


def scheduler(trials: int = 0, **options: Any) -> FreezeThawScheduler:
    found = FreezeThawScheduler(**{"mode": "min", "max_t": 27, "basket": 4} | options)
    for trial in range(trials):
        found.add(trial, {})
    return found


def test_before_there_is_anything_to_compare_new_ones_begin() -> None:
    found = scheduler(4)
    assert found.report(0, 1, 1.0) == ((0, Pause()),)
    assert found.report(1, 1, 1.1) == ((1, Pause()),)
    assert found.report(0, 1, 1.0) == NOTHING, "a report that comes again decides nothing"


def test_no_trial_is_paused_before_its_grace_or_within_its_interval() -> None:
    found = scheduler(4, grace_period=3, interval=4)
    assert [found.report(0, time, 1.0) for time in (1, 2, 3)] == [NOTHING] * 3
    assert found.report(0, 4, 1.0) == ((0, Pause()),)


def test_a_full_basket_ends_the_least_promising_for_a_new_one() -> None:
    found = scheduler(6, basket=2)
    assert found.report(0, 1, 0.1) == ((0, Pause()),)
    assert found.report(1, 1, 5.0) == ((1, Stop()),)


def test_who_gains_most_goes_on_where_nothing_new_comes() -> None:
    found = scheduler(3)
    found.report(0, 1, 1.0)
    found.report(1, 1, 0.2)
    assert found.report(2, 1, 0.9) == ((1, Resume()), (2, Pause()))
    assert found.report(1, 2, 0.15) == NOTHING, "it still promises most"


def test_in_the_end_who_has_no_hope_ends_and_one_completes() -> None:
    found = scheduler(2)
    for time in range(1, 20):
        found.report(0, time, 0.1)
        found.report(1, time, 9.0)
    decisions = dict(found.idle([0, 1]))
    assert isinstance(decisions[0], Resume)
    assert isinstance(decisions[1], Stop)
    found.end(0, 27, 0.1)
    assert found.idle([]) == ()


def test_less_is_worse_where_more_is_better() -> None:
    found = scheduler(6, basket=2, mode="max")
    found.report(0, 1, 0.1)
    assert found.report(1, 1, 5.0) == ((0, Stop()), (1, Pause()))


def test_its_state_does_not_grow_with_reports() -> None:
    found = scheduler(3, basket=3)
    sizes = []
    for time in range(1, 2000):
        found.report(0, time, 1 + 1 / time)
        if time in (100, 1999):
            sizes.append(len(json.dumps(found.to_json())))
    assert sizes[1] < sizes[0] * 1.2


def crossing(config: dict[str, float], epoch: int) -> dict[str, float] | None:
    """Who falls late falls furthest."""
    late = config["x"]
    return {"loss": 1 - late + (1 + 2 * late) * epoch**-0.5} if epoch <= 27 else None


def test_the_best_end_is_found_with_a_part_of_the_work() -> None:
    spec = SweepSpec(
        name="a",
        trainable="m:f",
        metric="loss",
        mode="min",
        search="random",
        seed=3,
        num_samples=20,
        param_space={"x": {"uniform": [0, 1]}},
        scheduler={"freeze_thaw": {"max_t": 27}},
    )
    simulated = simulate(spec, crossing, slots=4, save_every=1)
    outcome = simulated.outcome
    assert outcome.status == "completed"
    assert outcome.best.state == "completed"
    best = max(trial.config["x"] for trial in outcome.trials)
    assert outcome.best.config["x"] == best, "which began as the worst of all"
    assert sum(trial.metrics["training_iteration"] for trial in outcome.trials) < 20 * 27 * 0.6


def test_it_is_made_from_the_spec_and_bad_options_are_refused() -> None:
    plain: dict[str, Any] = {
        "name": "a",
        "trainable": "m:f",
        "metric": "loss",
        "mode": "min",
        "param_space": {"x": {"uniform": [0, 1]}},
    }
    made = make_scheduler(SweepSpec(**plain, scheduler={"freeze_thaw": {"max_t": 9, "basket": 3}}))
    assert isinstance(made, FreezeThawScheduler)
    assert made.max_t == 9.0
    with pytest.raises(SpecError, match=r"^scheduler\.freeze_thaw\.grace_period: 9 is above max_t 3"):
        SweepSpec(**plain, scheduler={"freeze_thaw": {"max_t": 3, "grace_period": 9}})
    for options in ({"max_t": 0}, {"interval": 0}, {"basket": 0}, {"grace_period": -1}):
        with pytest.raises(SpecError, match=r"^scheduler\.freeze_thaw\."):
            scheduler(**options)
    with pytest.raises(SpecError):
        scheduler(max_t=9).from_json(scheduler().to_json())
