"""elastic: a training of one or two workers on two nodes, of which one is drained, and replaced.

Both run the same loop of Ray Train, which stores what it is asked for before a node goes; each on a cluster
of its own, driven by a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.contenders import scratch
from benchmarks.measure import Contender, Json, Sample, alternate, compare_samples, target
from benchmarks.notes import Note, read_notes, write_note
from tests.insides import drain

STEP_S: Final = 0.1
STORED_EVERY: Final = 20
# As long before its end as a cloud announces it: the node goes then, whatever runs on it.
NOTICE_S: Final = 30.0
PATIENCE_S: Final = 240.0


def run(rounds: int) -> Json:
    """From the notice to a step without the node, from a new node to a step on it; steps made twice."""
    contenders = [
        Contender(
            name="raysweep",
            settings="run_training, scaling={num_workers: [1, 2]}, all else as it comes",
            run=lambda: _measure("raysweep"),
        ),
        Contender(
            name="train",
            settings="DataParallelTrainer, num_workers=(1, 2), max_failures=3, all else as it comes",
            run=lambda: _measure("train"),
        ),
    ]
    samples = alternate(contenders, rounds)
    own, peer = (
        {name: median(one.extra[name] for one in samples[who]) for name in samples[who][0].extra}
        for who in ("raysweep", "train")
    )
    lost = max(one.extra["steps_lost"] for one in samples["raysweep"])
    return {
        "what": f"2 nodes, one drained {NOTICE_S:g} s ahead, then one added; steps of {STEP_S:g} s",
        **compare_samples(contenders, samples, "run"),
        "targets": [
            target("steps lost by a drain", lost, at_most=0.0),
            target("new node to a step on it, of Ray Train's", own["grow_s"] / peer["grow_s"], at_most=0.2),
        ],
    }


def train_in_raysweep(config: dict[str, Any]) -> None:
    """The training of raysweep."""
    import raysweep as rs

    context = rs.get_context()

    def report(step: int, *, is_stored: bool) -> None:
        with rs.new_checkpoint() as folder:
            (folder / "step").write_text(str(step))
            rs.report({"step": step}, checkpoint=folder if is_stored and context.rank == 0 else None)

    step = 0
    if (found := rs.get_checkpoint()) is not None:
        with found as folder:
            step = int((folder / "step").read_text())
    _train(config, context.rank, context.world_size, step, rs.should_checkpoint, report)


def train_in_train(config: dict[str, Any]) -> None:
    """The training of Ray Train."""
    import tempfile

    from ray import train

    context = train.get_context()
    rank = context.get_world_rank()
    has_answered = False

    def is_asked() -> bool:
        return train.get_preemption_info() is not None and not has_answered

    def report(step: int, *, is_stored: bool) -> None:
        nonlocal has_answered
        has_answered = has_answered or is_asked()
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "step").write_text(str(step))
            checkpoint = train.Checkpoint.from_directory(folder) if is_stored and rank == 0 else None
            train.report({"step": step}, checkpoint=checkpoint)

    step = 0
    if (found := train.get_checkpoint()) is not None:
        with found.as_directory() as folder:
            step = int((Path(folder) / "step").read_text())
    _train(config, rank, context.get_world_size(), step, is_asked, report)


def _train(
    config: dict[str, Any],
    rank: int,
    world_size: int,
    step: int,
    is_asked: Callable[[], bool],
    report: Callable[..., None],
) -> None:
    from ray.train.collective import broadcast_from_rank_zero

    while not broadcast_from_rank_zero(Path(config["ends"]).exists()):
        step += 1
        time.sleep(STEP_S)
        write_note(config, rank=rank, workers=world_size, step=step)
        if broadcast_from_rank_zero(is_asked()) or step % STORED_EVERY == 0:
            report(step, is_stored=True)
    report(step, is_stored=False)


def main() -> None:
    """The whole training, in this process: `python -m benchmarks.elastic CONTENDER FOLDER ADDRESS`."""
    contender, folder, address = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    config = {"notes": str(folder / "notes"), "ends": str(folder / "ends")}
    if contender == "raysweep":
        import raysweep as rs

        spec = rs.TrainSpec(
            trainable="benchmarks.elastic:train_in_raysweep",
            config=config,
            scaling={"num_workers": [1, 2]},
            storage_path=str(folder / "stored"),
        )
        rs.run_training(spec, address=address)
        return
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    ray.init(address=address)
    DataParallelTrainer(
        train_in_train,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=(1, 2)),
        run_config=RunConfig(
            storage_path=str(folder / "stored"), failure_config=FailureConfig(max_failures=3)
        ),
    ).fit()


def _measure(contender: str) -> Sample:
    began = time.time()
    with scratch() as folder, _cluster() as cluster:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        arguments = [contender, str(folder), cluster.address]
        with (
            (folder / "log").open("w") as log,
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.elastic", *arguments], stdout=log, stderr=log
            ) as driver,
        ):
            try:
                return _disturb(folder, cluster, nodes[0], driver, began)
            except TimeoutError as error:
                raise RuntimeError(f"{contender}: {error}\n{(folder / 'log').read_text()[-3000:]}") from None
            finally:
                driver.kill()


def _disturb(folder: Path, cluster: Any, going: Any, driver: subprocess.Popen[bytes], began: float) -> Sample:
    def first(workers: int, after: float) -> Note:
        """The first step of so many workers, all of them, after a time."""

        def look() -> Note | None:
            notes = [each for each in read_notes(folder / "notes") if each["at"] > after]
            ranks = {each["rank"]: each for each in reversed(notes) if each["workers"] == workers}
            return max(ranks.values(), key=lambda each: each["at"]) if len(ranks) == workers else None

        return _await(look, driver)

    started = first(2, 0.0)
    _await(lambda: any(each["step"] > STORED_EVERY for each in read_notes(folder / "notes")), driver)
    noticed_at = time.time()
    drain(cluster.address, going.node_id, int((noticed_at + NOTICE_S) * 1000))
    end = threading.Timer(NOTICE_S, lambda: cluster.remove_node(going, allow_graceful=False))
    end.start()
    shrunk = first(1, noticed_at)
    before = [each for each in read_notes(folder / "notes") if noticed_at < each["at"] < shrunk["at"]]
    reached = max((each["step"] for each in before if each["workers"] == 2), default=shrunk["step"] - 1)
    end.join()
    added_at = time.time()
    cluster.add_node(num_cpus=1)
    grown = first(2, added_at)
    (folder / "ends").touch()
    if driver.wait(PATIENCE_S) != 0:
        raise TimeoutError("the training failed")
    return Sample(
        units=1,
        wall_s=time.time() - began,
        extra={
            "start_s": started["at"] - began,
            "shrink_s": shrunk["at"] - noticed_at,
            "steps_lost": float(max(0, reached - shrunk["step"] + 1)),
            "grow_s": grown["at"] - added_at,
        },
    )


def _await(look: Callable[[], Any], driver: subprocess.Popen[bytes]) -> Any:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if found := look():
            return found
        if driver.poll() is not None:
            raise TimeoutError(f"the training ended with {driver.returncode}")
        time.sleep(0.05)
    raise TimeoutError(f"waited {PATIENCE_S:g} s in vain")


@contextmanager
def _cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        yield cluster
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
