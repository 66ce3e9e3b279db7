"""Hypothesis strategies for valid specs in plain JSON."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

WORDS = st.text(alphabet="abcdefghijk_XYZ0123456789", min_size=1, max_size=8).filter(
    lambda word: not word[0].isdigit()
)
TEXT = st.text(max_size=12)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9)
CONSTANTS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | NUMBERS | TEXT


def _pair(numbers: st.SearchStrategy[Any], *, apart: bool = False) -> st.SearchStrategy[list[Any]]:
    return st.lists(numbers, min_size=2, max_size=2, unique=apart).map(sorted)


@st.composite
def stepped(draw: st.DrawFn, word: str, q: Any, least: int) -> dict[str, Any]:
    """A quantised float domain whose bounds are multiples of q."""
    step = draw(q)
    first = draw(st.integers(least, 50))
    return {word: [first * step, (first + draw(st.integers(1, 50))) * step, step]}


WHOLE = st.integers(-1000, 1000)
STEPS = st.sampled_from([0.1, 0.25, 0.5, 1, 2.5, 1e-3])
DOMAINS = st.one_of(
    _pair(NUMBERS).map(lambda b: {"uniform": b}),
    _pair(st.floats(1e-8, 1e8)).map(lambda b: {"loguniform": b}),
    stepped("quniform", STEPS, -50),
    stepped("qloguniform", STEPS, 1),
    st.tuples(NUMBERS, st.floats(1e-6, 1e6)).map(lambda b: {"randn": list(b)}),
    st.tuples(NUMBERS, st.floats(1e-6, 1e6), STEPS).map(lambda b: {"qrandn": list(b)}),
    _pair(WHOLE, apart=True).map(lambda b: {"randint": b}),
    _pair(st.integers(1, 1000), apart=True).map(lambda b: {"lograndint": b}),
    stepped("qrandint", st.integers(1, 9), -50),
    stepped("qlograndint", st.integers(1, 9), 1),
    st.lists(CONSTANTS, min_size=1, max_size=4).map(lambda v: {"choice": v}),
    st.lists(CONSTANTS, min_size=1, max_size=4).map(lambda v: {"grid_search": v}),
    CONSTANTS.map(lambda v: {"const": v}),
)
NAMES = WORDS.filter(lambda word: word not in {"choice", "const", "randn", "uniform"})


def _without_grids(node: Any) -> Any:
    """In a branch that is drawn there may be no grid."""
    if isinstance(node, dict):
        return {"choice" if key == "grid_search" else key: _without_grids(item) for key, item in node.items()}
    return [_without_grids(item) for item in node] if isinstance(node, list) else node


def _branches(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    parts = st.dictionaries(NAMES, inner, min_size=1, max_size=3)
    return parts.map(lambda p: {"choice": _without_grids(p)}) | parts.map(lambda p: {"grid_search": p})


NODES = st.recursive(
    DOMAINS | CONSTANTS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(NAMES, inner, min_size=2, max_size=3),
        _branches(inner),
    ),
    max_leaves=6,
)
SPACES = st.dictionaries(NAMES, NODES, min_size=1, max_size=4)
AMOUNTS = st.sampled_from([0, 0.5, 1, 2, 4.0])


def _resources() -> st.SearchStrategy[dict[str, Any]]:
    single = st.fixed_dictionaries(
        {},
        optional={
            "cpu": st.sampled_from([0.5, 1, 2]),
            "gpu": AMOUNTS,
            "memory": st.integers(1, 2**40),
            "custom": st.dictionaries(
                WORDS.filter(lambda w: w.lower() not in ("cpu", "gpu")), AMOUNTS, max_size=2
            ),
            "label_selector": st.dictionaries(WORDS, TEXT, max_size=2),
        },
    )
    bundle = st.fixed_dictionaries({"CPU": st.sampled_from([1, 2.0])}, optional={"gpu": AMOUNTS})
    several = st.fixed_dictionaries(
        {"bundles": st.lists(bundle, min_size=1, max_size=3)},
        optional={"strategy": st.sampled_from(["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"])},
    )
    return single | several


ASHA = st.fixed_dictionaries(
    {"max_t": st.integers(5, 1000)},
    optional={
        "grace_period": st.integers(1, 5),
        "reduction_factor": st.sampled_from([1.5, 2, 3.0]),
        "brackets": st.integers(1, 3),
        "time_attr": st.sampled_from(["training_iteration", "step"]),
    },
)
PATHS = st.sampled_from(["m:Mine", "pkg.sub.mod:Outer.Mine", "päckchen:Ω"])
OPTIONS = st.dictionaries(TEXT | st.sampled_from(["model_dump", "replace", "is_adaptive", "kind"]), CONSTANTS)
PLUGINS = st.one_of(
    PATHS,
    st.dictionaries(PATHS, OPTIONS | st.none(), min_size=1, max_size=1),
    st.fixed_dictionaries({"kind": PATHS}, optional={"options": OPTIONS | st.none()}),
)
SCHEDULERS = st.one_of(
    PLUGINS,
    st.sampled_from(["fifo", "asha", {"fifo": {}}, {}]),
    ASHA.map(lambda options: {"asha": options}),
    ASHA.map(lambda options: {"kind": "asha", "options": options}),
)
SEARCHES = PLUGINS | st.sampled_from(
    ["random", "tpe", {"tpe": {"multivariate": True, "n_startup_trials": 3}}, {"random": None}]
)
STOPS = st.fixed_dictionaries(
    {},
    optional={
        "deadline": st.datetimes(timezones=st.timezones()).map(lambda moment: moment.isoformat())
        | st.just("2026-11-21T06:00:00Z"),
        "time_budget_s": st.none() | st.floats(0.1, 1e6) | st.integers(1, 9),
        "target": st.none() | NUMBERS,
        "trial": st.dictionaries(WORDS, NUMBERS, max_size=2),
        "trial_time_s": st.floats(0.1, 1e6),
        "trial_plateau": st.none() | st.fixed_dictionaries({}, optional={"num_results": st.integers(2, 9)}),
        "trial_patience": st.none() | st.fixed_dictionaries({}, optional={"reports": st.integers(1, 9)}),
        "trial_wilcoxon": st.none()
        | st.fixed_dictionaries({}, optional={"n_startup_steps": st.integers(0, 9)}),
        "trial_if": st.none() | st.just("toys.module:is_done"),
        "grace_s": st.floats(0, 100),
    },
)
FAILURES = st.fixed_dictionaries(
    {},
    optional={
        "max_failures": st.integers(0, 9),
        "max_failed_fraction": st.none() | st.floats(0, 1),
        "backoff_max_s": st.floats(1, 100),
        "non_finite": st.sampled_from(["fail", "ignore"]),
    },
)
SPECS = st.fixed_dictionaries(
    {
        "name": TEXT.filter(str.isprintable).map(lambda rest: f"n{rest}"),
        "trainable": st.sampled_from(["pkg.mod:fn", "pkg.mod.fn", "m:Class.method", "<python> f#0123456789"]),
        "param_space": SPACES,
        "metric": st.text(min_size=1, max_size=8),
        "mode": st.sampled_from(["min", "max"]),
    },
    optional={
        "num_samples": st.integers(1, 1000),  # null needs a limit: tests/unit/search/test_open_ended.py
        "seed": st.none() | st.integers(0, 2**63 - 1),
        "resources": _resources(),
        "isolation": st.sampled_from([None, "worker", "process", "actor"]),
        "search": SEARCHES,
        "scheduler": SCHEDULERS,
        "score": st.sampled_from(["last", "best"]),
        "max_concurrent_trials": st.none() | st.integers(1, 100),
        "failure": FAILURES,
        "checkpoint": st.fixed_dictionaries(
            {}, optional={"keep_last": st.integers(1, 5), "keep_best": st.booleans()}
        ),
        "stop": STOPS,
        "storage_path": st.sampled_from(
            ["~/raysweep", "/data/x/", "s3://b/p/", "file:///tmp/x", "memory://"]
        ),
        "tags": st.dictionaries(TEXT, TEXT, max_size=2),
    },
)
