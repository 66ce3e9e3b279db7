"""A session whose checkpoints are handed over to a store that the test opens and closes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raysweep.messages import CheckpointCommitted, FromWorker, Job, TrialBusy, TrialNoted
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from raysweep.storage.objects.wrapped import WrappedStore
from raysweep.worker.checkpoints import captures, staging
from raysweep.worker.session import Session
from raysweep.worker.sweep_info import SweepPlace

JOB = Job(trial=3, attempt=2, config={}, seed=1, checkpoint=None, iteration=0, next_checkpoint=7)


LONG_S = 60.0


class Ears:
    """A link that keeps what is said."""

    def __init__(self) -> None:
        self.heard: list[FromWorker] = []
        self.rows = 0

    def send(self, message: FromWorker, *, waits: bool = False) -> None:
        self.heard.append(message)

    def send_now(self, message: FromWorker) -> None:
        self.heard.append(message)

    def send_row(self, *row: Any) -> None:
        self.rows += 1

    def listen(self, take: Any, on_gone: Any) -> None:
        pass

    def close(self, timeout_s: float | None = 10.0) -> None:
        pass

    def saved(self) -> list[int]:
        return [message.number for message in self.heard if isinstance(message, CheckpointCommitted)]

    def busy(self) -> list[bool]:
        return [not message.is_over for message in self.heard if isinstance(message, TrialBusy)]


class Gate(WrappedStore):
    """Lets nothing be put while it is closed."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.opened = threading.Event()
        self.reached = threading.Event()
        self.fails = False

    def around(self, operation: Any, key: str, call: Callable[[], Any]) -> Any:
        if operation == "put":
            self.reached.set()
            assert self.opened.wait(LONG_S)
            if self.fails:
                raise ValueError("a defect of the store")
        return call()


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(open_store(tmp_path / "store"))
    # A session opens its store by its place: nobody else could stop one at a certain moment.
    monkeypatch.setattr("raysweep.storage.objects.opening.open_store", lambda path: gate)
    monkeypatch.setenv(staging.VARIABLE, str(tmp_path / "staging"))
    yield gate
    gate.opened.set()


@pytest.fixture
def ears() -> Ears:
    return Ears()


@pytest.fixture
def session(tmp_path: Path, gate: Gate, ears: Ears) -> Iterator[Session]:
    place = SweepPlace(sweep_id="s", storage_path=str(tmp_path / "store"), resources={}, metric="loss")
    session = Session(JOB, place, ears)
    yield session
    gate.opened.set()
    session.finish()


def hand_over(session: Session, text: str, *, wait: bool = False, loss: float = 1.0) -> Path:
    with session.new_checkpoint() as folder:
        (folder / "text").write_text(text)
        session.report({"loss": loss}, folder, wait)
    return folder


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def make(folder: Path, **files: str | bytes) -> Path:
    """Files that changed long ago."""
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test writes and reports within milliseconds: its files are as good as old ones."""
    monkeypatch.setattr(captures, "SETTLED_NS", -(10**9))


def restored(gate: Gate, number: int, tmp_path: Path) -> dict[str, bytes]:
    target = tmp_path / f"out-{number}"
    CheckpointStore(gate.inner, "s").restore(f"{gate.inner.url}/s/checkpoints/00003/{number}", target)
    return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}


def notes(ears: Ears) -> list[str]:
    return [message.text for message in ears.heard if isinstance(message, TrialNoted)]
