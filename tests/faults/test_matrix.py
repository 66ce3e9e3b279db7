"""Each isolation, one rank or two, each scheduler, whatever is killed: it ends as an undisturbed sweep."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.core.vocabulary.events import TrialStarted
from raysweep.runs.folder import SweepFolder
from raysweep.storage.objects.opening import open_store
from raysweep.verify import verify_sweep
from tests.engine.conftest import Driver, wait_for
from tests.engine.results import shown

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

SCHEDULERS: dict[str, Any] = {
    "fifo": "fifo",
    "asha": {"asha": {"max_t": 6, "grace_period": 1, "reduction_factor": 2}},
}
KILLS = {"0": 4, "2": 1}
SAMPLE = [("process", 2, "asha", "controller"), ("actor", 2, "fifo", "rank 1")]


def matrix() -> list[Any]:
    """All of it; the suite of every day runs a sample. Of `both`, it is the last rank that dies."""
    every = itertools.product(
        ("worker", "process", "actor"), (1, 2), SCHEDULERS, ("rank 0", "rank 1", "controller", "both")
    )
    return [
        pytest.param(*each, marks=pytest.mark.servers if each in SAMPLE else pytest.mark.slow)
        for each in every
        if each[1] > 1 or each[3] != "rank 1"
    ]


@pytest.mark.parametrize(("isolation", "ranks", "scheduler", "killed"), matrix())
def test_whatever_is_killed_the_outcome_is_the_same(
    isolation: str,
    ranks: int,
    scheduler: str,
    killed: str,
    make_spec: Callable[..., rs.SweepSpec],
    drive: Callable[..., Driver],
    address: str,
    lines: Callable[[], list[list[str]]],
    events: Callable[..., list[Any]],
    storage: Path,
    tmp_path: Path,
) -> None:
    go = tmp_path / "go"
    go.touch()
    kills_rank = killed.startswith("rank")
    dies = 0 if killed == "rank 0" else ranks - 1

    def spec(kills: dict[str, int]) -> rs.SweepSpec:
        return make_spec(
            "tests.engine.gangs:walk",
            {"slope": {"uniform": [-1, 1]}, "kills": kills, "dies": dies, "go": str(go)},
            num_samples=4,
            isolation=isolation,
            scheduler=SCHEDULERS[scheduler],
            max_concurrent_trials=1,
            **({"scaling": {"num_workers": ranks}} if ranks > 1 else {}),
        )

    undisturbed = rs.run_sweep(spec({}), key="undisturbed")
    assert undisturbed.status == "completed"
    assert (undisturbed.counts.get("stopped", 0) > 0) == (scheduler == "asha")
    for met in tmp_path.glob("log.*"):  # where the ranks have met
        shutil.rmtree(met)
    before = len(lines())
    disturbed = spec({} if killed == "controller" else KILLS)
    if not kills_rank:
        go.unlink()
        driver = drive(disturbed, address=address)
        attempt = 2 if killed == "both" else 1
        reached = [["step", "0", str(attempt), str(rank), "5"] for rank in range(ranks)]
        wait_for(lambda: all(each in lines()[before:] for each in reached))
        # What a killed controller had no time to write has not happened, and gets the same number again.
        wait_for(lambda: (0, attempt) in {(each.trial, each.attempt) for each in events(TrialStarted)})
        os.kill(driver.pid, signal.SIGKILL)
        driver.process.wait()
        go.touch()
    outcome = rs.run_sweep(disturbed, key="k")

    assert without_kills(outcome) == without_kills(undisturbed)
    assert outcome.generation == (1 if kills_rank else 2)
    resumed = sorted(words[1:5] for words in lines()[before:] if words[0] == "resumed" and words[1] == "0")
    expected = "23" if killed == "both" else "2"
    assert [words[:3] for words in resumed] == [
        ["0", attempt, str(rank)] for attempt in expected for rank in range(ranks)
    ]
    for attempt in expected:  # a rank that lives on may be a step ahead
        steps = {words[3] for words in resumed if words[1] == attempt}
        assert len(steps) == 1, "all ranks from one checkpoint"
        assert steps <= {"3", "4"}, "the newest"
    assert not verify_sweep(SweepFolder(open_store(str(storage)), outcome.sweep_id)).damage


def without_kills(outcome: rs.SweepOutcome) -> dict[str, Any]:
    told = shown(outcome)
    for trial in told["trials"]:
        del trial["config"]["kills"]
    return told
