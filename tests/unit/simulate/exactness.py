"""Sequential sweeps whose outcome may not depend on kills at all: searches, schedulers and ways to fail."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from random import Random
from typing import Any

from raysweep.simulate import Costs, Kill, Simulated, WorkerDied, simulate
from raysweep.simulate.nodes import Node, Nodes
from raysweep.specs import SweepSpec
from tests.unit.simulate.sweeps import ASHA, LENGTH, make_spec

SEARCHES: dict[str, dict[str, Any]] = {
    "random": {"search": "random", "num_samples": 12},
    "grid": {
        "search": "grid",
        "num_samples": 1,
        "param_space": {"x": {"grid_search": [number * 7 % 12 / 11 for number in range(12)]}},
    },
    "tpe": {"search": {"tpe": {"n_startup_trials": 3, "constant_liar": False}}, "num_samples": 12},
}
# Each is asked often enough that its model, or its sequence, is past its beginning.
MORE_SEARCHES: dict[str, dict[str, Any]] = {
    "joint": {"search": {"tpe": {"n_startup_trials": 3}}, "num_samples": 12},
    "gp": {"search": {"gp": {"n_startup_trials": 6}}, "num_samples": 12},
    "cma_es": {"search": {"cma_es": {"population_size": 4}}, "num_samples": 14},
    "auto": {"search": {"auto": {"switch_after": 10}}, "num_samples": 14},
    # Long enough that its Gaussian process is relieved.
    "open": {"search": {}, "num_samples": 22},
    "costs": {"search": {"gp": {"n_startup_trials": 6, "cost_attr": "size"}}, "num_samples": 14},
    # With the least loss out of bounds.
    "bounded": {
        "search": {"tpe": {"n_startup_trials": 3}},
        "constraints": ["size >= 0.4 or epoch > 99"],
        "num_samples": 12,
    },
    "nsga2": {
        "search": {"nsga2": {"population_size": 4}},
        "constraints": ["size >= 0.4"],
        "num_samples": 14,
    },
    "points": {
        "search": {"tpe": {"n_startup_trials": 3}},
        "points": [{"x": 0.25}, {"x": 0.75}],
        "num_samples": 12,
    },
}
# Some take twice the CPUs, the licences or the workers of the others, and so another slot.
_TWICE = "1 + x * 9973 // 1 % 2"
SIZED: dict[str, dict[str, Any]] = {
    "sized": {**SEARCHES["tpe"], "resources": {"cpu": 1, "by_config": {"cpu": _TWICE}}},
    "sized2": {
        **SEARCHES["random"],
        "resources": {"custom": {"licence": 1}, "by_config": {"custom": {"licence": _TWICE}}},
    },
    "sized3": {
        **SEARCHES["random"],
        "scaling": {"by_config": {"num_workers": _TWICE, "resources": {"cpu": _TWICE}}},
    },
}
# With several metrics, which one scheduler compares by.
SEVERAL: dict[str, dict[str, Any]] = {
    name: {"search": search, "metric": ["loss", "size"], "mode": ["min", "max"], "num_samples": 14}
    for name, search in {
        "front": {"tpe": {"n_startup_trials": 3}},
        "front2": {"nsga2": {"population_size": 4}},
        "front3": {"nsga3": {"population_size": 4}},
        "scattered": "random",
    }.items()
}
# These give slots and progress away: `halving` pauses and resumes, `copycat` exploits those that have ended.
HALVING: dict[str, Any] = {"tests.policies:Halving": {"rungs": [2, 5]}}
COPYCAT: dict[str, Any] = {"tests.policies:Copycat": {"at": 3, "of_ended": True}}
SCHEDULERS: dict[str, dict[str, Any]] = {
    "fifo": {},
    "asha": {"scheduler": ASHA},
    "halving": {"scheduler": HALVING},
    "copycat": {"scheduler": COPYCAT},
}
# Those that the engine names, each where it has something to decide about 12 trials of 9 reports.
NAMED: dict[str, dict[str, Any]] = {
    "median": {"scheduler": {"median_stopping": {"grace_period": 2}}},
    "soft_median": {"scheduler": {"median_stopping": {"grace_period": 2, "hard_stop": False}}},
    "hyperband": {"scheduler": {"hyperband": {"max_t": 9, "reduction_factor": 2}}},
    "promotion": {"scheduler": {"asha": ASHA["asha"] | {"type": "promotion"}}},
    "delayed": {"scheduler": {"asha": ASHA["asha"] | {"type": "promotion", "delayed": True}}},
    "pasha": {"scheduler": {"pasha": {"max_t": 9, "reduction_factor": 2}}},
    "pbt": {"scheduler": {"pbt": {"perturbation_interval": 2, "synch": True, "max_t": 9}}},
    "pb2": {"scheduler": {"pb2": {"perturbation_interval": 2, "synch": True, "max_t": 9}}},
}
# Stops by another metric than the sweep's, or by one of several.
COMPARED: dict[str, dict[str, Any]] = {
    "compared": {"scheduler": {"asha": ASHA["asha"] | {"metric": "size", "mode": "max"}}},
    "compared2": {
        "scheduler": {"hyperband": {"max_t": 9, "reduction_factor": 2, "metric": "size", "mode": "max"}}
    },
}
# The share of a trial grows as others end: the last one has both CPUs.
CHANGING: dict[str, dict[str, Any]] = {
    "changing": {
        "scheduler": {
            "resource_changing": {
                "param": "threads",
                "total": 2,
                "interval": 2,
                "base": {"asha": {"max_t": 9, "reduction_factor": 2}},
            }
        },
        "param_space": {"x": {"uniform": [0, 1]}, "threads": 1},
        "resources": {"cpu": 1, "by_config": {"cpu": "threads"}},
    }
}
MOASHA: dict[str, dict[str, Any]] = {"moasha": {"scheduler": {"moasha": {"max_t": 9, "reduction_factor": 2}}}}
# The ends of attempts that each brings about, and those that it may bring about besides.
ENDS: dict[str, tuple[set[str], set[str]]] = {
    "fifo": (set(), set()),
    "asha": ({"stopped"}, set()),
    "halving": ({"paused"}, set()),
    "copycat": ({"exploited"}, set()),
    "median": ({"stopped"}, set()),
    "soft_median": ({"paused"}, set()),
    "hyperband": ({"paused"}, {"stopped"}),
    "promotion": ({"paused"}, set()),
    "delayed": ({"paused"}, set()),
    "pasha": ({"paused"}, set()),
    "pbt": ({"paused"}, set()),
    "pb2": ({"paused"}, set()),
    "moasha": ({"stopped"}, set()),
    "changing": ({"stopped", "exploited"}, set()),
    "compared": ({"stopped"}, set()),
    "compared2": ({"paused"}, {"stopped"}),
}
BACKOFF_S = 20.0
FAULTS = ("none", "flaky", "deterministic")


class Curve:
    """A function of the config alone: how it fails, and at which step, follows from its `x`.

    Where it is `flaky`, some configs fail once; where it is `deterministic`, some do each time.
    """

    def __init__(self, faults: str) -> None:
        self._faults = faults
        self._failed: set[float] = set()

    def __call__(self, config: Mapping[str, Any], iteration: int) -> Mapping[str, Any] | None:
        x = config["x"]
        fails_at = {0: 1, 1: 3}.get(int(x * 9973) % 3)
        if self._faults == "flaky" and iteration == fails_at and x not in self._failed:
            self._failed.add(x)
            raise ValueError("once")
        kind = int(x * 9973) % 9 if self._faults == "deterministic" else 9
        if kind == 0 and iteration == 4:
            raise ValueError(f"always, for {x}")
        if kind == 1:
            raise TypeError(f"hopeless, for {x}")
        if kind == 2 and iteration == 3:
            raise WorkerDied("killed by signal 9")
        if kind == 3 and iteration == 2:
            return {"loss": "NaN", "epoch": iteration}
        if iteration > LENGTH or (kind == 4 and iteration > 1):
            return None
        loss = round((x - 0.3) ** 2 + x / iteration, 6)
        return {"loss": loss, "epoch": iteration, "size": round(x, 6)}


class Exact:
    """One sweep, one trial at a time, to be run with and without kills."""

    def __init__(self, name: str, faults: str, spec: SweepSpec, **options: Any) -> None:
        self.name = name
        self.spec = spec
        self._faults = faults
        self._options = options

    def run(self, *kills: Kill) -> Simulated:
        nodes = (
            Nodes(all=[Node(name="wide", cpus=2)])
            if "sized" in self.name or "changing" in self.name
            else None
        )
        curve = Curve(self._faults)
        return simulate(self.spec, curve, kills=kills, is_checked=True, nodes=nodes, **self._options)

    def limited(self, **stop: Any) -> Exact:
        """The same sweep, ended by a limit and then asked for again without it."""
        spec = SweepSpec.model_validate(self.spec.to_dict() | {"stop": stop})
        return Exact(self.name, self._faults, spec, **self._options | {"reopened": [self.spec]})


def kills_of(simulated: Simulated) -> list[Kill]:
    """Before and after every write."""
    numbers = range(1, len(simulated.writes) + 1)
    return [Kill(write=number, when=when) for number in numbers for when in ("before", "after")]


def _exact(search: str, scheduler: str, faults: str) -> Exact:
    failure = {"backoff_initial_s": BACKOFF_S, "max_failures": 2, "max_worker_deaths": 2}
    fields = (SEARCHES | MORE_SEARCHES | SIZED | SEVERAL | BOHB)[search] | (
        SCHEDULERS | NAMED | MOASHA | CHANGING | COMPARED
    )[scheduler]
    spec = make_spec(max_concurrent_trials=1, failure=failure, **fields)
    return Exact(f"{search}-{scheduler}-{faults}", faults, spec, save_every=2)


# Learns from rungs alone.
BOHB: dict[str, dict[str, Any]] = {"bohb": {"search": "bohb", "num_samples": 30}}
_ALL = [
    *product(BOHB, ("hyperband",), FAULTS),
    *product(SEARCHES, SCHEDULERS, FAULTS),
    *product(MORE_SEARCHES, ("fifo", "asha"), FAULTS),
    *product(("random", "tpe"), NAMED, FAULTS),
    *product(SEVERAL, ("fifo", "moasha"), FAULTS[1:]),
    *product(("random", "tpe"), CHANGING, FAULTS),
    *product(("random", "front2"), COMPARED, FAULTS[1:]),
    *product(("sized",), ("asha", "halving", "pbt"), FAULTS),
    *product(("sized2",), ("fifo", "asha", "copycat", "hyperband"), FAULTS),
    *product(("sized3",), ("asha",), FAULTS[1:]),
]
EXACT = {exact.name: exact for exact in (_exact(*each) for each in _ALL)}


def rarely_raises(config: dict[str, Any]) -> float:
    """A `sample_from` that has nothing for some configs."""
    if int(config["x"] * 9973) % 7 == 0:
        raise ZeroDivisionError("nothing for this one")
    return float(config["x"]) / 2


def draw_exact(seed: int) -> Exact:
    """Any sequential sweep: everything that may look at the order of the trials, drawn."""
    random = Random(seed)
    draw = random.choice
    search, faults = draw(list(SEARCHES)), draw([*FAULTS, *FAULTS[1:]])
    plain: dict[str, Any] = {"max_concurrent_trials": 1, "seed": seed, **SEARCHES[search]}
    if search == "tpe":
        options = {"n_startup_trials": 2, "constant_liar": draw([True, False])}
        plain["search"] = {"tpe": options | {"multivariate": draw([True, False])}}
    asha = ASHA["asha"] | {"brackets": draw([1, 2]), "time_attr": draw(["training_iteration", "epoch"])}
    plain["scheduler"] = draw(["fifo", {"asha": asha}, {"asha": asha}, HALVING, COPYCAT])
    if draw([True, False]):
        space = plain.get("param_space", {"x": {"uniform": [0, 1]}})
        plain["param_space"] = space | {"y": {"sample_from": rarely_raises}}
    plain["failure"] = {
        "backoff_initial_s": draw([0.1, 2.0, BACKOFF_S, 60.0]),
        # What fails once and is not retried leaves no trace if nobody has noted it.
        "max_failures": draw([1, 2] if faults == "flaky" else [0, 1, 2]),
        "max_worker_deaths": draw([0, 2]),
        "breaker_trials": draw([0, 1, 2, 3]),
        "max_failed_fraction": draw([None, None, 0.3]),
        "non_finite": draw(["fail", "ignore"]),
        "bad_node_failures": draw([0, 2, 3]),
    }
    plain["stop"] = {"target": draw([None, None, 0.04])}
    if draw([True, False, False]):
        plain["stop"]["plateau"] = {"window": 3, "min_trials": 4}
    plain["score"] = draw(["last", "best"])
    plain["checkpoint"] = {"keep_last": draw([1, 2]), "keep_best": draw([True, False])}
    options = {
        "save_every": draw([0, 1, 2, 4]),
        "wait_every": draw([0, 1, 3]),
        "step_s": draw([0.002, 0.3, 1.0]),
        "has_snapshots": draw([True, False]),
        "seed": seed,
        "costs": Costs(
            jitter=draw([0.0, 0.5]), commit_interval_s=draw([0.25, 0.01]), restart_s=draw([0.5, 5.0])
        ),
    }
    return Exact(f"drawn-{seed}", faults, make_spec(**plain), **options)
