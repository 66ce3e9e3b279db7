"""What the driver does before and beside a sweep; the whole of it runs in tests/jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from raysweep.errors import SpecError
from raysweep.jobs import driver
from raysweep.jobs.driver import find_request, own_number
from raysweep.jobs.errorline import find_error
from raysweep.jobs.notes import ProgressLines
from raysweep.jobs.request import FILE, FOLDER, JobRequest
from raysweep.outcome import BestTrial, Cancellation, Holder, SweepProgress
from raysweep.runs.folder import SweepFolder
from raysweep.storage.objects.opening import open_store

ROOT = Path(__file__).parents[3]
REQUEST = JobRequest(kind="sweep", key="k", spec={"name": "t"})


def put_request(folder: Path, data: bytes) -> None:
    (folder / FOLDER).mkdir()
    (folder / FOLDER / FILE).write_bytes(data)


def test_the_request_is_found_where_ray_puts_py_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_request(tmp_path, REQUEST.to_json())
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_request() == REQUEST


def test_a_request_of_a_later_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_request(tmp_path, json.dumps({**json.loads(REQUEST.to_json()), "format": 2}).encode())
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SpecError, match="format"):
        find_request()


def test_a_driver_without_a_request_says_so_on_its_last_line() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "raysweep.jobs.driver"],
        cwd=ROOT,
        env=os.environ | {"RAY_ADDRESS": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 2
    record = find_error(ran.stderr)
    assert record is not None
    assert (record["class"], record["retryable"]) == ("SpecError", False)
    assert "is not on sys.path" in record["message"]
    assert len(ran.stderr.splitlines()) == 1


def progress(ended: int, score: float | None = None) -> SweepProgress:
    best = None if score is None else BestTrial(trial_id="00001", score=score)
    return SweepProgress(
        sweep_id="t-1",
        name="t",
        status="running",
        holder=Holder(host="h", pid=1),
        generation=1,
        at=0.0,
        started_at=0.0,
        counts={"completed": ended},
        metric="loss",
        mode="min",
        best=best,
    )


def test_progress_is_said_when_it_is_new_and_not_too_often() -> None:
    said: list[str] = []
    now = [0.0]
    notes = ProgressLines(said.append, 10.0, lambda: now[0])
    for at, ended in ((0, 0), (5, 1), (10, 1), (15, 1), (20, 1), (25, 2), (31, 2)):
        now[0] = float(at)
        notes(progress(ended, 0.25 if ended else None))
    assert said == [
        "running: 0 completed; no loss yet",
        "running: 1 completed; best loss 0.25 (trial 00001)",
        "running: 2 completed; best loss 0.25 (trial 00001)",
    ]


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        (["driver"], 0),
        (["driver", "flights-9f331cd5c0.12"], 12),
        (["driver", "flights-1.0-9f331cd5c0.3"], 3),
        (["driver", "by-hand"], 0),
    ],
)
def test_a_driver_knows_its_number_by_its_entrypoint(arguments: list[str], number: int) -> None:
    assert own_number(arguments) == number


@pytest.mark.parametrize(
    ("before", "since", "number", "ends"),
    [
        (0, None, 1, False),
        (1, None, 1, True),
        (1, None, 2, False),
        (None, 0, 1, True),
        (None, 1, 2, False),
        (None, 2, 2, True),
        (1, 1, 2, False),
        (None, 1, 0, True),
    ],
)
def test_a_training_sees_what_its_storage_asks_of_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: int | None,
    since: int | None,
    number: int,
    ends: bool,
) -> None:
    """A request with a number means that job, whenever it starts; one without, whoever runs it then."""
    monkeypatch.setattr(driver, "LOOK_S", 0.01)
    folder, ended = SweepFolder(open_store(str(tmp_path)), "t"), threading.Event()
    reasons: list[str] = []

    def end(reason: str) -> None:
        reasons.append(reason)
        ended.set()

    def ask(at: float, meant: int | None) -> None:
        if meant is not None:
            folder.write_cancellation(Cancellation(at=at, by="me", reason="enough", number=meant))

    ask(1.0, before)
    with driver._cancellable(str(tmp_path), "t", number, end):
        ask(2.0, since)
        assert ended.wait(1.0 if ends else 0.2) is ends
    assert reasons == (["enough (by me)"] if ends else [])
