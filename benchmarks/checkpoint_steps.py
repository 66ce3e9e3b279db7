"""checkpoint-steps: how much slower a training loop's own steps are while its checkpoint is uploaded.

One trial hands a checkpoint over by `new_checkpoint` and continues with equal steps of work; those until its
manifest is there were made during the upload, and as many after it without one. That is a pair; there are
several in each round, and the ratio of a pair is that of its medians. `python` steps hold the interpreter's
lock all the time, which is the worst case; `numpy` steps multiply matrices, which let it go.

Other processes disturb wall time. So each step also says how long its thread was ready and had no core (the
kernel's `schedstat`): `step_ratio` is of the time without that, which is what the step itself took and what
it waited for the upload's threads (locks, memory); `wall_ratio` is of all of it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.contenders import use_up_idle_workers
from benchmarks.measure import Contender, Json, Sample, alternate, describe, target
from benchmarks.places import place

MB: Final = 1_000_000
CHECKPOINTS: Final = 3
STEP_S: Final = 0.01
KINDS: Final = ("python", "numpy")


def run(rounds: int, *, size_bytes: int = 200 * MB, checkpoints: int = CHECKPOINTS) -> Json:
    """Both kinds of steps, alternating."""
    contenders = [
        Contender(
            name=kind,
            settings="run_sweep, new_checkpoint, local disk, steps of 10 ms",
            run=lambda kind=kind: _run(kind, size_bytes, checkpoints),
        )
        for kind in KINDS
    ]
    samples = alternate(contenders, rounds)
    ratios = {kind: median(each.extra["step_ratio"] for each in samples[kind]) for kind in KINDS}
    return {
        "what": f"steps of a loop while a checkpoint of {size_bytes / MB:.0f} MB is uploaded, and without",
        "contenders": {each.name: describe(each, samples[each.name], "step") for each in contenders},
        "targets": [
            target(f"{kind} steps during an upload, of those without", ratio, at_most=1.05)
            for kind, ratio in ratios.items()
        ],
    }


def _run(kind: str, size_bytes: int, checkpoints: int) -> Sample:
    import raysweep as rs

    with place(is_s3=False) as there:
        notes = there.folder / "notes.json"
        spec = rs.SweepSpec(
            name="steps",
            trainable="benchmarks.checkpoint_steps:steps",
            param_space={
                "kind": kind, "size_bytes": size_bytes, "checkpoints": checkpoints,
                "notes": str(notes), "storage_path": there.path,
            },
            metric="loss",
            mode="min",
            checkpoint={"keep_last": checkpoints, "keep_best": False},
            storage_path=there.path,
        )  # fmt: skip
        use_up_idle_workers()
        began = time.perf_counter()
        if rs.run_sweep(spec).counts != {"completed": 1}:
            raise RuntimeError("it did not end well")
        wall_s = time.perf_counter() - began
        pairs = json.loads(notes.read_text())
    extra = {
        "step_ratio": median(each["step_ratio"] for each in pairs),
        "wall_ratio": median(each["wall_ratio"] for each in pairs),
        "steps_during": median(each["steps"] for each in pairs),
        "load": os.getloadavg()[0],
    }
    return Sample(units=sum(each["steps"] for each in pairs), wall_s=wall_s, extra=extra)


def steps(config: dict[str, Any]) -> None:
    """The trainable: hand over, step until it is stored, step as often without."""
    import raysweep as rs

    work, who = _make_work(config["kind"]), rs.get_context()
    stored = Path(config["storage_path"], who.sweep_id, "checkpoints", who.trial_id)
    pairs = []
    for number in range(1, config["checkpoints"] + 1):
        with rs.new_checkpoint() as folder:
            (folder / "body").write_bytes(os.urandom(config["size_bytes"]))
            os.sync()  # its own writing is no part of the upload
            rs.report({"loss": 1.0 / number}, checkpoint=folder)
        during = []
        while len(list(stored.glob("*.json"))) < number:
            during.append(_step(work))
        without = [_step(work) for _ in range(len(during))]
        pairs.append(
            {
                "steps": len(during),
                "step_ratio": _ratio(during, without, 0),
                "wall_ratio": _ratio(during, without, 1),
            }
        )
    Path(config["notes"]).write_text(json.dumps(pairs))


def _ratio(during: list[tuple[float, float]], without: list[tuple[float, float]], which: int) -> float:
    return median(each[which] for each in during) / median(each[which] for each in without)


def _step(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of one step: without the wait for a core, and with it."""
    waited, began = _waited_s(), time.perf_counter()
    work()
    wall_s = time.perf_counter() - began
    return max(0.0, wall_s - (_waited_s() - waited)), wall_s


def _waited_s() -> float:
    """How long this thread has been ready and had no core."""
    with open(f"/proc/self/task/{threading.get_native_id()}/schedstat") as file:
        return int(file.read().split()[1]) / 1e9


def _make_work(kind: str) -> Callable[[], object]:
    """Work of about `STEP_S` on this machine."""
    if kind == "python":
        return _repeated(lambda count: sum(number * number for number in range(count)), 1000)
    import numpy as np

    matrix = np.random.default_rng(0).random((64, 64))
    return _repeated(lambda count: [matrix @ matrix for _ in range(count)], 10)


def _repeated(work: Callable[[int], object], count: int) -> Callable[[], object]:
    while True:
        took_s = min(_took_s(work, count) for _ in range(3))
        if took_s >= STEP_S / 2:
            return lambda: work(max(1, round(count * STEP_S / took_s)))
        count *= 2


def _took_s(work: Callable[[int], object], count: int) -> float:
    began = time.perf_counter()
    work(count)
    return time.perf_counter() - began
