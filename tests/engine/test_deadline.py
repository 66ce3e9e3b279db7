"""A real sweep comes to its deadline in time, hands over, and continues under a later one; budgets."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.core.vocabulary.events import SlotOpened, SpecChanged
from raysweep.errors import SpecChangedError
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.replay import newest_spec
from raysweep.runs.stored_outcome import decode_head, outcome_of
from raysweep.storage.checkpoints.store import restore_uri
from raysweep.storage.objects.opening import open_store
from tests.engine.conftest import Driver, wait_for

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
Events = Callable[..., list[Any]]
Lines = Callable[[], list[list[str]]]
MakeSpec = Callable[..., rs.SweepSpec]


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(
    ("step_s", "budget_s"),
    [pytest.param(0.7, 15.0), pytest.param(8.0, 40.0, marks=pytest.mark.slow)],
)
@pytest.mark.servers
def test_it_ends_in_time_and_goes_on_where_it_was(
    step_s: float,
    budget_s: float,
    make_spec: MakeSpec,
    storage: Path,
    tmp_path: Path,
    events: Events,
    lines: Lines,
    record_property: Callable[..., None],
) -> None:
    deadline = datetime.now(UTC) + timedelta(seconds=budget_s)
    space = {"steps": 10_000, "pause": step_s}
    spec = make_spec("steps", space, num_samples=4, stop={"deadline": deadline, "grace_s": 10})
    outcome = rs.run_sweep(spec, key="k")
    late_s = time.time() - deadline.timestamp()
    record_property("ended_after_deadline_s", late_s)
    assert late_s < 10
    assert outcome.status == "deadline"
    assert outcome.ended_by is not None
    assert outcome.ended_by.rule == "stop.deadline"
    assert ", ended by deadline" in outcome.why
    assert outcome.usage is not None
    assert outcome.usage.cpu_hours > 0
    cut = [trial for trial in outcome.trials if trial.checkpoint_uri]
    assert cut, "the workers were up in time"
    assert outcome.best is not None
    assert outcome.best.score == min(trial.score for trial in cut if trial.score is not None)
    for trial in cut:
        # The last thing that it did is in its checkpoint: nothing was computed for nothing.
        assert trial.state == "cancelled"
        restore_uri(trial.checkpoint_uri or "", tmp_path / trial.trial_id)
        at = json.loads((tmp_path / trial.trial_id / "at.json").read_text())["step"]
        assert at == trial.metrics["step"]
        begun = max(int(line[2]) for line in lines() if line[:2] == ["step", str(trial.number)])
        assert begun - at <= 1

    # The same words again: what it gave.
    assert rs.run_sweep(spec, key="k") == outcome
    with pytest.raises(SpecChangedError):
        rs.run_sweep(spec.replace(max_concurrent_trials=1), key="k")
    passed = spec.replace(stop=spec.stop.replace(deadline=deadline + timedelta(seconds=0.01)))
    # It may have ended before its time, with nothing that could still report.
    time.sleep(max(0.0, deadline.timestamp() + 0.1 - time.time()))
    with pytest.raises(rs.SpecError, match="has passed"):
        rs.run_sweep(passed, key="k")
    more = datetime.now(UTC) + timedelta(seconds=budget_s)
    later = spec.replace(stop=spec.stop.replace(deadline=more))
    again = rs.run_sweep(later, key="k")
    assert again.status == "deadline"
    resumed = {int(line[1]): int(line[3]) for line in lines() if line[0] == "resumed"}
    # One that began when another had ended early waits behind both.
    stood = {trial.number: trial.metrics["step"] for trial in cut}
    assert set(resumed) >= {trial.number for trial in cut[:2]}
    assert resumed.items() <= stood.items()
    for number, step in resumed.items():
        assert again[number].metrics["step"] > step
    assert again.generation == 2
    assert again.ended_at > outcome.ended_at
    (folder,) = storage.glob("t-*")
    archived = decode_head((folder / "outcome-000001.json").read_bytes())
    trials = (folder / archived["trials_object"]).read_bytes()
    assert outcome_of(archived, trials, str(folder)) == outcome
    assert SweepFolder(open_store(storage), folder.name).read_outcome() == again
    (changed,) = events(SpecChanged)
    assert changed.deadline == more.isoformat()
    assert rs.run_sweep(later, key="k") == again
    folder_of = SweepFolder(open_store(str(storage)), again.sweep_id)
    record = folder_of.read_spec()
    assert record is not None
    assert newest_spec(folder_of, record) == later, "what `raysweep resume` runs"


@pytest.mark.slow
def test_a_budget_is_right_though_the_controller_is_killed_five_times(
    make_spec: MakeSpec,
    address: str,
    storage: Path,
    events: Events,
    lines: Lines,
    drive: Callable[..., Driver],
    record_property: Callable[..., None],
) -> None:
    """One worker of one CPU. Truth: from each worker's coming up to the kill, which we time ourselves."""
    budget_s = 24.0
    stop = {"budget": {"cpu_hours": budget_s / 3600}}
    spec = make_spec("forever", num_samples=1, stop=stop, max_concurrent_trials=1)
    killed_at = []
    for kill in range(5):
        driver = drive(spec, address=address)
        wait_for(lambda kill=kill: len(events(SlotOpened)) > kill)  # type: ignore[misc]
        time.sleep(2.6)
        os.kill(driver.pid, signal.SIGKILL)
        killed_at.append(time.time())
        driver.process.wait()
    outcome = drive(spec, address=address).outcome()
    assert outcome.status == "budget"
    assert outcome.ended_by is not None
    assert outcome.ended_by.rule == "stop.budget.cpu_hours"
    opened = [event.at for event in events(SlotOpened)]
    assert len(opened) == 6
    used_s = sum(end - start for start, end in zip(opened, [*killed_at, outcome.ended_at], strict=True))
    record_property("used_s", used_s)
    assert outcome.usage is not None
    # A heartbeat every 2 s: a killed controller's last moments are all that can be missing.
    assert 0 <= used_s - outcome.usage.cpu_hours * 3600 < 5 * 2.1
    # The last trial was asked to end a moment before.
    assert budget_s - 1 <= outcome.usage.cpu_hours * 3600 < budget_s + 3
