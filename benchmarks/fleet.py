"""fleet: many slots and very many trials in virtual time: what a trial costs the controller's own code.

Core, fleet, link machine and journal are the real ones, on model nodes; one process plays the controller
and all of its workers. Trials of FIFO report once, those of ASHA up to nine times, those of PBT in every
interval, with a checkpoint each. Each size runs in a process of its own, so that its peak of memory is its
own.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from time import perf_counter, process_time
from typing import Any, Final

from benchmarks.measure import Json, significant, target

SLOTS: Final = 1_000
TRIALS: Final = 100_000
POPULATION: Final = 1_000
INTERVALS: Final = 20
MIB: Final = 1 << 20
SCHEDULERS: Final[Mapping[str, Any]] = {
    "fifo": "fifo",
    "asha": {"asha": {"max_t": 9, "grace_period": 1, "reduction_factor": 3}},
    "pbt": {"pbt": {"perturbation_interval": 1, "hyperparam_mutations": ["lr"]}},
}
"""PBT's population reports INTERVALS times: as many reports as it has generations of trials."""


def run(
    rounds: int,
    *,
    slots: int = SLOTS,
    trials: Mapping[str, int] | None = None,
) -> Json:
    """One run of each scheduler, whatever `rounds` is. `trials`: how many, by scheduler; one that is not
    named is left out."""
    sizes = trials or {"fifo": TRIALS, "asha": TRIALS, "pbt": POPULATION}
    runs = {f"{name}, {count}": _in_a_process(name, slots, count) for name, count in sizes.items()}
    return {
        "what": f"simulated sweeps on {slots} slots",
        "load": round(os.getloadavg()[0], 1),
        "runs": runs,
        "targets": [
            target(
                f"{name}: part of a processor at 5,000 reports/s, workers' side included",
                figure["us_per_report"] * 5_000 / 1e6,
                at_most=0.5,
            )
            for name, figure in runs.items()
        ],
    }


def measure(scheduler: str, slots: int, trials: int) -> Json:
    """One simulated sweep in this process."""
    from raysweep.simulate import simulate

    spec, curve = _spec(scheduler, trials), _CURVES[scheduler]
    began, used = perf_counter(), process_time()
    simulated = simulate(spec, curve, slots=slots, step_s=_pace, save_every=1 if scheduler == "pbt" else 0)
    cpu_s = process_time() - used
    reports = sum(moment.what == "reported" for moment in simulated.timeline)
    assert len(simulated.outcome) == trials, len(simulated.outcome)
    return {
        "slots": slots,
        "trials": trials,
        "reports": reports,
        "virtual_h": significant(simulated.duration_s / 3600),
        "wall_s": significant(perf_counter() - began),
        "cpu_s": significant(cpu_s),
        "trials_per_cpu_s": round(trials / cpu_s),
        "us_per_report": significant(cpu_s / reports * 1e6),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB),
        "appends": simulated.appends,
    }


def _in_a_process(scheduler: str, slots: int, trials: int) -> Json:
    command = [sys.executable, "-m", "benchmarks.fleet", scheduler, str(slots), str(trials)]
    found: Json = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


def _pace(config: Mapping[str, Any], iteration: int) -> float:
    """20 to 40 virtual seconds from report to report: trials do not end all at once."""
    return 20.0 + 20.0 * (hash(config["lr"]) % 1009) / 1009


def _curve(reports: int) -> Any:
    def curve(config: Mapping[str, Any], iteration: int) -> dict[str, float] | None:
        return {"loss": config["lr"] + 1 / iteration} if iteration <= reports else None

    return curve


_CURVES: Final = {"fifo": _curve(1), "asha": _curve(9), "pbt": _curve(INTERVALS)}


def _spec(scheduler: str, trials: int) -> Json:
    return {
        "name": "fleet",
        "trainable": "benchmarks.fleet:run",
        "param_space": {"lr": {"loguniform": [1e-5, 1e-1]}},
        "metric": "loss",
        "mode": "min",
        "search": "random",
        "num_samples": trials,
        "scheduler": SCHEDULERS[scheduler],
    }


if __name__ == "__main__":
    _scheduler, _slots, _trials = sys.argv[1:]
    print(json.dumps(measure(_scheduler, int(_slots), int(_trials))))
