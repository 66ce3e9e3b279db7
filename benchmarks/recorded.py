"""`python -m benchmarks estimates-recorded`: estimates half-way through recorded nights, and what came true.

Short sweeps on a real Ray, of several kinds, some at a time; the steps of their trials sleep. Each journal is
read back from the storage, replayed up to half of the night's time, and the rest is estimated from that.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, Final

from benchmarks.contenders import scratch
from benchmarks.estimates import COVERED, MAX_ERROR, Night, figures, judge
from benchmarks.measure import Json, target

KINDS: Final = ("asha", "fifo", "pbt", "lognormal", "failures", "slow-node")
NIGHTS: Final = 30
AT_ONCE: Final = 4
SLOTS: Final = 4
MAX_T: Final = 9
PBT_STEPS: Final = 60
"""A population is few trials: they run for longer."""
_SCHEDULERS: Final[Mapping[str, Any]] = {
    "asha": {"asha": {"max_t": MAX_T, "grace_period": 1, "reduction_factor": 3}},
    "pbt": {"pbt": {"perturbation_interval": 5, "hyperparam_mutations": ["x"]}},
}


def train(config: dict[str, Any]) -> None:
    """Steps of `step_s`, more or less by config and step; loss falls with the steps."""
    import raysweep as rs

    first = 1
    if (stored := rs.get_checkpoint()) is not None:
        with stored as folder:
            first = int((folder / "step").read_text()) + 1
    x, slow_by, is_population = config["x"], _slow_by(config), config["kind"] == "pbt"
    own = math.exp(Random(f"{x}").gauss(0.0, config["spread"]))
    for number in range(first, (PBT_STEPS if is_population else MAX_T) + 1):
        time.sleep(config["step_s"] * own * math.exp(Random().gauss(0.0, 0.3)) * slow_by)
        if Random().random() < config["fails"]:
            raise ValueError("as planned")
        loss = {"loss": (x - 0.3) ** 2 + 1.0 / number}
        if is_population:
            with rs.new_checkpoint() as folder:
                (folder / "step").write_text(str(number))
                rs.report(loss, checkpoint=folder)
        else:
            rs.report(loss)


def _slow_by(config: Mapping[str, Any]) -> float:
    """One process of a sweep, the first that asks, is slow: as on a node of which every step takes longer."""
    if config["kind"] != "slow-node":
        return 1.0
    mark = Path(config["mark"])
    try:
        with mark.open("x", encoding="utf-8") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        pass
    return float(config["slow_by"]) if mark.read_text(encoding="utf-8") == str(os.getpid()) else 1.0


def record_night(kind: str, seed: int, folder: Path, step_s: float = 0.4) -> Night:
    """Run one sweep and read its journal back; Ray is connected."""
    from raysweep import run_sweep
    from raysweep.core import decode
    from raysweep.runs.folder import SweepFolder
    from raysweep.schedulers import load_scheduler
    from raysweep.specs import SweepSpec
    from raysweep.storage.objects.opening import open_store

    random = Random(f"{kind}/{seed}")
    spec = SweepSpec.model_validate(
        {
            "name": f"recorded-{kind}-{seed}",
            "trainable": "benchmarks.recorded:train",
            "param_space": {
                "x": {"uniform": [0, 1]},
                "kind": kind,
                "spread": random.uniform(0.5, 0.9) if kind == "lognormal" else random.uniform(0.1, 0.5),
                "step_s": step_s * random.uniform(0.6, 1.4),
                "fails": random.uniform(0.01, 0.03) if kind == "failures" else 0.0,
                "slow_by": random.uniform(1.8, 3.5),
                "mark": str(folder / f"{kind}-{seed}.slow"),
            },
            "metric": "loss",
            "mode": "min",
            "num_samples": SLOTS if kind == "pbt" else random.randrange(20, 45),
            "max_concurrent_trials": SLOTS,
            "scheduler": _SCHEDULERS.get(kind, "fifo"),
            "search": "random",
            "failure": {"max_failures": 2},
            "stop": {"trial": {"training_iteration": PBT_STEPS}} if kind == "pbt" else {},
            "seed": seed,
            "storage_path": str(folder),
        }
    )
    outcome = run_sweep(spec)
    store = open_store(str(folder))
    found = SweepFolder(store, outcome.sweep_id)
    record = found.read_spec()
    assert record is not None
    stored = SweepSpec.from_any(dict(record.spec)).replace(seed=record.seed)
    load_scheduler(stored)
    journal = [decode(line) for line in found.journal().read()]
    return Night(kind=kind, seed=seed, spec=stored, journal=journal, total=spec.num_samples or 0)


def run(rounds: int, nights: int = NIGHTS, step_s: float = 0.4) -> Json:
    """Record so many nights and judge the estimates half-way; `rounds` is not used, as nothing is timed."""
    import ray

    ray.init(address="local", num_cpus=AT_ONCE * SLOTS, include_dashboard=False, log_to_driver=False)
    try:
        with scratch() as folder, ThreadPoolExecutor(AT_ONCE) as pool:
            asked = [(KINDS[number % len(KINDS)], number // len(KINDS)) for number in range(nights)]
            found = list(pool.map(lambda each: record_night(*each, folder, step_s), asked))
    finally:
        ray.shutdown()
    shown = figures([judge(night) for night in found])
    lengths = sorted(night.end_at - night.journal[0].at for night in found)
    covered, error = shown["covered"], shown["median_error_of_rest"]
    targets = [
        target("at least 70 % of the ends in their 80 % interval", covered, at_least=COVERED[0]),
        target("at most 90 % of the ends in their 80 % interval", covered, at_most=COVERED[1]),
    ]
    if error is not None:
        targets.append(target("median error of the time left", error, at_most=MAX_ERROR))
    return {
        "what": f"{len(found)} real sweeps, {AT_ONCE} at a time, {SLOTS} slots each",
        "seconds": [round(lengths[0], 1), round(lengths[-1], 1)],
        "half_way": shown,
        "targets": targets,
    }
