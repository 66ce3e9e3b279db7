"""Each pair of a search and a scheduler that a spec may name, as a sweep of one trial at a time."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

from raysweep.runs.policies import load_policies
from tests.unit.simulate.exactness import (
    BACKOFF_S,
    BOHB,
    CHANGING,
    FAULTS,
    MOASHA,
    MORE_SEARCHES,
    NAMED,
    SCHEDULERS,
    SEARCHES,
    Exact,
)
from tests.unit.simulate.sweeps import make_spec

_PLACES = tuple(number * 7 % 12 / 11 for number in range(12))
# Beside what is searched exhaustively there is something that a population can explore.
_EXPLORED = {"randint": [0, 2]}
SEARCHED: dict[str, dict[str, Any]] = {
    **SEARCHES,
    **{name: MORE_SEARCHES[name] for name in ("gp", "cma_es", "auto", "open", "nsga2")},
    **BOHB,
    "grid": {
        "search": "grid",
        "num_samples": 1,
        "param_space": {"x": {"grid_search": list(_PLACES)}, "y": _EXPLORED},
    },
    "configs": {
        "search": {"configs": {"configs": [{"x": x, "y": 1, "threads": 1} for x in _PLACES]}},
        "param_space": {"x": {"choice": list(_PLACES)}, "y": _EXPLORED},
    },
    "nsga3": {"search": {"nsga3": {"population_size": 4}}, "num_samples": 14},
    # Ray Tune's interface, and its own generator that continues from ask to ask.
    "plugin": {"search": {"tests.unit.ray_searchers:Climbs": {}}, "num_samples": 12},
}
"""By the name of a search, `open` for none, and `plugin` for a class."""
SCHEDULED: dict[str, dict[str, Any]] = {
    **SCHEDULERS,
    **NAMED,
    **MOASHA,
    **CHANGING,
}
"""By short names, two for a kind where its options decide whether it stops or pauses."""
SIZED = {"metric": "size", "mode": "max"}
ONE: dict[str, Any] = {}
SEVERAL: dict[str, Any] = {"metric": ["loss", "size"], "mode": ["min", "max"]}


def _compared(fields: dict[str, Any]) -> dict[str, Any]:
    """The same scheduler, told which of several metrics it compares by, where it can be told."""
    kind, options = next(iter(fields.get("scheduler", {"fifo": {}}).items()))
    if kind == "resource_changing":
        # The last trial, which has all there is, is to live long enough to be given it.
        options = options | {"base": {"asha": options["base"]["asha"] | SIZED | {"grace_period": 3}}}
    elif kind not in ("fifo", "moasha") and ":" not in kind:
        options = options | SIZED
    return fields | {"scheduler": {kind: options}}


def pair(search: str, scheduler: str, metrics: str, faults: str) -> Exact:
    """Raises SpecError where the two may not meet."""
    is_one = metrics == "one"
    scheduled = SCHEDULED[scheduler] if is_one else _compared(SCHEDULED[scheduler])
    space = {"x": {"uniform": [0, 1]}} | SEARCHED[search].get("param_space", {})
    spec = make_spec(
        **{"max_concurrent_trials": 1, "num_samples": 12}
        | SEARCHED[search]
        | scheduled
        | (ONE if is_one else SEVERAL)
        | {"param_space": scheduled.get("param_space", {}) | space}
        | {"failure": {"backoff_initial_s": BACKOFF_S, "max_failures": 2, "max_worker_deaths": 2}}
    )
    load_policies(spec)
    return Exact(f"{search}-{scheduler}-{metrics}-{faults}", faults, spec, save_every=2)


ALL = tuple(product(SEARCHED, SCHEDULED, ("one", "several")))
_PAUSING = "halving soft_median hyperband promotion delayed pasha pbt pb2"
_EVERY = f"fifo asha copycat median changing moasha {_PAUSING}"
_REFUSED = (
    ("one", "random grid configs open plugin", "moasha"),
    ("one", "tpe gp cma_es auto nsga2", "moasha"),
    ("one", "bohb", "fifo asha halving copycat median soft_median promotion delayed pasha pbt pb2"),
    ("one", "bohb", "changing moasha"),
    ("one", "nsga3", _EVERY),
    ("several", "random grid configs open", "halving copycat"),
    ("several", "tpe auto nsga2 nsga3", "halving copycat"),
    ("several", "gp cma_es bohb plugin", _EVERY),
)
"""Metrics, searches and schedulers that a spec may not bring together, each with each."""
REFUSED = {
    (search, scheduler, metrics)
    for metrics, searches, schedulers in _REFUSED
    for search, scheduler in product(searches.split(), schedulers.split())
}
PAIRS = {"-".join(names): names for names in ALL if names not in REFUSED}
"""By name, those that are left: search, scheduler, and whether there is one metric."""


def faults_of(name: str) -> str:
    """How the sweep of a pair fails: one of three ways, spread over them."""
    return Random(name).choice(FAULTS)


def is_dear(name: str) -> bool:
    """Whether a Gaussian process is fitted for each ask, or each replaced trial."""
    search, scheduler, metrics = PAIRS[name]
    has_model = search in ("gp", "auto", "open") and metrics == "one"
    return scheduler == "pb2" or (has_model and (search, scheduler) != ("open", "pbt"))


def covering() -> set[str]:
    """Few of the pairs, mostly cheap ones, that have each search and each scheduler among them."""
    found, left = set(), {(metrics, name) for _, *names, metrics in _named() for name in names}
    for name, search, scheduler, metrics in _named():
        new = left & {(metrics, search), (metrics, scheduler)}
        if new:
            found.add(name)
            left -= new
    return found


def _named() -> list[tuple[str, str, str, str]]:
    """In an order of chance, the dear ones last."""
    names = sorted(PAIRS, key=lambda name: (is_dear(name), Random(name).random()))
    return [(name, *PAIRS[name]) for name in names]
