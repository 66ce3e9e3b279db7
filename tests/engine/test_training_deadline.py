"""Trainings whose number of workers may change, at their deadline: on a real local Ray of two CPUs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.errors import TrainingFailedError
from raysweep.threads import start_thread
from tests.engine.conftest import wait_for
from tests.engine.trainables import note
from tests.engine.trainings import taken

ray = pytest.importorskip("ray")

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("ray_cluster"),
    # Ray Train, which here runs in this process, uses pydantic's older names.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
]


def answering(config: dict[str, Any]) -> None:
    """Steps of 0.05 s, of which few are stored.

    The step `config["save_at"]`; one when the file `config["save"]` is there; and one where that is asked
    for, once `config["go"]` is there.
    """
    import ray.train
    from ray.train.collective import broadcast_from_rank_zero

    def is_there(name: str) -> bool:
        return bool(broadcast_from_rank_zero(Path(config.get(name, "/nowhere")).exists()))

    context = rs.get_context()
    step = 0
    if (found := rs.get_checkpoint()) is not None:
        with found as folder:
            step = int((folder / "step").read_text())
    note(config, "begin", context.rank, context.world_size, step)
    said: set[str] = set()

    def say(word: str) -> None:
        if word not in said:
            said.add(word)
            note(config, word, context.rank, context.world_size, step)

    while True:
        step += 1
        time.sleep(0.05)
        is_asked = rs.should_checkpoint()
        if is_asked:
            say("asked")
            if config.get("dies") and context.rank == 1 and not Path(config["dies"]).exists():
                Path(config["dies"]).touch()
                os.kill(os.getpid(), signal.SIGKILL)
        info = ray.train.get_preemption_info()
        if info is not None and info.preempted_ranks:
            say("drained")
        is_to_save = is_there("save") and "saved" not in said
        if (is_there("go") and is_asked) or is_to_save or step == config.get("save_at"):
            said.add("saved")
            note(config, "stored", context.rank, step)
            with rs.new_checkpoint() as folder:
                (folder / "step").write_text(str(step))
                # Whoever asked for it ends this worker before it returns.
                rs.report({"step": step}, checkpoint=folder if context.rank == 0 else None)
        elif step > config.get("raise_after", step):
            raise ValueError("as the test asks")


@pytest.fixture(autouse=True)
def all_is_free(ray_cluster: object) -> None:
    """As many workers begin as have room: those of the test before have to be gone."""
    wait_for(lambda: ray.available_resources().get("CPU", 0) >= 2, timeout_s=30)


@pytest.fixture
def go(tmp_path: Path) -> Path:
    return tmp_path / "go"


@pytest.fixture
def said(log: Path) -> Callable[[str], list[list[int]]]:
    """The numbers after a word, of each line that begins with it."""

    def find(word: str) -> list[list[int]]:
        lines = [line.split() for line in log.read_text().splitlines()]
        return [[int(number) for number in words[1:]] for words in lines if words[0] == word]

    return find


@pytest.fixture
def make_spec(tmp_path: Path, log: Path, go: Path) -> Callable[..., rs.TrainSpec]:
    def make(config: dict[str, Any] | None = None, **fields: Any) -> rs.TrainSpec:
        return rs.TrainSpec(
            trainable=answering,
            config={"log": str(log), "go": str(go), **(config or {})},
            scaling={"num_workers": [1, 2], "resize_interval_s": 0},
            storage_path=str(tmp_path / "runs"),
            **{"failure": {"max_failures": 0, "max_preemptions": 0}, **fields},
        )

    return make


def at_once(ends_in_s: float = 1000) -> dict[str, Any]:
    """A deadline whose grace period has begun."""
    deadline = datetime.now(UTC) + timedelta(seconds=ends_in_s)
    return {"deadline": deadline.isoformat(), "grace_s": ends_in_s}


def test_the_checkpoint_of_the_grace_period_ends_the_run_and_nobody_is_started_for_more_room(
    make_spec: Callable[..., rs.TrainSpec], said: Callable[[str], list[list[int]]], go: Path
) -> None:
    spec = make_spec(stop=at_once())
    with taken(1) as give_back:
        running = start_thread(lambda: rs.run_training(spec, key="k"), "training")
        wait_for(lambda: said("asked") or running.done(), timeout_s=120)
        give_back()
        go.touch()
        outcome = running.result(90)
    assert (outcome.status, outcome.ended_by) == ("completed", "deadline")
    assert said("begin") == [[0, 1, 0]], "one worker, once"
    (stored,) = said("stored")
    assert outcome.metrics == {"step": stored[1]}
    assert (Path(outcome.model_uri or "") / "step").read_text() == str(stored[1])
    assert {each.workers for each in outcome.history} == {1}
    assert outcome.usage is not None
    assert outcome.usage.active_s < 900, "it did not wait for the deadline"


@pytest.mark.slow
def test_workers_that_are_started_again_in_the_grace_period_are_asked_too(
    make_spec: Callable[..., rs.TrainSpec], said: Callable[[str], list[list[int]]], go: Path, tmp_path: Path
) -> None:
    go.touch()
    spec = make_spec({"dies": str(tmp_path / "died")}, stop=at_once(), failure={"max_failures": 1})
    outcome = rs.run_training(spec, key="k")
    assert (outcome.status, outcome.ended_by) == ("completed", "deadline")
    assert sorted(said("begin")) == [[0, 2, 0]] * 2 + [[1, 2, 0]] * 2
    assert outcome.metrics == {"step": said("stored")[-1][1]}


def soon() -> dict[str, Any]:
    return {"deadline": (datetime.now(UTC) + timedelta(seconds=3)).isoformat(), "grace_s": 1}


@pytest.mark.slow
def test_a_run_that_waits_for_room_ends_at_its_deadline_with_its_last_checkpoint(
    make_spec: Callable[..., rs.TrainSpec], said: Callable[[str], list[list[int]]]
) -> None:
    spec = make_spec({"save_at": 3, "raise_after": 5})
    with pytest.raises(TrainingFailedError, match="as the test asks"):
        rs.run_training(spec, key="k")
    begun = len(said("begin"))
    with taken(2):
        began = time.monotonic()
        outcome = rs.run_training(spec.replace(stop=soon()), key="k")
    assert (outcome.status, outcome.ended_by, outcome.resumed) == ("completed", "deadline", True)
    assert outcome.metrics == {"step": 3}
    assert 2 < time.monotonic() - began < 30
    assert len(said("begin")) == begun, "nobody was started"


def test_a_run_that_waits_for_room_and_has_no_checkpoint_fails_at_its_deadline(
    make_spec: Callable[..., rs.TrainSpec], said: Callable[[str], list[list[int]]]
) -> None:
    with taken(2):
        began = time.monotonic()
        with pytest.raises(TrainingFailedError, match=r"stop\.deadline came before the first checkpoint"):
            rs.run_training(make_spec(stop=soon()), key="k")
    assert 2 < time.monotonic() - began < 30
    assert said("begin") == []
