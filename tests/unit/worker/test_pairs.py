"""Pairs: a trial that misbehaves, then a plain one in the same worker, whose reports, checkpoints and
surroundings are its own."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import raysweep as rs
from raysweep import messages as msg
from raysweep.messages import Spent
from tests.unit.worker.pairs import Worker

Trial = Callable[[dict[str, Any]], None]
SHORT_S = 0.05
pytestmark = pytest.mark.timeout(300, method="thread")
"""By default a test's own timer would be the one that trials set."""


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path / "storage")


def surroundings() -> dict[str, Any]:
    """All of a process that a trial might find changed."""
    return {
        "folder": os.getcwd(),
        "variables": dict(os.environ),
        "handlers": [signal.getsignal(number) for number in range(1, 32) if number not in (9, 19)],
        "timers": [signal.getitimer(which) for which in (0, 1, 2)],
        "logging": (list(logging.root.handlers), logging.root.level, logging.root.manager.disable),
        "streams": (sys.stdout, sys.stderr),
        "collects": gc.isenabled(),
        "depth": sys.getrecursionlimit(),
        "timeout": socket.getdefaulttimeout(),
        "numpy": (np.geterr(), np.get_printoptions()),
        "torch": torch_settings(),
    }


def torch_settings() -> tuple[Any, ...]:
    """Empty where PyTorch is not installed."""
    try:
        import torch
    except ModuleNotFoundError:
        return ()
    return (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_anomaly_enabled(),
        torch.backends.cudnn.benchmark,
        torch.zeros(1).dtype,
    )


def goes_to_a_folder_that_goes(config: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)


def changes_variables(config: dict[str, Any]) -> None:
    os.environ["OF_THE_FIRST"] = "1"
    os.environ["PATH"] = "/nowhere"
    del os.environ["HOME"]


def sets_a_timer(config: dict[str, Any]) -> None:
    signal.setitimer(signal.ITIMER_REAL, SHORT_S)


def sets_a_timer_that_ticks(config: dict[str, Any]) -> None:
    signal.signal(signal.SIGVTALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_VIRTUAL, SHORT_S, SHORT_S)


def handles_signals(config: dict[str, Any]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)


def logs_elsewhere(config: dict[str, Any]) -> None:
    logging.root.addHandler(logging.StreamHandler())
    logging.root.setLevel(logging.DEBUG)
    logging.disable(logging.ERROR)


def takes_all_handlers_off(config: dict[str, Any]) -> None:
    logging.root.handlers.clear()


def replaces_streams(config: dict[str, Any]) -> None:
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  it is left behind
    sys.stderr = sys.stdout


def changes_python(config: dict[str, Any]) -> None:
    gc.disable()
    sys.setrecursionlimit(9999)
    socket.setdefaulttimeout(0.1)


def changes_numpy(config: dict[str, Any]) -> None:
    np.seterr(all="raise")
    np.set_printoptions(precision=2, suppress=True)


def changes_torch(config: dict[str, Any]) -> None:
    import torch

    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_num_threads(torch.get_num_threads() + 1)
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)
    torch.autograd.set_detect_anomaly(True)
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark


def leaves_a_thread_that_reports(config: dict[str, Any]) -> None:
    def late() -> None:
        for _ in range(20):
            time.sleep(0.01)
            rs.report({"loss": -1.0})

    threading.Thread(target=late, daemon=True).start()


def raises(config: dict[str, Any]) -> None:
    os.environ["OF_THE_FIRST"] = "1"
    raise ValueError("of the first")


def is_stopped(config: dict[str, Any]) -> None:
    os.environ["OF_THE_FIRST"] = "1"
    raise rs.TrialStopped("scheduler")


MISBEHAVIOURS: list[Trial] = [
    goes_to_a_folder_that_goes,
    changes_variables,
    sets_a_timer,
    sets_a_timer_that_ticks,
    handles_signals,
    logs_elsewhere,
    takes_all_handlers_off,
    replaces_streams,
    changes_python,
    changes_numpy,
    changes_torch,
    leaves_a_thread_that_reports,
    raises,
    is_stopped,
]


@pytest.fixture
def restored() -> Iterator[None]:
    """Should a test fail, the tests after it do not."""
    before, variables = os.getcwd(), dict(os.environ)
    yield
    os.chdir(before)
    os.environ.clear()
    os.environ.update(variables)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("misbehaves", MISBEHAVIOURS)
def test_the_next_trial_has_its_own(misbehaves: Trial, worker: Worker, tmp_path: Path) -> None:
    if misbehaves is changes_torch:
        pytest.importorskip("torch")
    found: list[dict[str, Any]] = []

    def plain(config: dict[str, Any]) -> None:
        found.append(surroundings())
        with rs.new_checkpoint() as folder:
            (folder / "who").write_text("plain")
        rs.report({"loss": 1.0}, checkpoint=folder)
        time.sleep(2 * SHORT_S)
        rs.report({"loss": 2.0})

    worker.run(plain, misbehaves, plain)
    assert found[1] == found[0]
    assert worker.losses(2) == [1.0, 2.0]
    assert worker.saved(2, tmp_path) == ["plain"]
    assert isinstance(worker.ends[2], msg.TrialReturned)
    assert not any(isinstance(message, Spent) for message in worker.said)


LATE = """
from pathlib import Path
from tests.unit.worker.pairs import Worker

def imports(config):
    import numpy, torch
    numpy.seterr(all="raise")
    torch.set_default_dtype(torch.float64)

def looks(config):
    import numpy, torch
    print(numpy.geterr()["divide"], torch.get_default_dtype())

import sys
assert not {"numpy", "torch"} & set(sys.modules)
Worker(Path("unused")).run(imports, looks)
"""


def test_libraries_are_as_they_were_when_a_trial_imported_them() -> None:
    """The first trial imports them, and changes them at once."""
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=True)
    assert done.stdout == "warn torch.float32\n"


class Tracker:
    """The part of MLflow's interface that is used; MLflow itself is not installed here."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.ended: list[tuple[str, str]] = []

    def active_run(self) -> Any:
        return SimpleNamespace(info=SimpleNamespace(run_id=self.open[-1])) if self.open else None

    def end_run(self, status: str) -> None:
        self.ended.append((self.open.pop(), status))


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Tracker:
    tracker = Tracker()
    monkeypatch.setitem(sys.modules, "mlflow", tracker)
    return tracker


@pytest.mark.parametrize(
    ("ends", "status"), [(None, "FINISHED"), (rs.TrialStopped("limit"), "KILLED"), (ValueError(), "FAILED")]
)
def test_an_open_run_of_mlflow_is_ended_as_the_trial_was(
    ends: BaseException | None, status: str, worker: Worker, mlflow: Tracker
) -> None:
    def opens(config: dict[str, Any]) -> None:
        mlflow.open += ["outer", "inner"]
        if ends is not None:
            raise ends

    worker.run(opens, lambda config: None)
    assert mlflow.ended == [("inner", status), ("outer", status)]


def test_a_run_that_was_open_before_all_trials_stays_open(worker: Worker, mlflow: Tracker) -> None:
    """With `isolation: inline` it is the run of the program that runs the sweep."""
    mlflow.open.append("parent")
    worker.run(lambda config: mlflow.open.append("child"))
    assert (mlflow.open, mlflow.ended) == (["parent"], [("child", "FINISHED")])


def cannot_be_ended(mlflow: Tracker) -> Trial:
    def end_run(status: str) -> None:
        raise OSError("the server is away")

    def opens(config: dict[str, Any]) -> None:
        mlflow.open.append("run")
        mlflow.end_run = end_run  # type: ignore[method-assign]

    return opens


def test_what_cannot_be_put_back_ends_the_worker(worker: Worker, mlflow: Tracker) -> None:
    worker.run(cannot_be_ended(mlflow))
    (spent,) = [message for message in worker.said if isinstance(message, Spent)]
    assert spent.leftover == "a run of mlflow that could not be ended (the server is away)"
    assert worker.said.index(spent) < worker.said.index(worker.ends[0])
    worker.hand(1)
    assert not worker.has_next(), "it begins no other trial"


def test_inline_it_is_noted_once_and_the_trials_go_on(tmp_path: Path, mlflow: Tracker) -> None:
    """The process is the user's."""
    worker = Worker(tmp_path / "storage", can_replace=False)
    worker.run(cannot_be_ended(mlflow), lambda config: None)
    (note,) = worker.notes(0)
    assert "it left a run of mlflow" in note.text
    assert "isolation: process" in note.text
    assert not worker.notes(1)


class AcceleratorError(RuntimeError):
    """As torch has it."""


@pytest.mark.parametrize(
    ("error", "has_gpus", "is_spent"),
    [
        (AcceleratorError("CUDA error: device-side assert triggered"), False, True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), False, True),
        (ValueError("no such layer"), True, True),
        (ValueError("no such layer"), False, False),
    ],
)
def test_a_failure_that_may_have_broken_a_gpu_ends_the_worker(
    error: Exception, has_gpus: bool, is_spent: bool, tmp_path: Path
) -> None:
    def fails(config: dict[str, Any]) -> None:
        raise error

    worker = Worker(tmp_path / "storage", has_gpus=has_gpus)
    worker.run(fails)
    assert any(isinstance(message, Spent) for message in worker.said) == is_spent
    assert isinstance(worker.ends[0], msg.TrialFailed)


def test_a_trial_that_was_stopped_does_not_end_a_worker_with_gpus(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "storage", has_gpus=True)
    worker.run(is_stopped, lambda config: None)
    assert [type(end) for end in worker.ends] == [msg.TrialStopped, msg.TrialReturned]


def test_a_process_group_that_is_left_ends_the_worker(worker: Worker, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import torch.distributed as dist

    def joins(config: dict[str, Any]) -> None:
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)

    try:
        worker.run(joins)
    finally:
        dist.destroy_process_group()
    (spent,) = [message for message in worker.said if isinstance(message, Spent)]
    assert spent.leftover == "a process group of torch.distributed"
