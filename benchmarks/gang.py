"""gang: eight trials of two torch ranks each: as a gang, as a Ray Train run in a trial, under Ray Tune."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks import contenders
from benchmarks.measure import Contender, Json, Sample, compare, ratio, target

RANKS: Final = 2
STEPS: Final = 5
EACH: Final = {"CPU": 0.5}
SPACE: Final = {"lr": {"uniform": [0.01, 0.1]}}
LOOK_S: Final = 0.25
MIB: Final = 2**20


def as_gang(config: dict[str, Any]) -> None:
    """A rank of a gang."""
    import raysweep as rs

    _steps(config, rs.report)


def as_driver(config: dict[str, Any]) -> None:
    """The driver of a Ray Train run; the same under raysweep and under Ray Tune."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    callbacks = []
    if "tune" in config:
        from ray.tune.integration.ray_train import TuneReportCallback

        callbacks = [TuneReportCallback()]
    scaling = ScalingConfig(num_workers=RANKS, resources_per_worker=EACH)
    run_config = RunConfig(callbacks=callbacks, storage_path=config.get("tune"))
    TorchTrainer(as_worker, train_loop_config=config, scaling_config=scaling, run_config=run_config).fit()


def as_worker(config: dict[str, Any]) -> None:
    """A worker of a Ray Train run."""
    from ray import train

    _steps(config, train.report)


def _steps(config: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> None:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for _ in range(STEPS):
        x = torch.randn(64, 4)
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report({"loss": loss.item()})


def run(rounds: int, *, trials: int = 8) -> Json:
    """All three, one trial at a time: the most that each has to start for a trial shows."""
    workers = {"num_workers": RANKS, "resources_per_worker": EACH}
    own = [
        _named("raysweep", "as_gang", trials, scaling={**workers, "backend": "torch"}),
        _named("raysweep_train", "as_driver", trials, resources={"train": workers}),
    ]
    shown, samples = compare([*own, _tune(trials)], rounds, "trial")
    ours, theirs = samples["raysweep"], samples["tune_train"]
    peak = [max(sample.extra["peak_mib"] for sample in each) for each in (ours, theirs)]
    return {
        "what": f"{trials} trials of {RANKS} torch ranks, {STEPS} steps and reports each, one at a time",
        "note": "peak_mib: the most that Ray and all its workers held at once, by PSS",
        **shown,
        "targets": [
            target(
                "of the wall time of Ray Tune + TorchTrainer", 1 / ratio(ours, theirs, "wall"), at_most=0.25
            ),
            target("of its memory", peak[0] / peak[1], at_most=0.6),
        ],
    }


def _named(name: str, trainable: str, trials: int, **fields: Any) -> Contender:
    made = contenders.raysweep(
        f"benchmarks.gang:{trainable}", SPACE, trials, max_concurrent_trials=1, **fields
    )
    return _watched(replace(made, name=name))


def _tune(trials: int) -> Contender:
    def run() -> Sample:
        with contenders.scratch() as folder:
            return _tune_in(folder, trials)

    settings = (
        "Tuner.fit of a function that runs TorchTrainer.fit with TuneReportCallback, max_concurrent_trials=1;"
        " its driver has 1 CPU, as it comes"
    )
    return _watched(Contender(name="tune_train", settings=settings, run=run))


def _tune_in(folder: Path, trials: int) -> Sample:
    import time

    from ray import tune

    contenders.use_up_idle_workers()
    tuner = tune.Tuner(
        as_driver,
        param_space={"lr": tune.uniform(0.01, 0.1), "tune": str(folder)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=trials, max_concurrent_trials=1),
        run_config=tune.RunConfig(storage_path=str(folder), verbose=0),
    )
    began = time.perf_counter()
    results = tuner.fit()
    wall_s = time.perf_counter() - began
    if results.num_errors or len(results) != trials:
        raise RuntimeError(f"Ray Tune: {results.num_errors} errors, {len(results)} trials")
    return Sample(units=trials, wall_s=wall_s)


def _watched(contender: Contender) -> Contender:
    def run() -> Sample:
        peak = [0.0]
        with _watching(peak):
            sample = contender.run()
        return replace(sample, warm_s=None, extra={**sample.extra, "peak_mib": peak[0]})

    return replace(contender, run=run)


@contextmanager
def _watching(peak: list[float]) -> Iterator[None]:
    """Meanwhile `peak[0]` becomes the most, in MiB, that this process and all below it hold."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_S):
            peak[0] = max(peak[0], sum(map(_held, _family(os.getpid()))) / MIB)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _family(of: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = [of]
    for pid in found:
        found += children.get(pid, [])
    return found


def _held(pid: int) -> int:
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) * 1024
    return 0
