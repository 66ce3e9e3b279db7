"""AshaScheduler: rungs, cutoffs, brackets, state. tests/engine/test_asha_differential.py has the oracle."""

from __future__ import annotations

import math
import subprocess
import sys
import timeit
from collections import Counter
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.errors import SpecError
from raysweep.schedulers import NOTHING, Stop
from raysweep.schedulers.asha import AshaScheduler
from raysweep.schedulers.machinery.cutoff import RunningPercentile
from raysweep.schedulers.machinery.rungs import milestones, percentile


def asha(**changes: Any) -> AshaScheduler:
    return AshaScheduler(**{"mode": "max", "max_t": 27, "grace_period": 1, "reduction_factor": 3, **changes})


def test_stops_below_the_cutoff_of_its_rung() -> None:
    """The first trial of a rung continues; later ones need the top third of what is recorded before them."""
    scheduler = asha()
    assert scheduler.report(0, 1, 0.5) == NOTHING
    assert scheduler.report(1, 1, 0.4) == ((1, Stop()),)
    assert scheduler.report(2, 1, 0.5) == NOTHING  # equal to the cutoff is not below it
    assert scheduler.report(0, 2, 0.0) == NOTHING  # between two rungs nothing is decided
    assert scheduler.report(0, 3, 0.0) == NOTHING  # first of the next rung


def test_min_mode_is_the_mirror_of_max() -> None:
    """The same values with the sign changed give the same decisions in the other mode."""
    low, high = asha(mode="min"), asha(mode="max")
    for trial, value in enumerate([0.3, 0.9, 0.1, 0.1, 0.5]):
        assert low.report(trial, 1, value) == high.report(trial, 1, -value)


def test_max_t_stops_and_records_nothing() -> None:
    """A trial at `max_t` stops; without `stop_last_trials` it continues."""
    scheduler = asha()
    assert scheduler.report(0, 27, 1.0) == ((0, Stop()),)
    assert not any(rung["trials"] for rung in scheduler.to_json()["rungs"][0])
    assert asha(stop_last_trials=False).report(0, 27, 1.0) == NOTHING


def test_a_rung_records_a_trial_once() -> None:
    """A trial that is restarted from a checkpoint and reports old times again changes no rung."""
    scheduler = asha()
    for time in [1, 2, 3, 4]:
        scheduler.report(7, time, 0.5)
    before = scheduler.to_json()
    for time in [2, 3, 4, 1, 4]:
        assert scheduler.report(7, time, -100.0) == NOTHING
    assert scheduler.to_json() == before


def test_a_trial_keeps_its_records_over_remove_and_add() -> None:
    """Failed and started again, a trial is not recorded a second time."""
    scheduler = asha()
    scheduler.report(0, 1, 0.5)
    scheduler.remove(0)
    scheduler.remove(0)
    scheduler.add(0, {})
    assert scheduler.report(0, 1, -9.0) == NOTHING
    assert scheduler.to_json()["rungs"][0][0]["values"] == [0.5]


def test_end_records_the_last_report() -> None:
    """A completed trial counts in the rung it reached; one that never reported counts nowhere."""
    scheduler = asha()
    scheduler.end(0, 4, 0.5)
    scheduler.end(1, None, None)
    assert [rung["trials"] for rung in scheduler.to_json()["rungs"][0]] == [[], [0], [], []]
    assert scheduler.report(2, 3, 0.4) == ((2, Stop()),)


def test_nan_is_recorded_and_left_out_of_the_cutoff() -> None:
    """A NaN neither stops a trial nor moves the cutoff of others."""
    scheduler = asha()
    assert scheduler.report(0, 1, math.nan) == NOTHING
    assert scheduler.report(1, 1, 0.1) == NOTHING
    assert scheduler.report(2, 1, 0.05) == ((2, Stop()),)


def test_milestones() -> None:
    """Rungs start at the grace period times the factor to the power of the bracket."""
    assert milestones(1, 27, 3, 0) == [1, 3, 9, 27]
    assert milestones(1, 27, 3, 2) == [9, 27]
    assert milestones(2, 3, 4, 0) == [2]
    assert milestones(1, 2, 4, 3) == []


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True, width=16), max_size=60),
    st.one_of(st.floats(0, 1), st.sampled_from([1 - 1 / 3, 1 - 1 / 4, (1 - 1 / 1e17) * 100 / 100])),
    st.integers(0, 60),
)
def test_a_running_percentile_is_that_of_all_values_so_far(
    values: list[float], fraction: float, restored: int
) -> None:
    """Where it starts with some of them, too."""
    running = RunningPercentile(fraction, values[:restored])
    for count in range(min(restored, len(values)), len(values) + 1):
        seen = sorted(value for value in values[:count] if value == value)
        expected, found = percentile(seen, fraction), running.value()
        assert found == expected or (math.isnan(found) and math.isnan(expected))
        if count < len(values):
            running.add(values[count])


def test_percentile() -> None:
    """Linear interpolation between the neighbours."""
    assert math.isnan(percentile([], 0.5))
    assert percentile([3.0], 0.75) == 3.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.75) == 3.25


def test_bracket_probabilities_are_the_softmax_of_the_rungs() -> None:
    """Brackets of 4, 3 and 2 rungs are chosen in the ratio e^0 : e^-1 : e^-2."""
    scheduler = asha(brackets=3, seed=11)
    draws = 20_000
    counts = Counter(scheduler.bracket(trial) for trial in range(draws))
    weights = [1.0, math.exp(-1), math.exp(-2)]
    for index, weight in enumerate(weights):
        probability = weight / sum(weights)
        sigma = math.sqrt(draws * probability * (1 - probability))
        assert abs(counts[index] - draws * probability) < 4 * sigma


def test_bracket_depends_on_seed_and_number_only() -> None:
    """Order and history do not matter; another seed gives another assignment."""
    first, second = asha(brackets=3, seed=1), asha(brackets=3, seed=1)
    for trial in range(50):
        first.add(trial, {})
    assert [first.bracket(i) for i in range(50)] == [second.bracket(i) for i in reversed(range(50))][::-1]
    assert [first.bracket(i) for i in range(50)] != [asha(brackets=3, seed=2).bracket(i) for i in range(50)]


report_lists = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 30), st.floats(allow_nan=True, allow_infinity=True)),
    max_size=120,
)


@given(report_lists, st.integers(0, 120), st.sampled_from([1, 3]), st.sampled_from(["min", "max"]))
def test_dump_and_load_change_no_decision(
    reports: list[tuple[int, int, float]], at: int, brackets: int, mode: str
) -> None:
    """A scheduler loaded from JSON text at any point continues as the one that was never dumped."""
    scheduler = asha(brackets=brackets, mode=mode)
    for trial, time, value in reports[:at]:
        scheduler.report(trial, time, value)
    loaded = asha(brackets=brackets, mode=mode)
    loaded.from_json(orjson.loads(orjson.dumps(scheduler.to_json())))
    for trial, time, value in reports[at:]:
        assert loaded.report(trial, time, value) == scheduler.report(trial, time, value)
    assert orjson.dumps(loaded.to_json()) == orjson.dumps(scheduler.to_json())


def test_state_of_other_parameters_is_refused() -> None:
    """The error names the parameter and both values."""
    with pytest.raises(SpecError, match=r"scheduler\.asha\.max_t.*27.*81"):
        asha(max_t=81).from_json(asha().to_json())


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("max_t", {"max_t": 1, "grace_period": 2}),
        ("max_t", {"max_t": math.inf}),
        ("grace_period", {"grace_period": 0}),
        ("reduction_factor", {"reduction_factor": 1}),
        ("reduction_factor", {"reduction_factor": math.nan}),
        ("brackets", {"brackets": 0}),
    ],
)
def test_bad_parameters_are_named(field: str, changes: dict[str, Any]) -> None:
    """Each bad parameter is refused under its own name."""
    with pytest.raises(SpecError, match=rf"scheduler\.asha\.{field}"):
        asha(**changes)


def test_cost_of_a_report_does_not_grow_with_the_trials() -> None:
    """A cutoff over 20,000 recorded values costs microseconds: nothing is sorted anew."""
    scheduler = asha()
    for trial in range(20_000):
        scheduler.report(trial, 1, (trial * 7919) % 20_011)
    numbers = iter(range(20_000, 10**9))
    seconds = min(timeit.repeat(lambda: scheduler.report(next(numbers), 1, 5.0), number=200, repeat=5)) / 200
    assert seconds < 300e-6


def test_the_room_imports_neither_numpy_nor_ray() -> None:
    """A fresh interpreter that makes a scheduler has loaded no heavy library."""
    code = (
        "import sys; from raysweep.schedulers.asha import AshaScheduler;"
        "AshaScheduler(mode='max').report(0, 1, 1.0);"
        "sys.exit(' '.join({'numpy', 'ray', 'optuna'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0
