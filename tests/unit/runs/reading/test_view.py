"""What the storage tells of one run to those who look at it from outside the cluster."""

from __future__ import annotations

import json
from pathlib import Path

from raysweep.runs.reading.view import RunView


def test_the_jobs_of_one_run_are_its_own(tmp_path: Path) -> None:
    view, other = (RunView("sweep", str(tmp_path), run_id) for run_id in ("a-1", "b-2"))
    assert view.newest_job() == 0
    view.note_job(3, "raysweep-a-1-3", "http://head:8265")
    view.note_job(12, "raysweep-a-1-12", "http://head:8265")
    other.note_job(40, "raysweep-b-2-40", "http://head:8265")
    assert (view.newest_job(), other.newest_job()) == (12, 40)


def test_a_noted_job_is_not_noted_anew(tmp_path: Path) -> None:
    view = RunView("train", str(tmp_path), "a-1")
    view.note_job(1, "first", "http://one:8265")
    view.note_job(1, "second", "http://two:8265")
    (file,) = (tmp_path / "a-1" / "jobs").iterdir()
    record = json.loads(file.read_bytes())
    assert (record["format"], record["job_id"], record["address"]) == (1, "first", "http://one:8265")
    assert record["at"] > 1e9
