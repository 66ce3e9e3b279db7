"""checkpoint-stall: how long a trial is blocked by its checkpoints, and what the storage holds of them.

One trial reports a directory again and again; 90 % of it never changes. Blocked is the time inside `report`,
stored is what lies in the storage at the end, with every checkpoint kept. Ray Train uploads in the background
(`CheckpointUploadMode.ASYNC`), from a directory of its own for each report, as raysweep does by
`new_checkpoint`: making that is not counted. Of one that is written to again raysweep copies what changed.
Between two reports a step of `step_s` stands for the training.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.contenders import use_up_idle_workers
from benchmarks.measure import Contender, Json, Sample, compare, target
from benchmarks.places import Place, place

MB: Final = 1_000_000
REPORTS: Final = 20
Report = Callable[[Path, int], None]


def run_1gb(rounds: int, *, size_bytes: int = 1000 * MB, reports: int = 5, step_s: float = 5.0) -> Json:
    """Ten times as large, a quarter as many."""
    return run(rounds, size_bytes=size_bytes, reports=reports, step_s=step_s)


def run_s3(rounds: int, *, size_bytes: int = 100 * MB, reports: int = 5, step_s: float = 2.0) -> Json:
    """To an S3 server on loopback."""
    return run(rounds, size_bytes=size_bytes, reports=reports, step_s=step_s, is_s3=True)


def run_inside(
    rounds: int, *, size_bytes: int = 100 * MB, reports: int = REPORTS, inside_s: float = 0.5
) -> Json:
    """By `new_checkpoint`, with work inside of its `with` and none between: uploads pause no longer than they
    may."""
    space = {"size_bytes": size_bytes, "reports": reports, "step_s": 0.0, "inside_s": inside_s}
    space |= {"is_s3": False}
    contenders = [own(space, is_handed=True), tune(space)]
    shown, samples = compare(contenders, rounds, "checkpoint", own="handed")
    blocked = {name: _median(each, "blocked_s") for name, each in samples.items()}
    return {
        "what": f"{reports} checkpoints of {size_bytes / MB:.0f} MB, {inside_s} s of work before each report",
        **shown,
        "targets": [
            target("blocked, of Ray Tune's", blocked["handed"] / blocked["tune"], at_most=0.1),
            target("seconds blocked in all", blocked["handed"], at_most=0.2),
        ],
    }


def run(
    rounds: int,
    *,
    size_bytes: int = 100 * MB,
    reports: int = REPORTS,
    step_s: float = 1.0,
    is_s3: bool = False,
) -> Json:
    """raysweep, Ray Tune and Ray Train with the same checkpoints on the local disk, or S3."""
    space = {"size_bytes": size_bytes, "reports": reports, "step_s": step_s, "is_s3": is_s3}
    contenders = [own(space), own(space, is_handed=True), tune(space), train(space)]
    shown, samples = compare(contenders, rounds, "checkpoint")
    means = {
        name: {key: _median(each, key) for key in ("blocked_s", "stored_mb")}
        for name, each in samples.items()
    }
    blocked = {name: mean["blocked_s"] for name, mean in means.items()}
    stored = means["raysweep"]["stored_mb"] / means["tune"]["stored_mb"]
    return {
        "what": f"{reports} checkpoints of {size_bytes / MB:.0f} MB, 90 % of which never change, "
        + ("S3 on loopback" if is_s3 else "local disk"),
        **shown,
        "targets": [
            target("blocked, of Ray Tune's", blocked["raysweep"] / blocked["tune"], at_most=0.5),
            target(
                "blocked with new_checkpoint, of Ray Tune's",
                blocked["handed"] / blocked["tune"],
                at_most=0.02,
            ),
            target("blocked, of Ray Train's ASYNC", blocked["raysweep"] / blocked["train"], at_most=1.0),
            # Of n checkpoints, 1 + 0.1 (n - 1) have to be stored: 0.145 of 20, 0.28 of 5.
            target("stored, of Ray Tune's", stored, at_most=round(0.1 + 0.9 / reports + 0.015, 3)),
        ],
    }


def own(space: Json, *, is_handed: bool = False) -> Contender:
    """raysweep, with one directory that is written to again, or a new one each time that is handed over."""
    name = "handed" if is_handed else "raysweep"
    trainable = f"benchmarks.checkpoint_stall:{'hand_to' if is_handed else 'report_to'}_raysweep"

    def run() -> Sample:
        import raysweep as rs

        with place(is_s3=space["is_s3"]) as there:
            spec = rs.SweepSpec(
                name="stall",
                trainable=trainable,
                param_space={**space, "notes": str(there.folder / "notes.json")},
                metric="loss",
                mode="min",
                checkpoint={"keep_last": space["reports"], "keep_best": False},
                storage_path=there.path,
            )
            return _timed(space, there, lambda: _expect(rs.run_sweep(spec).counts == {"completed": 1}))

    settings = "run_sweep, every checkpoint kept" + (", by new_checkpoint" if is_handed else "")
    return Contender(name=name, settings=settings, run=run)


def tune(space: Json) -> Contender:
    """Ray Tune."""

    def run() -> Sample:
        from ray import tune

        with place(is_s3=space["is_s3"]) as there:
            tuner = tune.Tuner(
                report_to_tune,
                param_space={**space, "notes": str(there.folder / "notes.json")},
                run_config=tune.RunConfig(verbose=0, **there.for_ray),
            )
            return _timed(space, there, lambda: _expect(not tuner.fit().num_errors))

    return Contender(name="tune", settings="Tuner.fit, RunConfig(verbose=0), every checkpoint kept", run=run)


def train(space: Json) -> Contender:
    """Ray Train V2 with one worker."""

    def run() -> Sample:
        from ray.train import RunConfig, ScalingConfig
        from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

        with place(is_s3=space["is_s3"]) as there:
            trainer = DataParallelTrainer(
                report_to_train,
                train_loop_config={**space, "notes": str(there.folder / "notes.json")},
                scaling_config=ScalingConfig(num_workers=1),
                run_config=RunConfig(name="stall", **there.for_ray),
            )
            return _timed(space, there, lambda: _expect(trainer.fit().error is None))

    settings = "DataParallelTrainer, 1 worker, report(checkpoint_upload_mode=ASYNC), every checkpoint kept"
    return Contender(name="train", settings=settings, run=run)


def report_to_raysweep(config: dict[str, Any]) -> None:
    """The trainable of raysweep."""
    import raysweep as rs

    _work(config, lambda folder, step: rs.report({"loss": 1.0 / step}, checkpoint=folder))


def hand_to_raysweep(config: dict[str, Any]) -> None:
    """The same, each time with a new folder that is taken over."""
    import raysweep as rs

    body, head = os.urandom(config["size_bytes"] * 9 // 10), config["size_bytes"] // 10
    blocked_s, began = 0.0, time.perf_counter()
    for step in range(1, config["reports"] + 1):
        with rs.new_checkpoint() as folder:
            (folder / "body").write_bytes(body)
            (folder / "head").write_bytes(os.urandom(head))
            time.sleep(config.get("inside_s", 0.0))
            called = time.perf_counter()
            rs.report({"loss": 1.0 / step}, checkpoint=folder)
            blocked_s += time.perf_counter() - called
        time.sleep(config["step_s"])
    _note(config, blocked_s, time.perf_counter() - began)


def report_to_tune(config: dict[str, Any]) -> None:
    """The trainable of Ray Tune."""
    from ray import tune

    def report(folder: Path, step: int) -> None:
        tune.report({"loss": 1.0 / step}, checkpoint=tune.Checkpoint.from_directory(str(folder)))

    _work(config, report)


def report_to_train(config: dict[str, Any]) -> None:
    """The loop of Ray Train."""
    import ray.train

    def report(folder: Path, step: int) -> None:
        ray.train.report(
            {"loss": 1.0 / step},
            checkpoint=ray.train.Checkpoint.from_directory(str(folder)),
            checkpoint_upload_mode=ray.train.CheckpointUploadMode.ASYNC,
            delete_local_checkpoint_after_upload=True,
        )

    _work(config, report, is_taken=True)


def _work(config: dict[str, Any], report: Report, *, is_taken: bool = False) -> None:
    """Write and report; `is_taken`: each report's directory is given away."""
    body, head = os.urandom(config["size_bytes"] * 9 // 10), config["size_bytes"] // 10
    folder, blocked_s, began = Path(tempfile.mkdtemp()), 0.0, time.perf_counter()
    for step in range(1, config["reports"] + 1):
        if is_taken and step > 1:
            folder = Path(tempfile.mkdtemp())
        if is_taken or step == 1:
            (folder / "body").write_bytes(body)
        (folder / "head").write_bytes(os.urandom(head))
        time.sleep(config.get("inside_s", 0.0))
        called = time.perf_counter()
        report(folder, step)
        blocked_s += time.perf_counter() - called
        time.sleep(config["step_s"])
    _note(config, blocked_s, time.perf_counter() - began)


def _note(config: dict[str, Any], blocked_s: float, loop_s: float) -> None:
    Path(config["notes"]).write_text(json.dumps({"blocked_s": blocked_s, "loop_s": loop_s}))


def _timed(space: Json, there: Place, call: Callable[[], None]) -> Sample:
    use_up_idle_workers()
    began = time.perf_counter()
    call()
    wall_s = time.perf_counter() - began
    notes = json.loads((there.folder / "notes.json").read_text())
    extra = {"blocked_s": notes["blocked_s"], "stored_mb": there.stored_bytes() / MB}
    return Sample(units=space["reports"], wall_s=wall_s, warm_s=notes["loop_s"], extra=extra)


def _expect(is_well: bool) -> None:
    if not is_well:
        raise RuntimeError("it did not end well")


def _median(samples: list[Sample], name: str) -> float:
    return sorted(sample.extra[name] for sample in samples)[len(samples) // 2]
