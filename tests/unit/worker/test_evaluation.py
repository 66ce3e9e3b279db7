"""Evaluation apart from training on the workers: a report announces itself and waits; a judge judges."""

from __future__ import annotations

import re
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.errors import RaysweepError, TrialStopped
from raysweep.messages import CheckpointCommitted, Job, TrialReported, Upcoming
from raysweep.programs.plan import plan_of_evaluation
from raysweep.programs.runner import Program
from raysweep.specs.trial.evaluate import EvaluateSpec
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.worker.evaluation import Evaluated, EvaluationJob, EvaluationSetup, evaluate
from raysweep.worker.link import SocketLink
from raysweep.worker.session import Session
from raysweep.worker.sweep_info import SweepPlace
from raysweep.worker.wire import FROM_WORKER, read_frames

JOB = Job(trial=3, attempt=1, config={}, seed=1)


class Reporter:
    """A session that reports from a thread of its own, as a trial would."""

    def __init__(self, folder: Path, ahead: int) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._sender = SocketLink(self._ours)
        place = SweepPlace(
            sweep_id="s-1", storage_path=str(folder / "store"), resources={}, evaluations_ahead=ahead
        )
        self.session = Session(JOB, place, self._sender)
        self.done: list[int] = []
        self._source = folder / "source"
        self._source.mkdir()
        (self._source / "f").write_text("x")

    def report(self, count: int) -> threading.Thread:
        def run() -> None:
            for number in range(count):
                self.session.report({"loss": number}, self._source, False)
                self.done.append(number)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def said(self) -> list[Any]:
        self.session.finish()
        self._sender.close()
        self._ours.shutdown(socket.SHUT_RDWR)
        return [message for frame in read_frames(self._theirs, FROM_WORKER) for message in frame]


def settled(is_so: Callable[[], bool], thread: threading.Thread) -> bool:
    """Whether it became so, and stayed so, for what a thread that does not wait needs many times over."""
    for _ in range(200):
        if is_so():
            break
        thread.join(0.05)
    thread.join(0.2)
    return is_so()


@pytest.mark.parametrize("ahead", [0, 2])
def test_a_trial_waits_once_it_is_that_far_ahead(tmp_path: Path, ahead: int) -> None:
    reporter = Reporter(tmp_path, ahead)
    thread = reporter.report(4)
    assert settled(lambda: len(reporter.done) == ahead, thread)
    reporter.session.answer(0)
    assert settled(lambda: len(reporter.done) == ahead + 1, thread)
    reporter.session.answer(3)
    thread.join(10)
    assert reporter.done == [0, 1, 2, 3]


def test_a_stop_ends_the_wait(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path, 0)
    stopped: list[str] = []

    def run() -> None:
        try:
            reporter.session.report({"loss": 0}, tmp_path / "source", False)
        except TrialStopped as error:
            stopped.append(error.reason)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    reporter.session.stop("scheduler")
    thread.join(10)
    assert stopped == ["scheduler"]


def test_a_report_is_announced_and_comes_alone(tmp_path: Path) -> None:
    reporter = Reporter(tmp_path, 5)
    reporter.session.report({"loss": 9}, None, False)
    reporter.report(1).join(10)
    reporter.session.report({"loss": 9}, None, False)
    said = [m for m in reporter.said() if isinstance(m, Upcoming | TrialReported | CheckpointCommitted)]
    rows = [message for message in said if isinstance(message, TrialReported)]
    assert [(row.first, row.is_waiting, len(row.rows)) for row in rows] == [
        (0, False, 1),
        (1, True, 1),
        (2, False, 1),
    ]
    upcoming = Upcoming(*JOB.who, report=1)
    assert said.index(upcoming) == said.index(rows[1]) - 1


def test_a_checkpoint_that_cannot_be_handed_over_is_taken_back_and_waited_for_by_nobody(
    tmp_path: Path,
) -> None:
    reporter = Reporter(tmp_path, 0)
    with pytest.raises(RaysweepError, match="takes a directory"):
        reporter.session.report({"loss": 1}, tmp_path / "nothing", False)
    thread = reporter.report(1)
    reporter.session.answer(1)
    thread.join(10)
    assert reporter.done == [0]
    taken_back = [m.report for m in reporter.said() if isinstance(m, Upcoming) and m.is_void]
    assert taken_back == [0]


# -- the judge ----------------------------------------------------------------------------------------------


def judge(checkpoint: Path, config: dict[str, Any], iteration: int) -> dict[str, Any]:
    assert rs.get_context().iteration == iteration
    opened = rs.get_checkpoint()
    assert opened is not None
    with opened as folder:
        assert folder == checkpoint
    return {"acc": float((checkpoint / "f").read_text()), "bad": float("nan"), "eval": {"x": config["x"]}}


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Evaluated]:
    """Evaluate a checkpoint in this process."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "f").write_text("0.25")
    store = CheckpointStore.at(str(tmp_path / "store"), "s-1")
    reference = store.save("00003", 0, tmp_path / "source").reference

    def run(evaluator: Callable[..., Any] | str, uri: str = reference, **fields: Any) -> Evaluated:
        import cloudpickle

        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        setup = EvaluationSetup(
            sweep_id="s-1",
            storage_path=str(tmp_path / "store"),
            resources={"CPU": 1.0},
            evaluator=evaluator if isinstance(evaluator, str) else "",
            pickled=None if isinstance(evaluator, str) else cloudpickle.dumps(evaluator),
            **fields,
        )
        job = EvaluationJob(trial=3, attempt=1, iteration=7, seed=1, config={"x": 4}, uri=uri)
        return evaluate(setup, job)

    return run


def test_it_gets_the_checkpoint_the_config_and_the_report(stored: Callable[..., Evaluated]) -> None:
    found = stored(judge, nested=("eval/x",))
    assert found == Evaluated(metrics={"acc": 0.25, "bad": "NaN", "eval": {"x": 4}, "eval/x": 4})
    assert stored(f"{__name__}:judge").metrics["acc"] == 0.25


@pytest.mark.parametrize(
    ("evaluator", "problem"),
    [
        (lambda *_: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda *_: None, "RaysweepError: it gave no metrics"),
        (lambda *_: {}, "RaysweepError: it gave no metrics"),
        (lambda *_: 3.0, "RaysweepError: it returned a float"),
        (lambda *_: {1: 2}, "RaysweepError: .*named by strings"),
        (lambda *_: sys.exit(3), "SystemExit: 3"),
        (lambda *_: rs.report({"a": 1}, checkpoint="."), "RaysweepError: an evaluation stores no checkpoint"),
        ("no.such:function", "TrainableImportError"),
    ],
)
def test_a_problem_is_one_line(
    stored: Callable[..., Evaluated], evaluator: Callable[..., Any] | str, problem: str
) -> None:
    found = stored(evaluator)
    assert not found.metrics
    assert re.search(problem, found.problem), found.problem
    assert "\n" not in found.problem


def test_a_checkpoint_that_is_gone_is_a_problem(stored: Callable[..., Evaluated]) -> None:
    assert "CheckpointDamagedError" in stored(judge, uri="checkpoints/00003/9").problem


def test_a_program_evaluates(stored: Callable[..., Evaluated]) -> None:
    command = ["bash", "-c", 'raysweep emit acc=$(cat "$1/f") at=$2 x=$3', "x"]
    spec = EvaluateSpec(command=[*command, "{checkpoint}", "{iteration}", "{x}"])  # type: ignore[call-arg]  # `trainable` follows from it
    found = stored(Program(plan_of_evaluation(spec)), is_program=True)
    assert found == Evaluated(metrics={"acc": 0.25, "at": 7, "x": 4})
    failing = EvaluateSpec(command=["bash", "-c", "echo no >&2; exit 3"])  # type: ignore[call-arg]  # as above
    assert "ProgramFailedError" in stored(Program(plan_of_evaluation(failing)), is_program=True).problem
