"""All benchmarks by name."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
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
    is_extra: bool = False
    """Runs only by its name: it takes long, or a package that is in no extra."""

    @property
    def is_there(self) -> bool:
        """Whether its module is there."""
        return importlib.util.find_spec(f"benchmarks.{self.module}") is not None

    def run(self, rounds: int, **sizes: Any) -> Json:
        """Run it here; where it needs Ray, this process is connected."""
        module = importlib.import_module(f"benchmarks.{self.module}")
        result: Json = getattr(module, self.function)(rounds, **sizes)
        return result


_ALL: Final = (
    Benchmark(name="noop", module="noop", function="run_100"),
    Benchmark(name="noop-1000", module="noop", function="run_1000"),
    Benchmark(name="noop-fresh", module="noop", function="run_fresh"),
    Benchmark(name="callbacks", module="callbacks"),
    Benchmark(name="reports", module="reports"),
    Benchmark(name="utilization", module="utilization"),
    Benchmark(name="resume", module="resume"),
    Benchmark(name="logs", module="logs"),
    Benchmark(name="logs-c", module="logs", function="run_c"),
    Benchmark(name="logs-fresh", module="logs", function="run_forked"),
    Benchmark(name="core-scale", module="core", needs_ray=False),
    Benchmark(name="checkpoint-stall", module="checkpoint_stall"),
    Benchmark(name="checkpoint-stall-1gb", module="checkpoint_stall", function="run_1gb"),
    Benchmark(name="checkpoint-stall-s3", module="checkpoint_stall", function="run_s3", needs_s3=True),
    Benchmark(name="checkpoint-throughput", module="checkpoint_throughput", needs_ray=False),
    Benchmark(
        name="checkpoint-throughput-s3", module="checkpoint_throughput", function="run_s3", needs_s3=True
    ),
    Benchmark(name="checkpoint-steps", module="checkpoint_steps"),
    Benchmark(name="chunking", module="chunking", needs_ray=False),
    Benchmark(name="asha-wall", module="schedulers", function="run_asha"),
    Benchmark(name="asha-wall-81", module="schedulers", function="run_asha_81", is_extra=True),
    Benchmark(name="asha-wall-long", module="schedulers", function="run_asha_long"),
    Benchmark(name="asha-defaults", module="schedulers", function="run_asha_defaults"),
    Benchmark(
        name="asha-defaults-long", module="schedulers", function="run_asha_defaults_long", is_extra=True
    ),
    Benchmark(name="pbt", module="schedulers", function="run_pbt"),
    Benchmark(name="pbt-exploit", module="schedulers", function="run_exploit"),
    Benchmark(name="train-runs", module="train_runs"),
    Benchmark(name="elastic", module="elastic", needs_ray=False),
    Benchmark(name="gang", module="gang"),
    Benchmark(name="search", module="search", needs_ray=False),
    Benchmark(name="search-bbob", module="bbob", needs_ray=False, is_extra=True),
    Benchmark(name="search-tables", module="tables", needs_ray=False, is_extra=True),
    Benchmark(name="search-fidelity", module="fidelity", needs_ray=False, is_extra=True),
    Benchmark(name="search-wall", module="same_quality", needs_ray=False, is_extra=True),
    Benchmark(name="search-costs", module="costs", needs_ray=False, is_extra=True),
    Benchmark(name="search-failures", module="failures", needs_ray=False, is_extra=True),
    Benchmark(name="search-simplex", module="simplexes", needs_ray=False, is_extra=True),
    Benchmark(name="search-priors", module="beliefs", needs_ray=False, is_extra=True),
    Benchmark(name="drift", module="drift", needs_ray=False),
    Benchmark(name="import", module="imports", needs_ray=False),
    Benchmark(name="report", module="report", needs_ray=False),
    Benchmark(name="estimates", module="estimates", needs_ray=False, is_extra=True),
    Benchmark(name="falsepos", module="falsepos", needs_ray=False),
)
BENCHMARKS: Final = {benchmark.name: benchmark for benchmark in _ALL if benchmark.is_there}
