"""What was stored in these formats, by whatever version, is read, resumed and verified."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from raysweep.outcome import SweepOutcome, TrainOutcome
from raysweep.runs.folder import SweepFolder
from raysweep.specs.identity import sweep_id
from raysweep.storage.objects.opening import open_store
from raysweep.verify import verify_sweep
from tests.engine import stored
from tests.golden.record_stored import CUT
from tests.unit.conftest import s3_url as s3_url  # a fixture

ROOT = Path(__file__).parents[2]


@pytest.fixture
def expected(s3_url: str) -> dict[str, Any]:
    """The outcomes that were recorded with it; its objects lie in the bucket."""
    store = open_store("s3://bucket")
    with ZipFile(ROOT / "tests" / "golden" / "stored.zip") as archive:
        for name in archive.namelist():
            if name != "expected.json":
                store.put(name, archive.read(name))
        outcomes: dict[str, Any] = json.loads(archive.read("expected.json"))
    return outcomes


def folder_of(name: str) -> SweepFolder:
    return SweepFolder(open_store(stored.STORAGE), sweep_id(name, "k"))


def found(outcome: dict[str, Any]) -> list[Any]:
    """What it says of each trial, without times and places.

    A trial that is stopped may report once more before it hears of it: that counts, and is nothing else.
    What a search computes has other last digits on another kind of processor: here, eleven places count.
    """
    return rounded(
        [
            (
                trial["number"],
                trial["state"],
                trial["config"],
                trial["metrics"],
                trial["reports"] if trial["state"] != "stopped" else None,
            )
            for trial in outcome["trials"]
        ]
    )


def rounded(said: list[Any]) -> list[Any]:
    """The same with eleven decimal places."""
    same: list[Any] = json.loads(json.dumps(said), parse_float=lambda text: round(float(text), 11))
    return same


def run_again(*what: str) -> dict[str, Any]:
    """The outcome of the same script, run by this version."""
    process = subprocess.run(
        [sys.executable, "-m", "tests.engine.stored", *what],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert process.returncode == 0, process.stderr
    outcome: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return outcome


def test_what_has_ended_comes_back_as_it_was(expected: dict[str, Any]) -> None:
    # As outcomes, not as text: fields that came later have their defaults.
    ended, was = run_again("sweep", "ended"), expected["ended"]
    assert SweepOutcome.from_json(json.dumps(ended)) == SweepOutcome.from_json(json.dumps(was))
    trained, was = run_again("training"), expected["trained"]
    assert TrainOutcome.from_json(json.dumps(trained)) == TrainOutcome.from_json(json.dumps(was))
    assert verify_sweep(folder_of("ended")).is_sound


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(600)
def test_a_sweep_goes_on_to_the_same_end(expected: dict[str, Any]) -> None:
    outcome = run_again("sweep", "going")
    assert found(outcome) == found(expected["going"])
    assert outcome["counts"] == expected["going"]["counts"]
    went_on = [trial["number"] for trial in outcome["trials"] if trial["metrics"]["from"] > 0]
    assert went_on == [CUT], "the trial that was cut continues from its checkpoint"
    assert verify_sweep(folder_of("going")).is_sound
