"""gang: trials of two ranks that train one model by torch, beside Ray Tune trials that run a TorchTrainer."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks import contenders
from benchmarks.contenders import make_clock, scratch, use_up_idle_workers
from benchmarks.measure import Contender, Json, Sample, compare, ratio, target
from benchmarks.processes import Watch

RANKS = 2
STEPS = 20
TIME_BUDGET_S = 900.0
Report = Callable[[dict[str, float]], None]
_counter = itertools.count()


def run(rounds: int, *, trials: int = 8, tune_trials: int | None = None, epochs: int = 5) -> Json:
    """`trials` of two ranks, one trial at a time on two CPUs; each epoch is reported, nothing is stored.

    Ray Tune runs `tune_trials` (default: as many): then compare what a trial costs, as the targets do.
    """
    _import_all()
    shown, samples = compare([own(trials, epochs), tune(tune_trials or trials, epochs)], rounds, "trial")
    return {
        "what": f"{trials} trials of {RANKS} torch ranks (gloo), {epochs} epochs of {STEPS} steps, 2 CPUs",
        "note": (
            "memory is the largest sum of PSS over this process and all that came of it, Ray's own included;"
            " helpers are processes that came up in the round, besides one for each rank that trained"
        ),
        **shown,
        "targets": targets(samples),
    }


def targets(samples: Mapping[str, Sequence[Sample]]) -> list[Json]:
    """Wall time, memory and helper processes."""
    ours, theirs = samples["raysweep"], samples["tune_train"]
    wall = 1 / ratio(ours, theirs, "wall")
    memory = _median(ours, "memory_mb") / _median(theirs, "memory_mb")
    return [
        target("wall time, of Ray Tune's with TorchTrainer", wall, at_most=0.25),
        target("memory of all processes, of Ray Tune's with TorchTrainer", memory, at_most=0.6),
        target("helper processes per trial", _median(ours, "helpers_per_trial"), at_most=0.0),
    ]


def own(trials: int, epochs: int) -> Contender:
    """raysweep: a gang a trial."""
    space = {"lr": {"loguniform": [0.001, 0.3]}, "epochs": epochs}
    scaling = {"num_workers": RANKS, "backend": "torch"}

    def run() -> Sample:
        with scratch() as folder:
            watch, noted = Watch(), str(folder / "ranks")
            given = {**space, "ranks": noted}
            trainable = "benchmarks.gang:train_in_raysweep"
            sample = contenders.raysweep(trainable, given, trials, beside=watch, scaling=scaling).run()
            return _measured(sample, watch, noted)

    settings = f"run_sweep, scaling={scaling}, journal on the local disk"
    return Contender(name="raysweep", settings=settings, run=run)


def tune(trials: int, epochs: int) -> Contender:
    """Ray Tune: each trial's function runs `TorchTrainer.fit`, as Ray's own guide has it."""

    def run() -> Sample:
        with scratch() as folder:
            noted, clock = str(folder / "ranks"), make_clock()
            tuner = _tuner(str(folder), {"epochs": epochs, "ranks": noted}, trials, clock)
            use_up_idle_workers()
            with Watch() as watch:
                began = time.perf_counter()
                results = tuner.fit()
                wall_s = time.perf_counter() - began
            if results.num_errors or clock.ended != trials:
                raise RuntimeError(f"Ray Tune: {results.num_errors} errors, {clock.ended} trials ended")
            sample = Sample(units=trials, wall_s=wall_s, warm_s=clock.last_end - clock.first_start)
            return _measured(sample, watch, noted)

    settings = (
        f"Tuner.fit of a function that runs TorchTrainer.fit, ScalingConfig(num_workers={RANKS}), RunConfig("
        "callbacks=[TuneReportCallback()]); trials of 0 CPUs, max_concurrent_trials=1, as two CPUs are one"
        " trial's ranks; all else as it comes"
    )
    return Contender(name="tune_train", settings=settings, run=run)


def _tuner(folder: str, fixed: Json, trials: int, clock: Any) -> Any:
    from ray import tune

    return tune.Tuner(
        # A trial that took one of two CPUs would leave its ranks waiting for ever; Ray has no empty bundles.
        tune.with_resources(fit_in_tune, {"cpu": 0, "memory": 1}),
        param_space={"lr": tune.loguniform(0.001, 0.3), **fixed, "folder": folder},
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=trials,
            max_concurrent_trials=1,
            time_budget_s=TIME_BUDGET_S,
        ),
        run_config=tune.RunConfig(storage_path=folder, verbose=0, callbacks=[clock]),
    )


def train_in_raysweep(config: dict[str, Any]) -> None:
    """The trainable: each rank calls it, in a process group that stands."""
    import raysweep as rs

    _train(config, rs.report)


def fit_in_tune(config: dict[str, Any]) -> None:
    """The driver of a training run: what its first rank reports is the trial's."""
    import ray.train
    from ray.train.torch import TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    callbacks: list[Any] = [TuneReportCallback()]  # type: ignore[no-untyped-call]
    TorchTrainer(
        train_in_ray,
        train_loop_config=config,
        scaling_config=ray.train.ScalingConfig(num_workers=RANKS),
        run_config=ray.train.RunConfig(
            name=f"gang-{os.getpid()}-{next(_counter)}",
            storage_path=config["folder"],
            callbacks=callbacks,
        ),
    ).fit()


def train_in_ray(config: dict[str, Any]) -> None:
    """The loop of Ray Train: the same work."""
    import ray.train

    _train(config, ray.train.report)


def _train(config: dict[str, Any], report: Report) -> None:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    _note_rank(config["ranks"])
    torch.manual_seed(torch.distributed.get_rank())
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for _ in range(config["epochs"]):
        for _ in range(STEPS):
            x = torch.randn(64, 16)
            loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        report({"loss": loss.item()})


def _note_rank(file: str) -> None:
    """One line in one write: which process is a rank, not a helper."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, b"%d\n" % os.getpid())
    os.close(descriptor)


def _measured(sample: Sample, watch: Watch, noted: str) -> Sample:
    with open(noted) as lines:
        ranks = {int(line) for line in lines}
    helpers = len(watch.started - ranks)
    extra = {
        "memory_mb": watch.most_bytes / 1e6,
        "memory_over_idle_mb": (watch.most_bytes - watch.idle_bytes) / 1e6,
        "processes_at_once": float(watch.most_processes),
        "processes_started": float(len(watch.started | ranks)),
        "helpers_per_trial": helpers / sample.units,
    }
    return Sample(units=sample.units, wall_s=sample.wall_s, warm_s=sample.warm_s, extra=extra)


def _median(samples: Sequence[Sample], name: str) -> float:
    return median(sample.extra[name] for sample in samples)


def _import_all() -> None:
    """What any contender has imported into this process stays: so all have all of it from the start."""
    import ray.train.torch
    import ray.tune.integration.ray_train  # noqa: F401  the same
