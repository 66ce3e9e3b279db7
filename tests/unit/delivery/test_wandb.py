"""The contract of trackers with wandb, offline: `make test-trackers` has the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from raysweep.errors import SpecError
from raysweep.hooks.base import TrialSetup
from raysweep.hooks.spec import CallbackSpec
from raysweep.hooks.wandb import NUMBER, WandbOptions, history_of, read_records, run_id
from tests.unit.delivery.contract import Stored, TrackerContract, options, run_life, shown
from tests.unit.delivery.journals import SWEEP, GoldenSweep

pytest.importorskip("wandb", reason="wandb is an optional package: make test-trackers")


@pytest.mark.timeout(600)
class TestWandb(TrackerContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "runs"

    def callback(self) -> CallbackSpec:
        return options("wandb", mode="offline", dir=str(self.folder))

    def stored(self) -> Stored:
        return stored_in(self.folder)

    def test_runs_are_grouped_by_sweep_and_have_the_configs(self, tmp_path: Path) -> None:
        sweep = GoldenSweep("pbt", tmp_path / "store")
        sweep.write()
        run_life(sweep, self.callback())
        runs = [run for path in files_in(self.folder) if (run := run_of(path)) is not None]
        assert {run.run_group for run in runs} == {SWEEP}
        assert len({run.run_id for run in runs}) == len(runs)
        configs = {
            item.event.trial_id: item.event.config for item in sweep.items() if hasattr(item.event, "config")
        }
        for run in runs:
            found = {item.key: orjson.loads(item.value_json) for item in run.config.update}
            assert configs[run.run_id.rpartition("-")[2]].keys() <= found.keys()

    def test_a_process_that_is_killed_loses_nothing_that_it_had_taken(self, tmp_path: Path) -> None:
        """wandb keeps rows in memory: a kill takes them along after their place was noted."""
        sweep = GoldenSweep("pbt", tmp_path / "store")
        sweep.write()
        total = len(sweep.items())
        for events in (total // 3, total * 2 // 3):
            killed = subprocess.run(
                [sys.executable, "-c", KILLED, str(tmp_path / "store"), str(self.folder), str(events)],
                check=False,
            )
            assert killed.returncode == -9
        (report,) = run_life(sweep, self.callback())
        assert (report.left, report.skipped) == (0, 0)
        self.check(sweep)

    def test_more_trials_than_may_be_open_are_stored(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("raysweep.hooks.wandb.MAX_OPEN", 2)
        sweep = GoldenSweep("pbt", tmp_path / "store")
        sweep.write()
        run_life(sweep, self.callback())
        self.check(sweep)

    def test_shared_runs_are_written_once_their_trials_have_ended(self, tmp_path: Path) -> None:
        sweep = GoldenSweep("pbt", tmp_path / "store")
        sweep.write()
        callback = options("wandb", mode="offline", dir=str(self.folder), shared_runs=True)
        run_life(sweep, callback, events=20)
        run_life(sweep, callback)
        self.check(sweep)
        assert len(files_in(self.folder)) == len(self.stored().states), (
            "a run was opened before its trial's end"
        )


KILLED = """
import os, sys
from pathlib import Path
from raysweep.delivery import process, sink
from raysweep.runs.folder import SweepFolder
from raysweep.storage.objects.opening import open_store
from tests.unit.delivery.contract import options
from tests.unit.delivery.journals import SWEEP

give, left = sink.Sink._give, [int(sys.argv[3])]
def give_or_die(self, item):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), 9)
    give(self, item)
sink.Sink._give, sink.CURSOR_S, sink.BATCH = give_or_die, 0.0, 23
callback = options("wandb", mode="offline", dir=sys.argv[2])
delivery = process.Delivery(SweepFolder(open_store(Path(sys.argv[1])), SWEEP), (callback,))
delivery.hurry()
delivery.run()
delivery.wait(60, 60)
"""


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))


def stored_in(folder: Path) -> Stored:
    """What the offline folders hold, in the order in which they were made."""
    from wandb.proto.wandb_internal_pb2 import Record

    found = Stored([])
    for path in sorted(files_in(folder), key=lambda path: path.parent.stat().st_ctime_ns):
        trial = path.stem.rpartition("-")[2]
        for data in read_records(path.read_bytes()):
            row = {name: orjson_or_nan(text) for name, text in history_of(data).items()}
            found.points += [
                (trial, int(row["iteration"]), name, shown(float(value)))
                for name, value in row.items()
                if name not in ("iteration", NUMBER) and not name.startswith("_")
            ]
            for item in Record.FromString(data).summary.update:
                if (item.key or ".".join(item.nested_key)) == "raysweep/state":
                    found.states[trial] = orjson.loads(item.value_json)
    return found


def orjson_or_nan(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return float(text)


def run_of(path: Path) -> Any:
    from wandb.proto.wandb_internal_pb2 import Record

    for data in read_records(path.read_bytes()):
        record = Record.FromString(data)
        if record.HasField("run"):
            return record.run
    return None


def test_the_ids_of_a_trial_are_known_before_it_starts() -> None:
    setup = TrialSetup(sweep_id="s-1", name="n", begun_at=7.5)
    found = WandbOptions(shared_runs=True, project="p").in_trials(setup)
    assert found["WANDB_RUN_ID"].replace("{trial}", "00003") == run_id("s-1", 7.5, "00003")
    assert (found["WANDB_RUN_GROUP"], found["WANDB_RESUME"]) == ("s-1", "allow")
    assert "WANDB_RUN_ID" not in WandbOptions().in_trials(setup)


def test_no_key_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    with pytest.raises(SpecError, match="WANDB_API_KEY is not set"):
        WandbOptions().check(str(tmp_path))
    WandbOptions(mode="offline").check(str(tmp_path))
    with pytest.raises(SpecError, match="is not a local folder"):
        WandbOptions(mode="offline").check("s3://bucket/x")
