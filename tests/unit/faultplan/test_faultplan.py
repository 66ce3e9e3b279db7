"""The plan itself: what fits, what fires, how often, and that it is known afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from raysweep import faultplan, trial
from raysweep.errors import RaysweepError, StorageUnavailableError
from raysweep.runs.folder import SweepFolder
from raysweep.storage.objects.local import LocalStore
from raysweep.storage.objects.opening import open_store
from raysweep.testing import FaultPlan
from raysweep.testing.trials import run_trial
from raysweep.trial.session import TrialSession

pytestmark = pytest.mark.faults


@pytest.fixture
def plan(tmp_path: Path) -> FaultPlan:
    return FaultPlan(str(tmp_path / "faults"))


def steps(config: dict[str, float]) -> None:
    for step in range(1, 6):
        trial.report({"loss": config["x"] / step})


def test_a_plan_goes_through_json_as_it_is(plan: FaultPlan) -> None:
    full = (
        plan.fail_at(trial=1, step=2, attempt=3, error=OSError("disk full"), times=4)
        .kill_worker_at(trial=1, on="checkpoint")
        .exit_at(step=0, code=7)
        .hang_at(trial=2, seconds=0.5)
        .delay_at("append", 0.1)
        .delay_at("StartTrial", 0.1, trial=3)
        .kill_controller_at(append=7, when="after")
        .kill_controller_at(command="EndSweep")
        .fail_store("put", match="checkpoints/**", times=2)
    )
    assert FaultPlan.from_json(full.to_json(), plan.folder) == full
    assert plan.faults == ()
    with pytest.raises(RaysweepError, match="no plan of faults"):
        FaultPlan.from_json('{"faults": [{"place": "moon"}]}', "x")


@pytest.mark.parametrize(
    "make",
    [
        lambda plan: plan.fail_at(times=0),
        lambda plan: plan.delay_at("report", -1),
        lambda plan: plan.kill_controller_at(),
        lambda plan: plan.kill_controller_at(append=1, command="EndSweep"),
        lambda plan: plan.fail_at(error=type("Local", (Exception,), {"__qualname__": "f.<locals>.Local"})),
    ],
)
def test_a_plan_that_cannot_work_is_refused(plan: FaultPlan, make: Callable[[FaultPlan], object]) -> None:
    with pytest.raises(RaysweepError):
        make(plan)


def test_without_a_plan_nothing_is_wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert faultplan.current() is None
    assert type(open_store(tmp_path)) is LocalStore
    session = cast(TrialSession, object())
    trial.activate(session)
    assert trial._session is session, "no report comes by anything"
    trial.activate(None)
    monkeypatch.setenv(faultplan.VARIABLE, str(tmp_path / "none.json"))
    with pytest.raises(RaysweepError, match="cannot be read"):
        faultplan.current()


def test_a_fault_fires_once_and_says_so(plan: FaultPlan) -> None:
    plan = plan.fail_at(step=3, error=OSError("disk full")).fail_at(trial=5)
    with plan.active():
        (failed,) = run_trial(steps, {"x": 1.0})
        (fine,) = run_trial(steps, {"x": 1.0})
    assert [len(failed.reports), len(fine.reports)] == [2, 5]
    assert failed.error is not None
    assert (failed.error["type"], failed.error["message"]) == ("OSError", "disk full")
    assert plan.fired() == (1, 0)
    with pytest.raises(AssertionError, match=r"1 of 2 faults did not fire: raise at report \(trial=5"):
        plan.assert_fired()
    assert faultplan.current() is None


def test_attempts_and_times_are_counted(plan: FaultPlan) -> None:
    plan = plan.fail_at(step=2, attempt=2).fail_at(step=0, times=2).fail_at(step=4)
    with plan.active():
        attempts = run_trial(steps, {"x": 1.0}, max_failures=9)
    # Two never begin; the second of these was the second attempt, so the first fault found no report of it.
    assert [len(attempt.reports) for attempt in attempts] == [0, 0, 3, 5]
    assert plan.fired() == (0, 2, 1)


def test_a_hang_takes_its_time(plan: FaultPlan) -> None:
    plan = plan.hang_at(step=2, seconds=0.2)
    began = time.monotonic()
    with plan.active():
        run_trial(steps, {"x": 1.0})
    assert time.monotonic() - began >= 0.2
    plan.assert_fired()


def test_run_trial_refuses_to_be_killed(plan: FaultPlan) -> None:
    with (
        plan.kill_worker_at(step=1).active(),
        pytest.raises(RaysweepError, match="test these with run_sweep"),
    ):
        run_trial(steps, {"x": 1.0})


def test_the_store_fails_where_it_is_told_to(plan: FaultPlan, tmp_path: Path) -> None:
    plan = plan.fail_store("put", match="journal/*", times=2).fail_store("get", match="sweep.json")
    with plan.active():
        store = open_store(tmp_path / "store")
        store.put("s/sweep.json", b"1")
        for _ in range(2):
            with pytest.raises(StorageUnavailableError, match="planned fault"):
                store.put_if_absent("s/journal/000000000001.jsonl", b"1")
        assert store.put_if_absent("s/journal/000000000001.jsonl", b"1")
        with pytest.raises(StorageUnavailableError):
            store.get("s/sweep.json")
        assert store.get("s/sweep.json") == b"1"
    plan.assert_fired()


def test_an_append_is_retried_until_the_storage_is_back(plan: FaultPlan, tmp_path: Path) -> None:
    plan = plan.fail_store("put", match="journal/*", times=3)
    with plan.active():
        claim = SweepFolder(open_store(tmp_path / "store"), "s").journal().claim(lambda generation: b"{}")
    assert claim.generation == 1
    assert plan.fired() == (3,)


@pytest.mark.parametrize(
    ("when", "is_written"), [("before", False), ("after", True)], ids=["before", "after"]
)
def test_a_process_dies_around_an_append(
    plan: FaultPlan, tmp_path: Path, when: str, is_written: bool
) -> None:
    plan = plan.kill_controller_at(append=1, when=when)  # type: ignore[arg-type]
    script = (
        "import sys\n"
        "from raysweep.runs.folder import SweepFolder\n"
        "from raysweep.storage.objects.opening import open_store\n"
        "journal = SweepFolder(open_store(sys.argv[1]), 's').journal()\n"
        "list(journal.read())\n"
        "journal.claim(lambda generation: b'{}')\n"
    )
    with plan.active():
        ended = subprocess.run([sys.executable, "-c", script, str(tmp_path / "store")], check=False)
        assert ended.returncode == -signal.SIGKILL
        assert (tmp_path / "store/s/journal/000000000001.jsonl").exists() is is_written
        ended = subprocess.run([sys.executable, "-c", script, str(tmp_path / "store")], check=False)
        assert ended.returncode == 0
    plan.assert_fired()


def test_marks_are_exclusive_between_processes(plan: FaultPlan) -> None:
    """Eight processes come by at once; the fault is for three of them."""
    plan = plan.exit_at(step=0, code=9, times=3)
    script = "from raysweep import faultplan\nfaultplan.reach_in_trial('begin', 0, 1)\n"
    with plan.active():
        processes = [subprocess.Popen([sys.executable, "-c", script], env=os.environ) for _ in range(8)]
        codes = sorted(process.wait() for process in processes)
    assert codes == [0] * 5 + [9] * 3
    assert plan.fired() == (3,)
