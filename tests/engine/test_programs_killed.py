"""Programs of several kinds under a scheduler: killed, exploited and cut off, and resumed exactly."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.cluster.ray.connection import RayConnection
from raysweep.core.vocabulary.events import CheckpointCommitted
from tests.engine.conftest import Driver, wait_for
from tests.engine.programs import (
    ABOVE,
    ASHA,
    EPOCHS,
    KINDS,
    PLACES,
    PLAIN,
    WATCHED,
    are_exact,
    events_of,
    kill_at,
    program_of,
    rows_of,
    running,
    spec_of,
)
from tests.sampling import first_of

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(1200),
    # Of Ray Train, in this process.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
]


@pytest.mark.parametrize("kind", first_of(KINDS))
def test_under_asha_killed_programs_and_workers_resume_exactly_and_leave_nothing(
    kind: str, ray_cluster: RayConnection, storage: Path, tmp_path: Path
) -> None:
    fields, script = program_of(kind, tmp_path)
    spec = spec_of(storage, **fields, num_samples=3, scheduler=ASHA)
    pids, worker = tmp_path / "pids", {"above": ABOVE[kind]}
    killers = [
        threading.Thread(target=kill_at, args=(pids / "0", 2), daemon=True),
        threading.Thread(target=kill_at, args=(pids / "1", 1), kwargs=worker, daemon=True),
    ]
    for killer in killers:
        killer.start()
    outcome = rs.run_sweep(spec, key="k")
    for killer in killers:
        killer.join(60)
    outcome.raise_for_status()
    attempts = [trial.num_attempts for trial in outcome.trials]
    assert attempts[: len(killers)] == [2] * len(killers)
    for trial in outcome.trials:
        rows = rows_of(storage, trial.number)
        assert are_exact(rows)
        assert rows[-1]["epoch"] == EPOCHS or trial.state == "stopped"
    assert not running(str(script))


@pytest.mark.parametrize("kind", first_of(KINDS))
def test_under_asha_the_programs_of_a_killed_controller_end_and_resume_from_their_checkpoints(
    kind: str,
    address: str,
    storage: Path,
    tmp_path: Path,
    drive: Callable[..., Driver],
) -> None:
    fields, script = program_of(kind, tmp_path)
    spec = spec_of(storage, **fields, num_samples=3, scheduler=ASHA)
    (tmp_path / "pids" / "hold").touch()
    driver = drive(spec, address=address)
    # Of both trials that run: each has a checkpoint to resume from.
    wait_for(lambda: {event.trial for event in events_of(storage, CheckpointCommitted)} >= {0, 1}, 600)
    os.kill(driver.pid, signal.SIGKILL)
    made = {event.trial: event.report + 1 for event in events_of(storage, CheckpointCommitted)}
    wait_for(lambda: not running(str(script)), 60)
    (tmp_path / "pids" / "hold").unlink()
    outcome = drive(spec, address=address, takeover=True).outcome()
    assert outcome.generation == 2
    assert [trial.num_attempts for trial in outcome.trials] == [2, 2, 1]
    for trial in outcome.trials:
        assert trial.state in ("completed", "stopped")
        rows = rows_of(storage, trial.number)
        assert are_exact(rows)
        assert rows[-1]["epoch"] == EPOCHS or trial.state == "stopped"
        last = next(row["epoch"] for row in rows if row["attempt"] == trial.num_attempts)
        assert last == made.get(trial.number, 0) + 1, "it resumed from its checkpoint"
    assert not running(str(script))


def test_pbt_resumes_a_program_from_another_trials_checkpoint_under_a_changed_config(
    ray_cluster: RayConnection, storage: Path, tmp_path: Path
) -> None:
    pids, script = tmp_path / "pids", tmp_path / "train.py"
    pids.mkdir()
    script.write_text(PLAIN)
    spec = spec_of(
        storage,
        command=["{python}", str(script), "--pids", str(pids), *PLACES],
        program=WATCHED,
        param_space={"x": {"uniform": [0, 1]}},
        num_samples=2,
        max_concurrent_trials=2,
        scheduler={
            "pbt": {
                "perturbation_interval": 2,
                "quantile_fraction": 0.5,
                "time_attr": "epoch",
                "synch": True,
                "max_t": EPOCHS,
            }
        },
    )
    killer = threading.Thread(target=kill_at, args=(pids / "0", 3), daemon=True)
    killer.start()
    outcome = rs.run_sweep(spec, key="k")
    killer.join(60)
    outcome.raise_for_status()
    used = [{row["x"] for row in rows_of(storage, trial.number)} for trial in outcome.trials]
    assert max(map(len, used)) > 1, "a program began again with another config"
    for trial in outcome.trials:
        rows = rows_of(storage, trial.number)
        assert rows[-1]["epoch"] == EPOCHS
        assert all(row["loss"] == row["x"] / row["epoch"] for row in rows)
    assert not running(str(script))


@pytest.mark.slow
def test_a_deadline_ends_a_program_and_the_reopened_sweep_resumes_it(
    ray_cluster: RayConnection, storage: Path, tmp_path: Path
) -> None:
    pids, script = tmp_path / "pids", tmp_path / "train.py"
    pids.mkdir()
    script.write_text(PLAIN.replace("time.sleep(0.2)", "time.sleep(5)"))
    fields: dict[str, Any] = {
        "command": ["{python}", str(script), "--pids", str(pids), *PLACES],
        "program": WATCHED,
        "param_space": {"x": {"uniform": [0, 1]}},
        "num_samples": 1,
    }
    begun = time.monotonic()
    cut = rs.run_sweep(spec_of(storage, **fields, stop={"time_budget_s": 20.0, "grace_s": 2.0}), key="k")
    assert cut.status == "budget"
    assert time.monotonic() - begun < 90
    assert not running(str(script)), "at the end of the sweep nothing of it is left"
    before = rows_of(storage, 0)
    script.write_text(PLAIN)
    outcome = rs.run_sweep(spec_of(storage, **fields, stop={"time_budget_s": 600.0, "grace_s": 2.0}), key="k")
    outcome.raise_for_status()
    rows = rows_of(storage, 0)
    assert are_exact(rows)
    assert rows[-1]["epoch"] == EPOCHS
    assert rows[: len(before)] == before
    assert not running(str(script))


def test_a_line_that_a_kill_cuts_is_no_score_and_reaches_no_target(
    ray_cluster: RayConnection, storage: Path, tmp_path: Path
) -> None:
    """`loss=1` of `loss=14.9` would end the sweep as a success."""
    script = tmp_path / "cut.py"
    script.write_text(
        "import os, signal, sys\n"
        "done = sys.argv[1]\n"
        "if not os.path.exists(done):\n"
        "    open(done, 'w').close()\n"
        "    os.write(1, b'loss=15.2\\nloss=1')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "os.write(1, b'loss=15.2\\nloss=14.9\\n')\n"
    )
    spec = rs.SweepSpec(
        name="t",
        command=["{python}", str(script), f"{tmp_path}/done-{{number}}"],
        program={"metrics": {"stdout": r"loss=(?P<loss>\S+)"}},
        param_space={"x": {"uniform": [0, 1]}},
        metric="loss",
        mode="min",
        num_samples=2,
        stop={"target": 2.0},
        storage_path=str(storage),
    )
    outcome = rs.run_sweep(spec, key="k")
    assert outcome.status == "completed"
    assert [(trial.state, trial.num_attempts, trial.score) for trial in outcome.trials] == [
        ("completed", 2, 14.9)
    ] * 2
    assert 1.0 not in [row["loss"] for trial in (0, 1) for row in rows_of(storage, trial)]
