"""Six nights that go wrong between three good ones, and a night that is killed in each of its steps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raysweep.judge.model import digest_of_model
from raysweep.pipeline import run_pipeline
from raysweep.runs.across_runs.champions import read_champion
from raysweep.storage.objects.opening import open_store
from tests.engine.conftest import ROOT, wait_for
from tests.engine.six_nights import HERE, LINE, Ended, Night, Nights, six_bad_nights

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
    pytest.mark.usefixtures("ray_cluster"),
]
PROGRAM = (
    "import json, sys; from raysweep.pipeline import run_pipeline; asked = json.loads(sys.argv[1]);"
    " run_pipeline(asked['night'], key=asked['key'], address=asked['address'])"
)


def pipeline(night: Night) -> dict[str, Any]:
    return {name: dict(getattr(night, name)) for name in ("sweep", "gate", "train", "judge")}


def play(night: Night) -> Ended:
    outcome = run_pipeline(pipeline(night), key=night.key)
    assert outcome.train is not None
    assert outcome.judgement is not None
    return Ended(
        verdict=outcome.judgement.verdict,
        reasons=outcome.judgement.reasons,
        released=outcome.released,
        model_uri=outcome.train.model_uri or "",
    )


def test_of_nine_nights_the_three_good_ones_are_released(storage: Path) -> None:
    six_bad_nights(play, storage)


def test_a_night_killed_in_each_of_its_steps_releases_the_same_model(storage: Path, address: str) -> None:
    nights, undisturbed = Nights(storage), Nights(Path(f"{storage}-2"))
    play(nights.night("first", 20))
    play(undisturbed.night("first", 20))
    slow = {"judge": {"evaluate": f"{HERE}:slow_score"}, "pause_s": 0.5}
    night = nights.night("second", 45, **slow)
    (nights.data / "log").write_text("")
    # The sweep's trial, the gate's, the training, the first evaluation: each begins, and is killed.
    for word, count in (("search", 1), ("search", 3), ("train", 1), ("score", 1)):
        _kill_when_begun(nights, night, address, word, count)
    ended = play(night)
    assert (ended.verdict, ended.released) == ("passed", True)
    wanted = play(replace(undisturbed.night("second", 45, **slow)))
    assert digest_of_model(ended.model_uri) == digest_of_model(wanted.model_uri)
    record = read_champion(open_store(storage), LINE)
    assert record.released is not None
    assert record.released.source == ended.model_uri
    assert [each.promoted for each in record.history] == [True, True]


def _kill_when_begun(nights: Nights, night: Night, address: str, word: str, count: int) -> None:
    asked = json.dumps({"night": pipeline(night), "key": night.key, "address": address})
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, asked], cwd=ROOT)

    def has_begun() -> bool:
        return Counter((nights.data / "log").read_text().split())[word] >= count

    wait_for(lambda: has_begun() or process.poll() is not None, timeout_s=120)
    assert process.poll() is None, f"it ended before {word} began"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
