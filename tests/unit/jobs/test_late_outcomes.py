"""Outcomes that are seen late."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from raysweep import errors
from raysweep.outcome import SweepOutcome
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.view import RunView
from raysweep.specs import SweepSpec
from tests.unit.jobs.api import Api, serving
from tests.unit.jobs.attaching import finish, quick, spec, submit, waited

__all__ = ["quick", "spec"]


class Late:
    """Hides an outcome for a while, as a file system does that remembers what was not there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, looks: int) -> None:
        self.looks = looks
        self.listed = 0
        read, again = SweepFolder.read_outcome, RunView.look_again

        def read_late(folder: SweepFolder) -> SweepOutcome | None:
            self.looks -= 1
            return read(folder) if self.looks < 0 else None

        def look_again(view: RunView) -> None:
            self.listed += 1
            again(view)

        monkeypatch.setattr(SweepFolder, "read_outcome", read_late)
        monkeypatch.setattr(RunView, "look_again", look_again)


def test_an_outcome_that_is_seen_late_is_waited_for(spec: SweepSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raysweep.jobs.attach.LATE_S", 20.0)
    with serving(Api()) as api:
        for status, code, log in (("SUCCEEDED", 0, ""), ("FAILED", 1, "raysweep-outcome: failed\n")):
            own = spec.replace(name=f"s-{status}")
            job = submit(api, own)
            outcome = finish(job, own.placed(), "completed" if code == 0 else "failed")
            api.end(job.job_id, status, code=code, log=log)
            late = Late(monkeypatch, 3)
            assert waited(api, job) == outcome
            assert late.listed >= 2, "asked again in the same way"


def test_a_rerun_waits_for_an_outcome_that_is_seen_late(
    spec: SweepSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raysweep.jobs.attach.LATE_S", 20.0)
    with serving(Api()) as api:
        job = submit(api, spec)
        outcome = finish(job, spec.placed())
        api.end(job.job_id, "SUCCEEDED", code=0)
        Late(monkeypatch, 3)
        again = submit(api, spec)
        assert again.how == "finished"
        assert waited(api, again) == outcome


def test_a_run_whose_folder_was_removed_is_run_again(spec: SweepSpec, tmp_path: Path) -> None:
    with serving(Api()) as api:
        first = submit(api, spec)
        finish(first, spec.placed())
        api.end(first.job_id, "SUCCEEDED", code=0)
        shutil.rmtree(tmp_path / "sweeps")
        again = submit(api, spec)
        assert (again.number, again.how) == (2, "submitted")
        # One that was noted here, and left nothing, is another matter: both causes are named.
        api.end(again.job_id, "SUCCEEDED", code=0)
        with pytest.raises(errors.StorageNotSharedError, match=r"s3://bucket.*folder was removed"):
            submit(api, spec)
