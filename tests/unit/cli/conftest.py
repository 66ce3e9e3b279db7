from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from raysweep.cli import main
from raysweep.core import SweepState, encode, make_outcome, step
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.errors import RaysweepError
from raysweep.outcome import Holder, SweepOutcome, SweepProgress
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.runs.ownership.holder import current_holder, process_started_at
from raysweep.runs.reading.progress import make_progress
from raysweep.specs import SweepSpec, sweep_id
from raysweep.storage.journal.writer import JournalWriter
from raysweep.storage.objects.opening import open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What one command gave."""

    code: int
    out: str
    err: str


Cli = Callable[..., Ran]


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Ran]:
    """Run a command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAYSWEEP_DEBUG", raising=False)

    def run(*arguments: Any) -> Ran:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return run


METRICS = ("loss",)


def events_of_a_night(at: float) -> list[ev.Event]:
    """Four trials on one slot: one done, one failed, one halfway with a checkpoint, one not begun."""
    failure = Failure(
        origin="exception",
        type="KeyError",
        message="'rate'\nsecond line",
        traceback="Traceback …\nKeyError: 'rate'",
    )
    configs = tuple({"x": float(number), "net": {"width": 8 * number}} for number in range(4))
    return [
        ev.ConfigsSuggested(at=at, first=0, configs=configs, is_exhausted=True),
        ev.CapacityChanged(at=at, slots=1),
        ev.SlotOpened(at=at, slot=0, node="node-one-and-more"),
        ev.TrialStarted(at=at + 1, trial=0, attempt=1),
        ev.TrialReported(at=at + 2, trial=0, attempt=1, first=0, keys=METRICS, rows=([5.0],)),
        ev.TrialReturned(at=at + 3, trial=0, attempt=1),
        ev.TrialStarted(at=at + 3, trial=1, attempt=1),
        ev.TrialFailed(at=at + 4, trial=1, attempt=1, failure=failure),
        ev.TrialStarted(at=at + 4, trial=2, attempt=1),
        ev.TrialReported(at=at + 5, trial=2, attempt=1, first=0, keys=METRICS, rows=([3.0], [2.0])),
        ev.CheckpointCommitted(at=at + 6, trial=2, attempt=1, number=0, report=1, uri="/c/00002/0"),
    ]


def last_events(at: float) -> list[ev.Event]:
    """Somebody cancels it."""
    return [
        ev.CancelRequested(at=at, reason="enough"),
        ev.TrialStopped(at=at, trial=2, attempt=1),
        ev.SweepEnded(at=at),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A sweep that a controller left in the middle."""

    folder: SweepFolder
    state: SweepState
    key: str

    @property
    def sweep_id(self) -> str:
        return self.folder.sweep_id

    def beat(self, holder: Holder, *, at: float | None = None) -> SweepProgress:
        """Write the heartbeat of a holder."""
        now = time.time() if at is None else at
        progress = make_progress(self.state, sweep_id=self.sweep_id, holder=holder, at=now, total=4)
        self.folder.write_progress(progress)
        return progress

    def end(self) -> SweepOutcome:
        """Cancel it, and write its outcome."""
        for event in last_events(time.time()):
            step(self.state, event)
        outcome = make_outcome(
            self.state, sweep_id=self.sweep_id, key=self.key, uri=self.folder.uri, version="0"
        )
        self.folder.write_outcome_if_absent(outcome)
        return outcome


@pytest.fixture
def store_sweep(tmp_path: Path) -> Callable[..., Stored]:
    """Write a sweep's folder at `store/` as its controller would have."""

    def make(name: str = "night", key: str = "k", *, is_ended: bool = False) -> Stored:
        spec = SweepSpec(
            name=name,
            trainable="examples.quick:steps",
            param_space={"x": {"uniform": [0, 9]}, "net": {"width": {"choice": [0, 8, 16, 24]}}},
            metric="loss",
            mode="min",
            num_samples=4,
            failure={"max_failures": 0},
            storage_path=str(tmp_path / "store"),
        )
        folder = SweepFolder(open_store(spec.storage_path), sweep_id(name, key))
        folder.write_spec_if_absent(SweepRecord(digest=spec.digest(), key=key, seed=1, spec=spec.to_dict()))
        state = SweepState.create(spec, 1)
        at = time.time() - 60
        started = ev.ControllerStarted(at=at, generation=1, host="h", pid=1)
        journal = folder.journal()
        claim = journal.claim(lambda generation: encode(started))
        step(state, started)
        errors: list[RaysweepError] = []
        with JournalWriter(journal.backend, 1, claim.next_number, errors.append, writer=claim.writer) as log:
            for event in events_of_a_night(at) + (last_events(at + 9) if is_ended else []):
                log.write(encode(event))
                step(state, event)
        assert not errors
        return Stored(folder=folder, state=state, key=key)

    return make


@pytest.fixture
def gone_holder() -> Holder:
    """A process of this machine that has ended."""
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        started_at = process_started_at(process.pid)
    holder = current_holder()
    return holder.model_copy(update={"pid": process.pid, "process_started_at": started_at or 0.0})
