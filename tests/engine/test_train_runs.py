"""Ray Train runs as trials, on a real Ray: who runs at once, what is reported, how they end and resume."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import yaml

import raysweep as rs
from raysweep.core.vocabulary import events as ev
from tests.engine.conftest import ROOT, Driver, wait_for

pytestmark = pytest.mark.ray
FIT = "tests.engine.trainruns:fit"
Run = Callable[..., rs.SweepOutcome]
Lines = Callable[[], list[list[str]]]


def of(lines: list[list[str]], what: str) -> list[list[str]]:
    return [words[1:] for words in lines if words[0] == what]


def train_run(workers: int, each: float, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A config, and the scaling of its trial."""
    asked = {"num_workers": workers, "resources": {"cpu": each}, "driver": {}}
    return {"workers": workers, "each": each, "steps": 2, **more}, asked


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def reported(events: Callable[..., list[Any]], attempt: int) -> list[int]:
    """The steps that an attempt of the only trial has reported."""
    return [
        dict(zip(each.keys, row, strict=True))["step"]
        for each in events(ev.TrialReported)
        if each.attempt == attempt
        for row in each.rows
    ]


def groups_of_ray() -> list[dict[str, Any]]:
    import ray

    table: dict[str, dict[str, Any]] = ray.util.placement_group_table()  # type: ignore[no-untyped-call]
    return [each for each in table.values() if each["state"] != "REMOVED"]


@pytest.mark.slow
def test_a_run_reports_for_its_trial_and_leaves_nothing_behind(run: Run, lines: Lines, storage: Path) -> None:
    config, scaling = train_run(2, 0.5)
    outcome = run(FIT, config, scaling={**scaling, "driver": {"cpu": 1}}, checkpoint={"keep_last": 1})
    (trial,) = outcome.trials
    assert outcome.counts == {"completed": 1}
    assert trial.reports == 2
    assert trial.metrics["rank"] == 0
    assert trial.metrics["step"] == 2
    assert of(lines(), "result") == [["0", "2"]]
    assert {tuple(words[2:5]) for words in of(lines(), "worker")} == {("0", "2", "0"), ("1", "2", "0")}
    pids = [int(words[5]) for words in of(lines(), "worker")]
    wait_for(lambda: not any(map(is_alive, pids)))
    assert not list(storage.glob("*/train/*")), "its own folder goes with the attempt"
    assert trial.checkpoint_uri is not None
    assert groups_of_ray() == []


@pytest.mark.slow
@pytest.mark.servers
def test_no_more_drivers_run_than_their_workers_fit_and_none_waits_for_ever(run: Run, lines: Lines) -> None:
    # Row 10 of Ray Tune's users: four trials of four workers each, where eight fit at once.
    config, scaling = train_run(4, 0.25, batch_size={"grid_search": [16, 32, 64, 128]})
    seen: list[int] = []
    outcome = run(FIT, config, scaling=scaling, on_progress=lambda now: seen.append(len(groups_of_ray())))
    assert outcome.counts == {"completed": 4}
    at_once, most = 0, 0
    for words in lines():
        at_once += {"begin": 1, "end": -1}.get(words[0], 0)
        most = max(most, at_once)
    assert most == 2
    assert max(seen) == 2, "the trials' own groups, and no others"
    assert len(of(lines(), "worker")) == 16
    assert {trial.config["batch_size"] for trial in outcome.trials} == {16, 32, 64, 128}
    assert all(trial.num_attempts == 1 for trial in outcome.trials)


WAITS = re.compile("cannot be scheduled|Insufficient|waiting for resources", re.IGNORECASE)
ROW_10 = """
import json, os, sys, threading, time
import ray
import raysweep as rs
from raysweep.raycompat.patience import patient_start

with patient_start():
    ray.init(address="local", num_cpus=2, include_dashboard=False, _temp_dir=sys.argv[1])
print(json.dumps(rs.run_sweep(json.loads(sys.argv[2]), key="k").counts), flush=True)
print("SWEPT", file=sys.stderr, flush=True)
os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "1"
from ray.train import ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

trainer = DataParallelTrainer(print, scaling_config=ScalingConfig(num_workers=3))
threading.Thread(target=trainer.fit, daemon=True).start()  # it tries for ever
time.sleep(30)
sys.stderr.flush()
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.servers
def test_nothing_is_said_of_resources_that_are_waited_for(
    make_spec: Callable[..., rs.SweepSpec], storage: Path
) -> None:
    """Neither by the process of the sweep, to which Ray passes on what workers print, nor in a trial's log.

    Afterwards the same process starts a run that has no room, and is told so: it would have been seen.
    """
    config, scaling = train_run(4, 0.25, batch_size={"grid_search": [16, 32, 64, 128]})
    spec = make_spec(FIT, config, scaling=scaling).to_json()
    # Ray's sockets are in it: pytest's own folder has too long a path.
    with tempfile.TemporaryDirectory(prefix="rst-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-c", ROW_10, folder, spec]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert json.loads(done.stdout.splitlines()[0]) == {"completed": 4}, done.stderr[-3000:]
    said, _, afterwards = done.stderr.partition("SWEPT")
    assert WAITS.search(afterwards)
    assert WAITS.findall(said) == []
    logs = [path.read_text() for path in storage.glob("*/logs/**/*") if path.is_file()]
    assert WAITS.findall("".join(logs)) == []


@contextmanager
def noting_ends(lines: Lines) -> Iterator[dict[int, float]]:
    """When each worker of a run was gone, by its pid, in Unix seconds."""
    gone: dict[int, float] = {}
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.02):
            for words in of(lines(), "worker"):
                if int(words[5]) not in gone and not is_alive(int(words[5])):
                    gone[int(words[5])] = time.time()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield gone
    finally:
        is_over.set()
        looking.join()


@pytest.mark.slow
@pytest.mark.servers
def test_a_stop_by_the_scheduler_ends_the_workers_and_the_next_trial_has_their_place(
    run: Run, lines: Lines, events: Callable[..., list[Any]]
) -> None:
    config, scaling = train_run(2, 1, waits=True, x={"grid_search": [0.1, 0.5, 0.9]})
    halving = {"asha": {"max_t": 2, "grace_period": 1, "reduction_factor": 2}}
    with noting_ends(lines) as gone:
        outcome = run(FIT, config, scaling=scaling, scheduler=halving, stop={"grace_s": 60})
        pids = [int(words[5]) for words in of(lines(), "worker")]
        wait_for(lambda: len(gone) == 6)
    assert outcome.counts == {"completed": 1, "stopped": 2}, "no worker returns by itself"
    assert {words[2] for words in of(lines(), "begin")} == {of(lines(), "begin")[0][2]}, (
        "one process drives all"
    )
    assert [words[0] for words in lines() if words[0] in ("begin", "end")] == ["begin", "end"] * 3
    assert len(pids) == 6
    assert groups_of_ray() == []
    # A trial is stopped because of its last report. Its workers are gone, and the next has begun, 2 s later.
    stopped_at = {event.trial: event.at for event in events(ev.TrialReported)}
    for trial, _, _, _, _, pid in of(lines(), "worker"):
        assert gone[int(pid)] - stopped_at[int(trial)] < 2
    begun_at = {event.trial: event.at for event in events(ev.TrialStarted)}
    for trial in (1, 2):
        assert begun_at[trial] - stopped_at[trial - 1] < 2


@pytest.mark.slow
@pytest.mark.servers
def test_a_killed_driver_takes_its_workers_along_and_resumes_from_its_newest_checkpoint(
    run: Run, lines: Lines, storage: Path, events: Callable[..., list[Any]]
) -> None:
    config, scaling = train_run(2, 1, steps=4, kill="driver")
    outcome = run(FIT, config, scaling=scaling)
    (trial,) = outcome.trials
    assert outcome.counts == {"completed": 1}
    assert trial.num_attempts == 2
    begun = {(words[1], words[4]) for words in of(lines(), "worker")}
    (resumed,) = {begin for attempt, begin in begun if attempt == "2"}
    assert int(resumed) in (1, 2), "from a checkpoint that it had reported"
    steps = reported(events, attempt=2)
    assert steps == list(range(int(resumed) + 1, 5)), "and the sweep counts from there"
    assert not list(storage.glob("*/train/*"))


@pytest.mark.servers
def test_a_sweep_whose_controller_was_killed_resumes_its_runs_where_the_journal_has_them(
    make_spec: Callable[..., rs.SweepSpec],
    drive: Callable[..., Driver],
    run: Run,
    lines: Lines,
    storage: Path,
    events: Callable[..., list[Any]],
) -> None:
    config, scaling = train_run(2, 1, steps=4, kill="controller")
    driver = drive(make_spec(FIT, config, scaling=scaling))
    wait_for(lambda: list(storage.glob("*/checkpoints/00000/1.json")))
    os.kill(driver.pid, signal.SIGKILL)
    outcome = run(FIT, config, scaling=scaling)
    assert outcome.counts == {"completed": 1}
    (resumed,) = {words[4] for words in of(lines(), "worker") if words[1] == "2"}
    assert int(resumed) in (1, 2)
    assert reported(events, attempt=2) == list(range(int(resumed) + 1, 5))
    # Of the first attempt there may be a report past the checkpoint that was stored last.
    assert outcome.trials[0].reports == len(reported(events, attempt=1)) + 4 - int(resumed)
    assert not list(storage.glob("*/train/*"))


@pytest.mark.slow
@pytest.mark.servers
def test_workers_that_ray_train_starts_again_repeat_no_report(
    run: Run, lines: Lines, events: Callable[..., list[Any]]
) -> None:
    config, scaling = train_run(2, 1, steps=4, kill="worker", again=1)
    outcome = run(FIT, config, scaling=scaling)
    assert outcome.counts == {"completed": 1}
    assert outcome.trials[0].num_attempts == 1, "it is the run's own affair"
    assert reported(events, attempt=1) == [1, 2, 3, 4]
    assert {words[4] for words in of(lines(), "worker")} in ({"0", "1"}, {"0", "2"})


@pytest.mark.servers
def test_a_run_for_which_the_trial_holds_nothing_is_refused_with_what_to_write(run: Run) -> None:
    config, _ = train_run(2, 0.5)
    (trial,) = run(FIT, config, resources={"cpu": 1}).trials
    assert trial.error is not None
    assert "scaling: {num_workers: 2, resources: {cpu: 0.5}, driver: {}}" in trial.error.message


@pytest.mark.slow
@pytest.mark.servers
def test_the_example_trains_with_torch_and_asha(ray_cluster: object, storage: Path) -> None:
    pytest.importorskip("torch")
    spec = yaml.safe_load((ROOT / "examples/train_run.yaml").read_text())
    outcome = rs.run_sweep({**spec, "storage_path": str(storage)}, key="k")
    assert sum(outcome.counts.values()) == 4
    assert set(outcome.counts) <= {"completed", "stopped"}
    assert outcome.best is not None
    assert outcome.best.metrics["epoch"] == 4
    assert outcome.best.metrics["loss"] < 1


@pytest.mark.slow
def test_a_fresh_process_for_each_trial_drives_a_run_of_one_worker(run: Run, lines: Lines) -> None:
    config, scaling = train_run(1, 2)
    outcome = run(FIT, config, num_samples=3, scaling=scaling, isolation="actor")
    assert outcome.counts == {"completed": 3}
    assert len({words[2] for words in of(lines(), "begin")}) == 3
    assert all(trial.num_attempts == 1 for trial in outcome.trials)


# --- data sets


def data_run(workers: int, cpus: int, *read: str, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A config, and the scaling of its trial, whose CPUs are those for data alone."""
    asked = {
        "num_workers": workers,
        "resources": {"cpu": 0, "memory": 10_000_000},
        "driver": {"data_cpus": cpus},
    }
    config = {"workers": workers, "read": list(read), "rows": 20, **more}
    return config, asked


FIT_DATA = "tests.engine.trainruns:fit_data"


def ids_of(lines: list[list[str]], name: str, trial: int, attempt: int = 1) -> dict[int, list[int]]:
    """What each rank has read."""
    return {
        int(rank): [int(each) for each in ids.split(",") if each]
        for number, at, rank, *ids_ in of(lines, name)
        for ids in ("".join(ids_),)
        if (int(number), int(at)) == (trial, attempt)
    }


def coordinators() -> list[str]:
    """The states of the actors that split data sets."""
    import ray

    table: dict[str, dict[str, Any]] = ray._private.state.actors()  # type: ignore[attr-defined]
    return [each["State"] for each in table.values() if "Coordinator" in each["ActorClassName"]]


@pytest.mark.slow
@pytest.mark.servers
def test_two_trials_with_datasets_have_each_row_once_where_all_cpus_are_held_by_trials(
    run: Run, lines: Lines
) -> None:
    config, scaling = data_run(2, 1, "rows", x={"grid_search": [0.1, 0.5]})
    outcome = run(FIT_DATA, config, scaling=scaling)
    assert outcome.counts == {"completed": 2}, outcome.trials
    begun, ended = ([float(words[-1]) for words in of(lines(), what)] for what in ("begin", "end"))
    assert max(begun) < min(ended), "both at once"
    for trial in (0, 1):
        read = ids_of(lines(), "rows", trial)
        assert {len(ids) for ids in read.values()} == {10}, "equal parts"
        assert sorted(read[0] + read[1]) == list(range(20))
    assert set(coordinators()) == {"DEAD"}
    assert groups_of_ray() == []


@pytest.mark.slow
@pytest.mark.servers
def test_what_is_listed_or_shuffled_and_what_each_worker_reads_for_itself_has_its_place_too(
    run: Run, lines: Lines, tmp_path: Path
) -> None:
    file = str(tmp_path / "rows.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"id": list(range(20))}), file)
    config, scaling = data_run(1, 2, "rows", "valid", file=file, shuffles=True, x=1.0)
    outcome = run(FIT_DATA, config, scaling=scaling)
    assert outcome.counts == {"completed": 1}, outcome.trials
    (shuffled,) = ids_of(lines(), "rows", 0).values()
    assert shuffled != sorted(shuffled)
    assert sorted(shuffled) == list(range(20))
    assert sorted(ids_of(lines(), "valid", 0)[0]) == [0, 1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.servers
def test_a_stop_by_the_scheduler_ends_what_reads_data_and_the_next_trial_has_its_place(
    run: Run, lines: Lines, events: Callable[..., list[Any]]
) -> None:
    config, scaling = data_run(1, 2, "rows", endless=True, x={"grid_search": [0.1, 0.5]})
    halving = {"asha": {"max_t": 2, "grace_period": 1, "reduction_factor": 2}}
    outcome = run(FIT_DATA, config, scaling=scaling, scheduler=halving, stop={"grace_s": 60})
    assert outcome.counts == {"completed": 1, "stopped": 1}, "no data set ends by itself"
    for trial in (0, 1):
        assert ids_of(lines(), "rows", trial) == {0: list(range(20))}
    beats = {trial: [float(at) for who, at in of(lines(), "beat") if who == str(trial)] for trial in (0, 1)}
    stopped_at = {event.trial: event.at for event in events(ev.TrialReported)}
    for trial, seen in beats.items():
        assert max(seen) < stopped_at[trial] + 2
    (begun,) = (float(at) for trial, _, at in of(lines(), "begin") if trial == "1")
    assert begun < stopped_at[0] + 4
    assert max(beats[0]) < begun, "nothing of the first is left when the second begins"
    assert set(coordinators()) == {"DEAD"}


@pytest.mark.slow
@pytest.mark.servers
def test_a_trial_with_datasets_whose_driver_was_killed_reads_them_again(run: Run, lines: Lines) -> None:
    config, scaling = data_run(2, 1, "rows", kill="driver")
    outcome = run(FIT_DATA, config, scaling=scaling)
    assert outcome.counts == {"completed": 1}
    assert outcome.trials[0].num_attempts == 2
    for attempt in (1, 2):
        read = ids_of(lines(), "rows", 0, attempt)
        assert sorted(read[0] + read[1]) == list(range(20))
    wait_for(lambda: set(coordinators()) == {"DEAD"})


class Same:
    """A pool's actor."""

    def __call__(self, batch: Any) -> Any:
        return batch


def same(batch: Any) -> Any:
    return batch


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a first DataContext, whatever it says
def test_a_data_set_needs_the_actors_that_its_pools_begin_with_and_one_task(ray_cluster: object) -> None:
    import ray.data

    from raysweep.raycompat.in_trial.trialdata import DataRefused, cpus_needed

    rows = ray.data.range(10, override_num_blocks=2)
    assert cpus_needed(rows) == 1
    assert cpus_needed(rows.map_batches(same, num_cpus=3)) == 3
    assert cpus_needed(rows.map_batches(Same, concurrency=2)) == 2, "which read, too"
    assert cpus_needed(rows.random_shuffle().map_batches(Same, concurrency=(1, 4), num_cpus=2)) == 3
    with pytest.raises(DataRefused, match="GPUs"):
        cpus_needed(rows.map_batches(Same, concurrency=1, num_gpus=1, batch_size=2))


@pytest.mark.servers
def test_a_data_set_that_would_wait_for_ever_is_refused_with_what_to_write(run: Run, lines: Lines) -> None:
    config, scaling = data_run(1, 1, "rows", x=1.0, pool=2)
    (trial,) = run(FIT_DATA, config, scaling=scaling).trials
    assert trial.error is not None
    assert "write data_cpus: 2 into scaling.driver" in trial.error.message
    assert of(lines(), "rows") == []


@pytest.mark.servers
def test_a_trainer_with_datasets_for_which_the_trial_holds_nothing_is_refused_with_what_to_write(
    run: Run, lines: Lines
) -> None:
    config, scaling = data_run(2, 0, "rows", "valid")
    (trial,) = run(FIT_DATA, config, scaling=scaling).trials
    assert trial.error is not None
    assert "resources: {cpu: 0, memory: 1e+07}, driver: {data_cpus: 3}}" in trial.error.message
    assert of(lines(), "rows") == []


@pytest.mark.servers
def test_a_trainer_with_a_range_has_as_many_workers_as_its_trial_holds(run: Run, lines: Lines) -> None:
    config, scaling = train_run(2, 0.5, range=[1, 4], again=1, kill="worker", steps=3)
    outcome = run(FIT, config, scaling=scaling)
    assert outcome.counts == {"completed": 1}, outcome.trials
    assert {words[3] for words in of(lines(), "worker")} == {"2"}, "also when they are started again"
    assert len(of(lines(), "worker")) == 4
