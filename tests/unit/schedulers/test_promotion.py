"""PromotionScheduler and PashaScheduler, beside the papers' own words as plain functions."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.schedulers import NOTHING, Pause, Resume, make_scheduler
from raysweep.schedulers.machinery.promotion import PromotionScheduler, Rung
from raysweep.schedulers.pasha import PashaScheduler, is_settled
from raysweep.simulate import simulate
from raysweep.specs import SweepSpec

FIELDS = {
    "name": "s",
    "trainable": "m:f",
    "param_space": {"x": {"uniform": [0, 1]}},
    "metric": "m",
    "mode": "min",
}


def promotion(**changes: Any) -> PromotionScheduler:
    return PromotionScheduler(
        **{"mode": "max", "max_t": 27, "grace_period": 1, "reduction_factor": 3, **changes}
    )


def pasha(**changes: Any) -> PashaScheduler:
    return PashaScheduler(**{"mode": "max", "max_t": 27, "grace_period": 1, "reduction_factor": 3, **changes})


def test_of_three_the_best_goes_on() -> None:
    scheduler = promotion()
    assert scheduler.report(0, 1, 0.9) == ((0, Pause()),)
    assert scheduler.report(1, 1, 0.5) == ((1, Pause()),)
    assert scheduler.report(2, 1, 0.7) == ((0, Resume()), (2, Pause()))
    assert scheduler.report(0, 2, 0.0) == NOTHING
    assert scheduler.report(0, 3, 0.9) == ((0, Pause()),)


def test_who_is_promoted_at_once_is_not_paused() -> None:
    scheduler = promotion()
    scheduler.report(0, 1, 0.1)
    scheduler.report(1, 1, 0.2)
    assert scheduler.report(2, 1, 0.3) == ((2, Resume()),)


def promotable(seen: dict[int, float], promoted: set[int], eta: float, delayed: bool) -> set[int]:
    """Algorithm 2 of Li et al., lines 14 to 17: the top 1/eta of a rung that were not promoted yet.

    With the delay of Hyper-Tune, as many of them as keep the next rung at 1/eta of this one.
    """
    share = int(len(seen) / eta)
    top = sorted(seen, key=lambda trial: (-seen[trial], trial))[:share]
    left = [trial for trial in top if trial not in promoted]
    return set(left[: share - len(promoted)] if delayed else left)


@pytest.mark.parametrize("delayed", [False, True], ids=["ASHA", "D-ASHA"])
@pytest.mark.parametrize("seed", range(60))
def test_promotes_whom_the_papers_promote(seed: int, delayed: bool) -> None:
    rng = random.Random(seed)
    eta, max_t = rng.choice([(2, 16), (3, 27), (4, 64)])
    scheduler = promotion(reduction_factor=eta, max_t=max_t, delayed=delayed)
    rungs: dict[int, dict[int, float]] = {}
    promoted: dict[int, set[int]] = {}
    time = 1
    while time < max_t:
        rungs[time], promoted[time] = {}, set()
        time *= eta
    times, running, waiting = {}, [], list(range(40))
    while running or waiting:
        while waiting and len(running) < 5:
            times[waiting[0]] = 0
            running.append(waiting.pop(0))
        trial = rng.choice(running)
        times[trial] += 1
        value = rng.choice([rng.random(), 0.5])
        decisions = scheduler.report(trial, times[trial], value)
        if times[trial] == max_t:
            running.remove(trial)
        elif times[trial] in rungs:
            seen = rungs[times[trial]]
            seen[trial] = value
            going = promotable(seen, promoted[times[trial]], eta, delayed)
            promoted[times[trial]] |= going
            assert {number for number, verdict in decisions if verdict == Resume()} == going
            assert ((trial, Pause()) in decisions) == (trial not in going)
            running = [each for each in running if each != trial] + sorted(going)
        else:
            assert decisions == NOTHING
    assert any(promoted.values())


def test_when_nothing_else_runs_the_best_of_a_rung_that_none_left_goes_on() -> None:
    """So that also a sweep of a few trials brings one of them to `max_t`."""
    scheduler = promotion()
    scheduler.report(0, 1, 0.1)
    scheduler.report(1, 1, 0.2)
    assert scheduler.idle([0, 1]) == ((1, Resume()),)
    scheduler.report(1, 3, 0.2)
    assert scheduler.idle([0, 1]) == ((1, Resume()),)
    scheduler.report(1, 9, 0.2)
    assert scheduler.idle([0, 1]) == ((1, Resume()),)
    scheduler.remove(1)
    assert scheduler.idle([0]) == ((0, Resume()),), "the one that was promoted failed"
    scheduler.end(0, 27, 0.1)
    assert scheduler.idle([]) == NOTHING


class Plain(PromotionScheduler):
    """The same, looking at all that a rung has recorded, at each report."""

    def _going(self, rung: Rung, index: int, share: int) -> list[int]:
        best = [trial for _, trial in rung.ordered[:share]]
        rung.standing = len(rung.promoted - self._failed)
        return [
            trial
            for trial in best
            if trial in self._waiting and trial not in self._gone and self._level[trial] == index + 1
        ]


@pytest.mark.parametrize("delayed", [False, True], ids=["ASHA", "D-ASHA"])
@pytest.mark.parametrize("seed", range(100))
def test_looks_only_at_the_open_ones_and_decides_as_if_at_all(seed: int, delayed: bool) -> None:
    """With trials that fail, that run again after it, and with restores between two reports."""
    rng = random.Random(seed)
    options: dict[str, Any] = {"mode": "max", "max_t": 27, "grace_period": 1, "reduction_factor": 3}
    options |= {"delayed": delayed, "brackets": rng.choice([1, 2])}
    quick, plain = PromotionScheduler(**options), Plain(**options)
    times = dict.fromkeys(range(30), 0)
    for _ in range(600):
        trial, value = rng.randrange(30), rng.choice([rng.random(), 0.5])
        match rng.choice([*["report"] * 8, "end", "remove", "add", "add", "idle", "restore"]):
            case "report":
                times[trial] += 1
                calls = [each.report(trial, times[trial], value) for each in (quick, plain)]
            case "end":
                calls = [each.end(trial, times[trial], value) for each in (quick, plain)]
            case "remove":
                calls = [each.remove(trial) for each in (quick, plain)]
            case "add":
                calls = [each.add(trial, {}) for each in (quick, plain)]
            case "idle":
                calls = [each.idle([]) for each in (quick, plain)]
            case _:
                saved = quick.to_json()
                calls = [saved, plain.to_json()]
                quick = PromotionScheduler(**options)
                quick.from_json(saved)
        assert calls[0] == calls[1]
    assert any(rung.promoted for rungs in quick._brackets for rung in rungs)


def test_the_cost_of_a_report_does_not_grow_with_those_who_went_on_before() -> None:
    """By the lines that Python runs, not by a clock: 16 times the trials are at most 4 times the lines."""

    def lines(trials: int) -> float:
        scheduler, count = promotion(), 0

        def see(frame: Any, event: str, argument: Any) -> Any:
            nonlocal count
            count += event == "line"
            return see

        values = random.Random(1)
        for trial in range(trials):
            if trial == trials - 100:
                sys.settrace(see)
            scheduler.report(trial, 1, values.random())
        sys.settrace(None)
        return count / 100

    assert lines(6400) < 4 * lines(400)


def going_of(decisions: Any) -> list[int]:
    return [trial for trial, verdict in decisions if verdict == Resume()]


def test_of_configs_that_get_better_and_better_a_share_goes_on() -> None:
    plain, delayed = promotion(), promotion(delayed=True)
    going = [[going_of(each.report(trial, 1, trial)) for trial in range(9)] for each in (plain, delayed)]
    assert going == [
        [[], [], [2], [3], [4], [5], [6], [7], [8]],
        [[], [], [2], [], [], [5], [], [], [8]],
    ]


def test_who_was_delayed_goes_on_once_nothing_else_can_run() -> None:
    scheduler = promotion(delayed=True)
    for trial in range(9):
        scheduler.report(trial, 1, trial)
    assert going_of(scheduler.idle([0, 1, 3, 4, 6, 7])) == [7, 6], "those of the best three that wait"
    for trial, value in ((2, 2.0), (5, 5.0), (8, 8.0)):
        scheduler.report(trial, 3, value)
    assert scheduler.report(7, 3, 9.0) == ((7, Pause()),), "the place has been taken"
    assert going_of(scheduler.idle([])) == [7]
    assert scheduler.idle([]) == NOTHING


def test_who_went_on_late_has_taken_a_place_that_comes_later() -> None:
    """Where a sweep is extended after its end."""
    scheduler = promotion(delayed=True)
    for trial in range(6):
        scheduler.report(trial, 1, trial)
    assert going_of(scheduler.idle([0, 1, 3, 4])) == [4]
    assert [going_of(scheduler.report(trial, 1, trial)) for trial in range(6, 12)] == [
        [],
        [],
        [],
        [],
        [],
        [11],
    ]


def test_when_nothing_else_runs_plain_promotion_decides_as_before() -> None:
    """As in journals of before: of those that were cut and came back, the next report decides."""
    going = []
    for delayed in (False, True):
        scheduler = promotion(delayed=delayed)
        scheduler.report(0, 1, 9.0)
        scheduler.remove(0)
        for trial in range(1, 6):
            scheduler.report(trial, 1, trial)
        scheduler.add(0, {})
        going.append(going_of(scheduler.idle([])))
    assert going == [[], [0]]


def test_who_failed_gives_its_place_back() -> None:
    scheduler = promotion(delayed=True)
    for trial in range(3):
        scheduler.report(trial, 1, trial)
    scheduler.remove(2)  # it continued, and failed
    assert going_of(scheduler.report(3, 1, 3.0)) == [3]


def test_what_is_delayed_stays_so() -> None:
    for make in (promotion, pasha):
        scheduler, restored = make(delayed=True), make(delayed=True)
        for trial in range(4):
            scheduler.report(trial, 1, trial)
        restored.from_json(scheduler.to_json())
        assert [going_of(each.report(4, 1, 4.0)) for each in (scheduler, restored)] == [[], []]
        assert [going_of(each.report(5, 1, 5.0)) for each in (scheduler, restored)] == [[5], [5]]
        with pytest.raises(SpecError, match=r"delayed.*False.*True"):
            make(delayed=True).from_json(make().to_json())


def test_a_trial_that_was_cut_while_it_waited_waits_again() -> None:
    scheduler = promotion()
    scheduler.report(0, 1, 0.5)
    scheduler.remove(0)
    scheduler.add(0, {})
    assert scheduler.report(0, 2, 0.9) == ((0, Pause()),)


def test_a_completed_trial_makes_room() -> None:
    scheduler = promotion()
    scheduler.report(0, 1, 0.5)
    scheduler.report(1, 1, 0.4)
    assert scheduler.end(2, 1, 0.1) == ((0, Resume()),)


def test_a_rung_that_was_jumped_over_is_left_out() -> None:
    scheduler = promotion()
    assert scheduler.report(0, 5, 0.5) == ((0, Pause()),)
    assert [rung["trials"] for rung in scheduler.to_json()["rungs"][0]] == [[], [0], []]


def test_state_of_other_parameters_is_refused() -> None:
    with pytest.raises(SpecError, match=r"scheduler\.asha\.max_t.*27.*81"):
        promotion(max_t=81).from_json(promotion().to_json())
    with pytest.raises(SpecError, match=r"scheduler\.pasha\.reduction_factor.*3.*2"):
        pasha(reduction_factor=2).from_json(pasha().to_json())


def test_the_type_is_part_of_the_digest() -> None:
    plain = SweepSpec.model_validate(FIELDS | {"scheduler": "asha"})
    assert plain.to_dict()["scheduler"]["asha"]["type"] == "stopping"
    other = SweepSpec.model_validate(FIELDS | {"scheduler": {"asha": {"type": "promotion"}}})
    assert other.to_dict()["scheduler"]["asha"]["type"] == "promotion"
    assert SweepSpec.model_validate(other.to_dict()) == other
    assert plain.digest() != other.digest()


def test_a_delay_is_part_of_the_digest_and_only_where_trials_wait() -> None:
    for kind, options in (("asha", {"type": "promotion"}), ("pasha", {"max_t": 9})):
        plain = SweepSpec.model_validate(FIELDS | {"scheduler": {kind: options}})
        assert plain.to_dict()["scheduler"][kind]["delayed"] is False
        assert isinstance(make_scheduler(plain), PromotionScheduler)
        assert make_scheduler(plain).to_json()["parameters"]["delayed"] is False
        delayed = SweepSpec.model_validate(FIELDS | {"scheduler": {kind: options | {"delayed": True}}})
        assert make_scheduler(delayed).to_json()["parameters"]["delayed"] is True
        assert SweepSpec.model_validate(delayed.to_dict()) == delayed
        assert plain.digest() != delayed.digest()
    with pytest.raises(SpecError, match=r"scheduler\.asha\.delayed: applies only to type: promotion"):
        SweepSpec(**FIELDS, scheduler={"asha": {"delayed": True}})


def rung(milestone: float, scores: dict[int, float]) -> Rung:
    made = Rung(milestone)
    for trial, score in scores.items():
        made.record(trial, score)
    return made


def test_a_ranking_is_settled_where_it_differs_by_no_more_than_the_noise() -> None:
    below = rung(1, {0: 0.5, 1: 0.45, 2: 0.1, 3: 0.9})
    assert is_settled(rung(3, {0: 0.8, 1: 0.7, 2: 0.2}), below, 0.0)
    swapped = rung(3, {0: 0.7, 1: 0.8, 2: 0.2})
    assert not is_settled(swapped, below, 0.0)
    assert is_settled(swapped, below, 0.051)
    assert not is_settled(rung(3, {0: 0.7, 2: 0.8}), below, 0.051)


def test_while_the_ranking_holds_no_rung_is_added() -> None:
    simulated = run_pasha(lambda x, step: x - 1 / step)
    assert max(trial.metrics["training_iteration"] for trial in simulated) == 3


def test_where_curves_cross_rungs_are_added() -> None:
    """Who is slow at first wins in the end."""
    simulated = run_pasha(lambda x, step: -x if step < 3 else x)
    assert max(trial.metrics["training_iteration"] for trial in simulated) > 3


def test_curves_that_cross_and_cross_back_by_little_are_noise() -> None:
    def wobbly(x: float, step: int) -> float:
        """Every other two steps, some change places with their neighbours."""
        number = round(x * 27)
        return (number + (1.5 if number % 4 == 0 and step // 2 % 2 else 0.0)) / 27

    calm = max(trial.metrics["training_iteration"] for trial in run_pasha(wobbly, grace_period=3))
    assert calm == 9, "one rung beyond the first"


@pytest.mark.parametrize(
    ("at_2", "at_3", "noise"), [((0.6, 0.5), (0.8, 0.9), 0.1), ((0.4, 0.5), (0.9, 0.8), 0.0)]
)
def test_only_who_crosses_and_crosses_back_is_noise(
    at_2: tuple[float, float], at_3: tuple[float, float], noise: float
) -> None:
    scheduler = pasha()
    for trial in range(6):
        scheduler.report(trial, 1, trial / 10)
    for time, values in ((2, at_2), (3, at_3)):
        for trial, value in zip((4, 5), values, strict=True):
            scheduler.report(trial, time, value)
    assert scheduler.to_json()["noise"] == pytest.approx(noise)


def run_pasha(value: Any, grace_period: int = 1) -> Any:
    spec = {
        "name": "p",
        "trainable": "m:f",
        "param_space": {"x": {"grid_search": [n * 11 % 27 / 27 for n in range(27)]}},
        "metric": "score",
        "mode": "max",
        "seed": 1,
        "max_concurrent_trials": 3,
        "scheduler": {"pasha": {"max_t": 27, "grace_period": grace_period}},
    }
    outcome = simulate(
        spec, lambda config, step: {"score": value(config["x"], step)}, slots=3, save_every=1
    ).outcome
    assert outcome.status == "completed"
    return outcome.trials
