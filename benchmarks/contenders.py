"""raysweep, Ray Tune and a bare ActorPool, each as a function that does the work once and times it.

All run on the Ray that this process is connected to.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from benchmarks.measure import Contender, Sample
from benchmarks.trainables import noop

Space = Mapping[str, Any]
Trainable = Callable[[dict[str, Any]], Any]
SLOTS = 2
_counter = itertools.count()


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder on the local disk that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="raysweep-benchmark-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def use_up_idle_workers() -> None:
    """Leave no warm worker process behind: Ray starts two ahead, once, which only the first contender would
    get."""
    import ray

    actor_class: Any = ray.remote(num_cpus=1)(_Caller)
    actors = [actor_class.remote(noop) for _ in range(SLOTS)]
    # Ray has been seen to lose a CPU when Ray Tune's trials end: better an error than no end.
    ray.get([actor.call.remote({"x": 0.0}) for actor in actors], timeout=120)
    for actor in actors:
        ray.kill(actor)


def raysweep(
    trainable: str,
    space: Space,
    trials: int,
    *,
    units: int | None = None,
    beside: AbstractContextManager[Any] | None = None,
    **fields: Any,
) -> Contender:
    """A sweep with the default settings but for `fields`; `warm` is from the first trial's start to the last
    one's end, by the journal. `beside` is open while it runs: for one round."""

    def run() -> Sample:
        import raysweep as rs

        use_up_idle_workers()
        with scratch() as folder:
            spec = rs.SweepSpec(
                name=f"benchmark-{next(_counter)}",
                trainable=trainable,
                param_space=dict(space),
                num_samples=trials,
                metric="loss",
                mode="min",
                storage_path=str(folder),
                **{"search": "random"} | fields,
            )
            with beside or nullcontext(), loop_time() as loop_s:
                began, used_s = time.perf_counter(), time.process_time()
                outcome = rs.run_sweep(spec)
                wall_s, used_s = time.perf_counter() - began, time.process_time() - used_s
        done = [trial for trial in outcome.trials if trial.state == "completed"]
        expected = units or trials
        got = len(done) if units is None else sum(trial.reports for trial in done)
        if got != expected:
            raise RuntimeError(f"raysweep: {got} of {expected} done: {outcome.status}, {outcome.why}")
        attempts = [attempt for trial in done for attempt in trial.attempts]
        first = min(attempt.started_at for attempt in attempts)
        last = max(attempt.ended_at or 0.0 for attempt in attempts)
        extra = {"controller_cpu_ms": used_s / expected * 1e3, "loop_cpu_us": sum(loop_s) / expected * 1e6}
        return Sample(units=expected, wall_s=wall_s, warm_s=last - first, extra=extra)

    given = "".join(f", {name}={value!r}" for name, value in fields.items())
    return Contender(name="raysweep", settings=f"run_sweep, journal on the local disk{given}", run=run)


@contextmanager
def loop_time() -> Iterator[list[float]]:
    """By controller, the seconds of processor time of the thread that its event loop runs on."""
    from raysweep.cluster.controller import Controller

    found: list[float] = []
    run = Controller._run

    async def timed(controller: Controller) -> None:
        began = time.thread_time()
        try:
            await run(controller)
        finally:
            found.append(time.thread_time() - began)

    Controller._run = timed  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Controller._run = run  # type: ignore[method-assign]


def tune(
    name: str,
    trainable: Trainable,
    space: Space,
    trials: int,
    *,
    reuse_actors: bool,
    units: int | None = None,
    at_once: int | None = None,
) -> Contender:
    """`Tuner.fit` with the default settings, with up to `at_once` trials at a time (default: as many as
    fit); `warm` is from the first trial's start to the last one's end, by a callback."""

    def run() -> Sample:
        from ray import tune

        use_up_idle_workers()
        clock = make_clock()
        with scratch() as folder:
            tuner = tune.Tuner(
                trainable,
                param_space=dict(space),
                tune_config=tune.TuneConfig(
                    metric="loss",
                    mode="min",
                    num_samples=trials,
                    reuse_actors=reuse_actors,
                    max_concurrent_trials=at_once,
                ),
                run_config=tune.RunConfig(storage_path=str(folder), verbose=0, callbacks=[clock]),
            )
            began = time.perf_counter()
            results = tuner.fit()
            wall_s = time.perf_counter() - began
        if results.num_errors or clock.ended != len(results):
            raise RuntimeError(f"Ray Tune: {results.num_errors} errors, {clock.ended} trials ended")
        warm_s = clock.last_end - clock.first_start
        return Sample(units=units or len(results), wall_s=wall_s, warm_s=warm_s)

    settings = (
        f"Tuner.fit, reuse_actors={reuse_actors}, storage on the local disk, RunConfig(verbose=0),"
        " RAY_AIR_NEW_OUTPUT=0; all else as it comes (with its CSV, JSON and TensorBoard loggers)"
    )
    return Contender(name=name, settings=settings, run=run)


def stand_in(trainable: Trainable, space: Space, trials: int) -> Contender:
    """The same `Tuner.fit` in `raysweep.tune.running`."""

    def run() -> Sample:
        from ray import tune

        from raysweep.tune import running

        use_up_idle_workers()
        with scratch() as folder, running(key="benchmark", storage_path=folder):
            tuner = tune.Tuner(
                trainable,
                param_space=dict(space),
                tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=trials),
                run_config=tune.RunConfig(name=f"benchmark-{next(_counter)}", storage_path=str(folder)),
            )
            began = time.perf_counter()
            results = tuner.fit()
            wall_s = time.perf_counter() - began
        if results.num_errors or len(results) != trials:
            raise RuntimeError(f"stand-in: {results.num_errors} errors, {len(results)} trials")
        return Sample(units=trials, wall_s=wall_s)

    return Contender(name="raysweep", settings="Tuner.fit in raysweep.tune.running", run=run)


def make_clock() -> Any:
    """A Tune callback that notes when the first trial started and when the last one ended."""
    from ray.tune import Callback

    class Clock(Callback):
        first_start = last_end = 0.0
        ended = 0

        def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            self.first_start = self.first_start or time.perf_counter()

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            self.last_end = time.perf_counter()
            self.ended += 1

    return Clock()


def actor_pool(function: Trainable, configs: Callable[[], list[dict[str, Any]]]) -> Contender:
    """`ray.util.ActorPool` with an actor of 1 CPU a slot: no journal, no results kept but in memory.

    `wall` includes the start of the actors; `warm` comes after one warm-up task each.
    """

    def run() -> Sample:
        import ray
        from ray.util import ActorPool

        use_up_idle_workers()
        work = configs()
        actor_class: Any = ray.remote(num_cpus=1)(_Caller)
        began = time.perf_counter()
        actors = [actor_class.remote(function) for _ in range(SLOTS)]
        ray.get([actor.call.remote(work[0]) for actor in actors])
        warm = time.perf_counter()
        pool = ActorPool(actors)
        done = list(pool.map_unordered(lambda actor, config: actor.call.remote(config), work))
        ended = time.perf_counter()
        for actor in actors:
            ray.kill(actor)
        if len(done) != len(work):
            raise RuntimeError(f"ActorPool: {len(done)} of {len(work)} done")
        return Sample(units=len(work), wall_s=ended - began, warm_s=ended - warm)

    settings = f"map_unordered, {SLOTS} actors of 1 CPU, nothing stored"
    return Contender(name="actor_pool", settings=settings, run=run)


class _Caller:
    def __init__(self, function: Trainable) -> None:
        self._function = function

    def call(self, config: dict[str, Any]) -> Any:
        return self._function(config)
