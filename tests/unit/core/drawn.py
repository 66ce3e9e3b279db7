"""Sweeps, values and failures that Hypothesis draws."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import hypothesis.strategies as st

from raysweep.core.vocabulary.failures import Failure
from tests.unit.core.toys import DIED, NODE_DIED, RAISED, STEP

FAILURES = st.sampled_from(
    [
        RAISED,
        DIED,
        NODE_DIED,
        Failure(origin="memory", type="OutOfMemoryError", memory_bytes=2**30),
        Failure(origin="exception", type="TypeError", bases=("TypeError",)),
        Failure(origin="exception", type="OutOfMemoryError", bases=("OutOfMemoryError",)),
    ]
)
OOM = Failure(origin="memory", type="OutOfMemoryError", memory_bytes=2**30)
LOSSES = st.sampled_from([DIED, NODE_DIED, OOM])


# What the largest of three kinds of nodes offers a trial; 0: not known.
GIB = 2**30
SIZES = st.sampled_from([0, GIB, 4 * GIB, 16 * GIB])
VALUES = st.one_of(
    st.floats(-10, 10).map(lambda value: round(value, 3)), st.sampled_from(["NaN", "text", None, 3])
)
SCHEDULERS = st.sampled_from(
    [
        "fifo",
        {"asha": {"max_t": 4, "grace_period": 1, "reduction_factor": 2}},
        {"asha": {"max_t": 9, "grace_period": 1, "reduction_factor": 3, "brackets": 2}},
        {"asha": {"max_t": 4, "grace_period": 1, "reduction_factor": 2, "time_attr": STEP}},
        {"hyperband": {"max_t": 4, "reduction_factor": 2}},
        {"asha": {"max_t": 4, "reduction_factor": 2, "metric": "other", "mode": "max"}},
        {"tests.policies:Halving": {"rungs": (1, 3), "tweak": 0.25}},
        {"tests.policies:Copycat": {"at": 2}},
        {"tests.policies:Whim": {"left": 40, "rate": 2, "resizes": True}},
        {"tests.policies:Whim": {"left": 12, "rate": 5}},
        {"resource_changing": {"param": "n", "total": 12, "interval": 1}},
    ]
)
STOPS = st.sampled_from(
    [
        {},
        {},
        {"target": -9.0},
        {"trial": {"training_iteration": 3}},
        {"trial_time_s": 5.0},
        {"trial_time_s": 0.5, "trial": {"training_iteration": 4}, "target": -9.0},
        {"time_budget_s": 60.0},
        {"deadline": datetime.fromtimestamp(1100, UTC)},
        {"deadline": datetime.fromtimestamp(1020, UTC), "time_budget_s": 10.0},
        {"deadline": datetime.fromtimestamp(1004, UTC)},
        {"budget": {"cpu_hours": 0.005}, "plateau": {"window": 3}},
        {"plateau": {"window": 2, "min_improvement": 0.1, "min_trials": 4}},
    ]
)
POLICIES = st.fixed_dictionaries(
    {
        "max_failures": st.integers(0, 2),
        "max_worker_deaths": st.integers(0, 2),
        "breaker_trials": st.sampled_from([0, 3]),
        "non_finite": st.sampled_from(["fail", "ignore"]),
        "max_failed_fraction": st.sampled_from([None, 0.5]),
        "backoff_initial_s": st.sampled_from([0.0, 1.0]),
        "oom_memory_factor": st.sampled_from([1, 2]),
        "report_timeout_s": st.sampled_from([None, None, 3.0]),
        "placement_timeout_s": st.sampled_from([300.0, 5.0]),
        "bad_node_failures": st.integers(0, 2),
    }
)
CHECKPOINTS = st.fixed_dictionaries(
    {
        "keep_last": st.integers(1, 2),
        "keep_best": st.one_of(
            st.booleans(),
            st.builds(lambda num: {"num": num}, st.integers(1, 3)),
            st.sampled_from([{"metric": STEP, "mode": "min", "num": 2}, {"metric": STEP, "mode": "max"}]),
        ),
        "every_n": st.sampled_from([None, None, 2, 3]),
        "keep_top_k": st.sampled_from([None, None, 1, 2, 5]),
    }
)
MEMORY = {"cpu": 1, "memory": GIB, "by_config": {"memory": f"{4 * GIB} * x"}}
CPUS = {"cpu": 1, "by_config": {"cpu": "1 + n % 3"}}
BOTH = {"cpu": 1, "memory": GIB, "by_config": {"cpu": "1 + n % 2", "memory": f"{4 * GIB} * x"}}
CUSTOM = {"cpu": 1, "custom": {"seat": 1}, "by_config": {"custom": {"seat": "1 + n % 3", "a b": "n // 50"}}}
WORKERS = {"resources": {"cpu": "1 + n % 2", "memory": f"{4 * GIB} * x"}}
GANG = {
    "num_workers": 2,
    "resources": {"cpu": 1, "memory": GIB},
    "by_config": {**WORKERS, "num_workers": "2 + n % 3 // 2"},
}
BEYOND = st.sampled_from(
    [(), (), ("cpu=3",), ("cpu=2", "cpu=3"), ("custom.seat=3",), ("cpu=2 num_workers=3", "num_workers=3")]
)
SPECS = st.fixed_dictionaries(
    {
        "num_samples": st.integers(1, 16),
        "max_concurrent_trials": st.sampled_from([None, 1, 2, 3]),
        "scheduler": SCHEDULERS,
        "search": st.sampled_from(["random", "tpe", "some.module:Searcher"]),
        "score": st.sampled_from(["last", "best"]),
        "stop": STOPS,
        "failure": POLICIES,
        "resources": st.sampled_from([{"cpu": 1}, {"cpu": 1, "memory": GIB}, MEMORY, CPUS, BOTH, CUSTOM]),
        "scaling": st.sampled_from([None, None, GANG]),
        "param_space": st.just({"x": {"uniform": [0, 1]}, "n": {"randint": [0, 99]}}),
        "checkpoint": CHECKPOINTS,
    }
)


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """How one sweep begins: its spec, its cluster, how fast time goes, how far it comes undisturbed."""

    fields: dict[str, Any]
    capacity: int
    is_dry: bool
    length: int
    tick_s: float
    warm: int


BEGINNINGS = st.builds(
    Beginning,
    fields=SPECS,
    capacity=st.integers(1, 4),
    is_dry=st.sampled_from([False, False, True]),
    length=st.integers(1, 6),
    tick_s=st.sampled_from([0.001, 0.01, 0.1, 1.0]),
    warm=st.integers(0, 60),
)


def fitting(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields, so that they go together: budgets are of slots that are alike, rungs of who has them."""
    if "hyperband" in fields["scheduler"]:
        fields = fields | {"search": "bohb"}
    if "resource_changing" in fields["scheduler"]:
        fields = fields | {"resources": CPUS, "scaling": None, "stop": {}}
    if "budget" in fields["stop"]:
        fields = fields | {"resources": MEMORY, "scaling": None}
    return fields | ({"resources": {"cpu": 1}} if fields["scaling"] is not None else {})
