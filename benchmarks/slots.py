"""slots: how long it takes until 200 slots of 0.01 CPU all run a trial, and what a second round costs.

A trial of the first round waits until as many processes as there are slots have begun one; those of the
second round take 0.2 s.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from benchmarks.contenders import scratch
from benchmarks.measure import Contender, Json, Sample, compare
from benchmarks.processes import Watch

SLOTS: Final = 200
CPUS: Final = 0.01
TRIAL_S: Final = 0.2
LOOK_S: Final = 0.25
PATIENCE_S: Final = 900.0
TUNE_BYTES: Final = 130 << 20
"""What a slot of Ray Tune's takes: with 24 GiB, 200 were killed for memory."""


def run(rounds: int, *, slots: int = SLOTS) -> Json:
    """raysweep, an ActorPool and, where the memory is enough for it, Ray Tune with `reuse_actors=True`.

    Each runs two trials for each slot.
    """
    has_room = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > slots * TUNE_BYTES
    peers = [_raysweep(slots), _pool(slots), *([_tune(slots)] if has_room else [])]
    shown, _ = compare(peers, rounds, "trial")
    note = (
        "wall is the whole call; all_running_s is from its start to the first trial of the last slot;"
        " memory is the sum of PSS of this process, Ray and the workers"
    )
    if not has_room:
        note += f"; Ray Tune would take more than this machine's memory, {TUNE_BYTES >> 20} MiB a slot"
    return {
        "what": f"{slots} slots of {CPUS} CPU, two trials each, the second of {TRIAL_S} s",
        "note": note,
        **shown,
    }


def meet(config: dict[str, Any]) -> dict[str, float]:
    """Wait until `config["slots"]` processes have begun a trial; one that is late takes `TRIAL_S`."""
    log, slots = Path(config["log"]), config["slots"]
    if not _append(log, slots):
        time.sleep(TRIAL_S)
        return {"loss": config["x"]}
    until = time.monotonic() + PATIENCE_S
    while len(_begun(log)) < slots:
        if time.monotonic() > until:
            raise TimeoutError(f"{len(_begun(log))} of {slots} slots run")
        time.sleep(LOOK_S)
    return {"loss": config["x"]}


def _append(log: Path, slots: int) -> bool:
    """Note that this process has begun a trial, as long as not all have."""
    if len(_begun(log)) >= slots:
        return False
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, f"{os.getpid():12d} {time.time():18.6f}\n".encode())
    os.close(file)
    return True


def _begun(log: Path) -> dict[int, float]:
    """When each process began its first trial; the file has a line of 32 bytes for each."""
    found: dict[int, float] = {}
    with suppress(FileNotFoundError):
        for line in log.read_text().splitlines():
            pid, at = line.split()
            found.setdefault(int(pid), float(at))
    return found


class _Log:
    """Where trials note their start, and what came of it."""

    def __init__(self, folder: Path, slots: int) -> None:
        self.file, self._slots = folder / "begun", slots
        self.space: dict[str, Any] = {"log": str(self.file), "slots": slots}
        self._began_at, self._began = time.time(), time.perf_counter()

    def sample(self, watch: Watch) -> Sample:
        """Of what has just ended."""
        wall_s = time.perf_counter() - self._began
        begun = _begun(self.file)
        if len(begun) != self._slots:
            raise RuntimeError(f"{len(begun)} of {self._slots} processes began a trial")
        watch.look()
        extra = {
            "all_running_s": max(begun.values()) - self._began_at,
            "memory_mib": watch.most_bytes / (1 << 20),
        }
        return Sample(units=2 * self._slots, wall_s=wall_s, extra=extra)


@contextmanager
def _logging(slots: int) -> Iterator[tuple[Path, _Log, Watch]]:
    # To look at hundreds of processes takes a core a moment: every five seconds.
    with scratch() as folder, Watch(every_s=5.0) as watch:
        yield folder, _Log(folder, slots), watch


def _raysweep(slots: int) -> Contender:
    def run_once() -> Sample:
        import raysweep as rs

        with _logging(slots) as (folder, log, watch):
            spec = rs.SweepSpec(
                name="slots",
                trainable="benchmarks.slots:meet",
                param_space={"x": {"uniform": [0.0, 1.0]}, **log.space},
                num_samples=2 * slots,
                max_concurrent_trials=slots,
                resources={"cpu": CPUS},
                search="random",
                metric="loss",
                mode="min",
                storage_path=str(folder / "sweeps"),
            )
            outcome = rs.run_sweep(spec)
            if outcome.counts != {"completed": 2 * slots}:
                raise RuntimeError(f"raysweep: {outcome.counts}: {outcome.why}")
            return log.sample(watch)

    return Contender(
        name="raysweep", settings=f"run_sweep, resources={{'cpu': {CPUS}}}, default isolation", run=run_once
    )


def _pool(slots: int) -> Contender:
    def run_once() -> Sample:
        import ray
        from ray.util import ActorPool

        with _logging(slots) as (_, log, watch):
            actor_class: Any = ray.remote(num_cpus=CPUS)(_Caller)
            actors = [actor_class.remote() for _ in range(slots)]
            configs = [{"x": 0.5, **log.space}] * (2 * slots)
            done = list(ActorPool(actors).map_unordered(lambda actor, each: actor.call.remote(each), configs))
            assert len(done) == 2 * slots, len(done)
            sample = log.sample(watch)
            for actor in actors:
                ray.kill(actor)
        return sample

    return Contender(
        name="actor_pool",
        settings=f"map_unordered, {slots} actors of {CPUS} CPU, nothing stored",
        run=run_once,
    )


def _tune(slots: int) -> Contender:
    def run_once() -> Sample:
        from ray import tune

        with _logging(slots) as (folder, log, watch):
            tuner = tune.Tuner(
                tune.with_resources(meet, {"cpu": CPUS}),
                param_space={"x": tune.uniform(0.0, 1.0), **log.space},
                tune_config=tune.TuneConfig(
                    metric="loss",
                    mode="min",
                    num_samples=2 * slots,
                    reuse_actors=True,
                    max_concurrent_trials=slots,
                ),
                run_config=tune.RunConfig(storage_path=str(folder / "tune"), verbose=0),
            )
            results = tuner.fit()
            if results.num_errors:
                raise RuntimeError(f"Ray Tune: {results.num_errors} errors")
            return log.sample(watch)

    return Contender(
        name="tune_reuse", settings=f"Tuner.fit, with_resources(cpu={CPUS}), reuse_actors=True", run=run_once
    )


class _Caller:
    def call(self, config: dict[str, Any]) -> Any:
        return meet(config)
