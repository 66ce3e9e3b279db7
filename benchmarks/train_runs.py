"""train-runs: four Ray Train runs of four workers as trials, where there is room for the workers of two.

Nobody says how many may run at once: that is what is asked.
"""

from __future__ import annotations

import time
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from benchmarks.contenders import SLOTS, scratch, use_up_idle_workers
from benchmarks.measure import Contender, Json, Sample, compare, target
from benchmarks.notes import Note, read_notes, write_note

BATCH_SIZES: Final = (16, 32, 64, 128)
WORKERS: Final = 4
# The workers of two runs fit, with a little left.
WORKER_CPUS: Final = 0.24
STEPS: Final = 10
STEP_S: Final = 0.5
# After so long Ray Tune's trials are ended: where each driver waits for another's place, they never end.
PATIENCE_S: Final = 180.0


def run(rounds: int) -> Json:
    """Wall time, how many drivers were there at once, and for how long they waited for their workers."""
    contenders = [
        Contender(
            name="raysweep", settings="run_sweep, resources={train: …}, drivers of 0 CPU", run=_in_raysweep
        ),
        Contender(name="tune", settings=f"Tuner.fit, time_budget_s={PATIENCE_S:g}", run=lambda: _in_tune({})),
        Contender(
            name="tune-0cpu",
            settings=f'tune.with_resources(…, {{"cpu": 0, "memory": 1}}), time_budget_s={PATIENCE_S:g}',
            # Ray has no empty bundles.
            run=lambda: _in_tune({"cpu": 0, "memory": 1}),
        ),
    ]
    shown, samples = compare(contenders, rounds, "trial")
    most = max(sample.extra["drivers_at_once"] for sample in samples["raysweep"])
    done = min(sample.extra["done"] for sample in samples["raysweep"])
    return {
        "what": (
            f"{len(BATCH_SIZES)} trials, each a Ray Train run of {WORKERS} workers of {WORKER_CPUS:g} CPUs,"
            f" of {STEPS} steps of {STEP_S:g} s, on {SLOTS} CPUs; no limit is set by hand"
        ),
        **shown,
        "targets": [
            target("drivers at once", most, at_most=2.0),
            target("runs that came to their end", done, at_least=float(len(BATCH_SIZES))),
        ],
    }


def fit(config: dict[str, Any]) -> None:
    """The trainable of both: a run of Ray Train that reports to whoever runs the trial."""
    from ray.train import ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    write_note(config, driver="begins", batch_size=config["batch_size"])
    scaling = ScalingConfig(num_workers=WORKERS, resources_per_worker={"CPU": WORKER_CPUS})
    DataParallelTrainer(loop, train_loop_config=config, scaling_config=scaling).fit()
    write_note(config, driver="ends", batch_size=config["batch_size"])


def fit_in_tune(config: dict[str, Any]) -> None:
    """The trainable of Ray Tune, which takes no report from such a run by itself."""
    from ray import tune

    fit(config)
    tune.report({"loss": 1.0 / config["batch_size"]})


def loop(config: dict[str, Any]) -> None:
    """What each worker does."""
    from ray import train

    rank = train.get_context().get_world_rank()
    for step in range(1, STEPS + 1):
        time.sleep(STEP_S)
        write_note(config, rank=rank, step=step, batch_size=config["batch_size"])
        train.report({"loss": 1.0 / config["batch_size"] / step})


def _in_raysweep() -> Sample:
    import raysweep as rs

    with scratch() as folder:
        use_up_idle_workers()
        spec = rs.SweepSpec(
            name="train-runs",
            trainable="benchmarks.train_runs:fit",
            param_space={"batch_size": {"grid_search": list(BATCH_SIZES)}, "notes": str(folder / "notes")},
            metric="loss",
            mode="min",
            scaling={"num_workers": WORKERS, "resources": {"cpu": WORKER_CPUS}, "driver": {}},
            storage_path=str(folder / "stored"),
        )
        began = time.time()
        rs.run_sweep(spec)
        return _sample(folder, began)


def _in_tune(resources: Json) -> Sample:
    from ray import tune

    with scratch() as folder:
        use_up_idle_workers()
        tuner = tune.Tuner(
            tune.with_resources(fit_in_tune, resources) if resources else fit_in_tune,
            param_space={"batch_size": tune.grid_search(list(BATCH_SIZES)), "notes": str(folder / "notes")},
            tune_config=tune.TuneConfig(metric="loss", mode="min", time_budget_s=PATIENCE_S),
            run_config=tune.RunConfig(storage_path=str(folder / "stored"), verbose=0),
        )
        began = time.time()
        tuner.fit()
        return _sample(folder, began)


def _sample(folder: Path, began: float) -> Sample:
    wall_s = time.time() - began
    notes = read_notes(folder / "notes", began)
    drivers = [note for note in notes if "driver" in note]
    at_once = accumulate(1 if note["driver"] == "begins" else -1 for note in drivers)
    return Sample(
        units=len(BATCH_SIZES),
        wall_s=wall_s,
        extra={
            "drivers_at_once": float(max(at_once, default=0)),
            "done": float(sum(note["driver"] == "ends" for note in drivers)),
            "drivers_waited_s": sum(_waited_s(notes, size, wall_s) for size in BATCH_SIZES),
        },
    )


def _waited_s(notes: list[Note], batch_size: int, wall_s: float) -> float:
    """From a driver's begin to the first step of its workers, less the step itself; or to the end."""
    own = [note for note in notes if note["batch_size"] == batch_size]
    begins = [note["at"] for note in own if note.get("driver") == "begins"]
    steps = [note["at"] - STEP_S for note in own if "step" in note]
    return min(steps, default=wall_s) - begins[0] if begins else 0.0
