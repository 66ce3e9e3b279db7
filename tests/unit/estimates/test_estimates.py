"""Estimates of the end of a sweep: what they promise, and what they leave alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from benchmarks.estimates import COVERED, MAX_ERROR, figures, judge, make_night, make_nights
from raysweep.core import SweepState, step
from raysweep.core.vocabulary import events as ev
from raysweep.estimates import Samples, Seen, estimate_new, estimate_rest, samples_of, slow_trials
from raysweep.estimates.samples import Ran, past_of
from raysweep.outcome import SweepOutcome
from raysweep.specs import SweepSpec
from tests.golden.replay import GOLDEN, make_state, read_expected, read_journal

CHEAP = ("asha", "fifo", "lognormal", "lengths", "failures", "slow-node", "hyperband", "promotion")
JOURNALS = sorted(path.stem for path in GOLDEN.glob("*.jsonl"))


def at_rest() -> float:
    """A clock by which nothing costs CPU time: so the number of plays does not depend on the machine."""
    return 0.0


def make_spec(**more: Any) -> SweepSpec:
    fields = {
        "name": "night",
        "trainable": "toys.module:train",
        "param_space": {"x": {"uniform": [0, 1]}},
        "metric": "loss",
        "mode": "min",
        "num_samples": 8,
        "seed": 1,
        "storage_path": "memory://estimates",
    }
    return SweepSpec.model_validate(fields | more)


def half_of(kind: str, seed: int) -> tuple[SweepState, Seen, float, int]:
    """A simulated night at half its time: the state, the curves, that moment, how many trials it has."""
    night = make_night(kind, seed)
    begin = night.journal[0].at
    now = begin + 0.5 * (night.end_at - begin)
    state, seen = SweepState.create(night.spec, seed), Seen()
    for event in night.journal:
        if event.at <= now:
            step(state, event)
            seen.take(state, event)
    return state, seen, now, night.total


def test_intervals_hold_and_errors_are_small_half_way_through_a_sample_of_nights() -> None:
    judged = [judge(night, clock=at_rest) for night in make_nights(8, CHEAP)]
    found = figures(judged)
    assert found["without"] == 0
    # 8 nights are few: the benchmark has 110.
    assert COVERED[0] - 0.1 <= found["covered"] <= 1.0
    assert found["median_error_of_rest"] < MAX_ERROR


def test_the_state_is_as_before() -> None:
    state, seen, now, total = half_of("promotion", 1)
    before = state.to_json()
    assert estimate_rest(state, now=now, total=total, curves=seen.curves, clock=at_rest) is not None
    assert state.to_json() == before


def test_the_same_state_gives_the_same_estimate() -> None:
    state, seen, now, total = half_of("asha", 1)
    both = [estimate_rest(state, now=now, total=total, curves=seen.curves, clock=at_rest) for _ in range(2)]
    assert both[0] == both[1] is not None


def test_a_deadline_cuts_the_end_and_the_trials() -> None:
    state, seen, now, total = half_of("fifo", 1)
    free = estimate_rest(state, now=now, total=total, curves=seen.curves, clock=at_rest)
    assert free is not None
    assert free.completes == 1.0
    assert free.trials.expected == total
    deadline = now + 0.3 * (free.end_at.expected - now)
    state.clock.deadline_at = deadline
    spec = state.spec.replace(stop={"deadline": "2030-01-01T00:00:00+00:00"})
    bound = SweepState.create(spec, 1)
    state.rules, state.spec = bound.rules, spec
    cut = estimate_rest(state, now=now, total=total, curves=seen.curves, clock=at_rest)
    assert cut is not None
    assert cut.end_at.high <= deadline
    assert cut.completes == 0.0
    assert cut.trials.high < total


def test_few_seconds_of_cpu_give_fewer_and_shorter_plays() -> None:
    state, seen, now, total = half_of("fifo", 2)
    full = estimate_rest(state, now=now, total=total, curves=seen.curves, clock=at_rest)
    ticks: Iterator[int] = count()
    short = estimate_rest(
        state, now=now, total=total, curves=seen.curves, cpu_s=1.5, clock=lambda: float(next(ticks))
    )
    assert full is not None
    assert short is not None
    assert not full.is_extended
    assert short.is_extended
    assert short.plays < full.plays
    assert abs(short.end_at.expected - full.end_at.expected) < 0.5 * (full.end_at.expected - now)


def test_a_new_sweep_takes_its_rounds_and_the_start() -> None:
    known = Samples(ran=(Ran(reports=1, step_s=10.0, has_returned=True),) * 3, start_s=5.0)
    found = estimate_new(make_spec(), now=0.0, slots=2, total=8, samples=known, clock=at_rest)
    assert found is not None
    assert found.end_at.expected == pytest.approx(45.0, abs=1.0)
    assert found.trials.expected == 8
    assert found.cost is None


def test_with_prices_it_says_the_cost() -> None:
    spec = make_spec(stop={"cost_per_hour": {"cpu": 36.0}}, resources={"cpu": 1})
    known = Samples(ran=(Ran(reports=1, step_s=10.0, has_returned=True),) * 3, start_s=0.0)
    found = estimate_new(spec, now=0.0, slots=2, total=8, samples=known, clock=at_rest)
    assert found is not None
    assert found.cost is not None
    assert found.cost.expected == pytest.approx(8 * 10 * 0.01, rel=0.1)


def test_without_a_trial_that_has_reported_nothing_is_said() -> None:
    state = SweepState.create(make_spec(), 1)
    assert estimate_rest(state, now=0.0, total=8, clock=at_rest) is None
    step(state, ev.ControllerStarted(at=0.0, generation=1))
    assert estimate_rest(state, now=0.0, total=8, clock=at_rest) is None


def test_an_earlier_night_has_the_reports_that_count() -> None:
    outcome = SweepOutcome.model_validate(read_expected("chaos-328")["outcome"])
    ran = [each for each in outcome.trials if each.attempts and each.state in ("completed", "stopped")]
    assert sum(trial.overrun_reports for trial in ran) > 0
    assert [each.reports for each in past_of(outcome).samples.ran] == [trial.reports for trial in ran]


def test_a_trial_ten_times_as_slow_as_its_siblings_is_named() -> None:
    state, _, now, _ = half_of("fifo", 3)
    samples = samples_of(state)
    assert slow_trials(state, samples, now) == ()
    running = [slot for slot in state.slots.values() if slot.queue]
    usual = max(each.step_s for each in samples.ran)
    lines = slow_trials(state, samples, max(slot.heard_at for slot in running) + 20 * usual)
    assert len(lines) == min(5, len(running))
    assert f"trial {running[0].queue[0]:05d}" in " ".join(lines)
    assert "times as long as the others" in lines[0]


@pytest.mark.parametrize("name", JOURNALS)
def test_every_recorded_sweep_can_be_estimated_at_any_time(name: str) -> None:
    expected = read_expected(name)
    state, seen = make_state(expected["spec"], expected["seed"]), Seen()
    journal, total = read_journal(name), len(expected["outcome"]["trials"])
    moments = {len(journal) * tenth // 10 for tenth in (2, 5, 8)}
    for number, event in enumerate(journal):
        step(state, event)
        seen.take(state, event)
        if number in moments:
            found = estimate_rest(
                state, now=event.at, total=total, curves=seen.curves, plays=3, clock=at_rest
            )
            assert found is None or found.end_at.low >= event.at
