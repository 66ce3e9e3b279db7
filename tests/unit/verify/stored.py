"""A sweep's folder as a controller leaves it, made by the core, the journal's writer, the checkpoint store.

No Ray and no searcher: whatever the core asks for is answered at once. Trial 1 fails, the others report
`STEPS` times, each time with a checkpoint. The controller is replaced by another in the middle.
"""

from __future__ import annotations

import shutil
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raysweep.core import SweepState, encode, make_outcome, step
from raysweep.core.state.frozen import freeze
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.errors import RaysweepError
from raysweep.outcome import SweepOutcome
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.runs.ownership.holder import current_holder
from raysweep.runs.ownership.sweep_claim import (
    Ownership,
    SweepRequest,
    check_not_lost,
    find_holder,
    find_outcome,
    hold,
)
from raysweep.runs.reading.progress import make_progress
from raysweep.specs import SweepSpec, sweep_id
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.journal.writer import JournalWriter
from raysweep.storage.objects.opening import open_store

TRIALS = 4
STEPS = 3
SEED = 5
BOOM = Failure(origin="exception", type="ValueError", message="boom", bases=("ValueError", "Exception"))


def make_asked(storage: str, key: str = "k", **checkpoint: Any) -> SweepRequest:
    spec = SweepSpec(
        name="night",
        trainable="m:f",
        param_space={"x": {"uniform": [0, 9]}},
        metric="loss",
        mode="min",
        num_samples=TRIALS,
        seed=SEED,
        failure={"max_failures": 0},
        checkpoint={"keep_last": 2, "keep_best": True, **checkpoint},
        storage_path=storage,
    )
    return SweepRequest(spec=spec, key=key, seed=SEED)


@dataclass
class Shell:
    """Carries out what the core asks for, an event at a time, and writes the journal."""

    folder: SweepFolder
    asked: SweepRequest
    source: Path
    state: SweepState
    per_segment: int
    at: float = 1000.0
    events: deque[ev.Event] = field(default_factory=deque)
    written: int = 0

    def run(self, generation_events: int) -> None:
        """One controller, from its claim on; dies after so many events, or when the sweep has ended."""
        errors: list[RaysweepError] = []
        journal = self.folder.journal()
        for _ in journal.read():
            pass
        self.at += 1
        generation = journal.generation + 1
        started = ev.ControllerStarted(at=self.at, generation=generation, host="h", pid=1)
        claim = journal.claim(lambda _: encode(started))
        self.events.clear()
        self._carry(step(self.state, started))
        self.events.append(ev.CapacityChanged(at=self.at, slots=1))
        with JournalWriter(
            journal.backend,
            generation,
            claim.next_number,
            errors.append,
            writer=claim.writer,
            interval_s=60,
        ) as writer:
            for _ in range(generation_events):
                if not self.events:
                    break
                event = self.events.popleft()
                writer.write(encode(event))
                self.written += 1
                if self.written % self.per_segment == 0:
                    writer.flush()
                self._carry(step(self.state, event))
        assert not errors
        progress = make_progress(
            self.state, sweep_id=self.folder.sweep_id, holder=current_holder(), at=self.at, total=TRIALS
        )
        # This process lives on: say that the controller does not.
        self.folder.write_progress(progress.model_copy(update={"has_left": True}))

    def _carry(self, commands: list[cmd.Command]) -> None:
        for command in commands:
            self.at += 1
            match command:
                case cmd.OpenSlot():
                    self.events.append(ev.SlotOpened(at=self.at, slot=command.slot, node="n"))
                case cmd.SuggestConfigs():
                    configs = tuple({"x": number / 10} for number in range(TRIALS))
                    self.events.append(
                        ev.ConfigsSuggested(at=self.at, first=0, configs=configs, is_exhausted=True)
                    )
                case cmd.StartTrial():
                    self._run_trial(command)
                case cmd.DeleteCheckpoint():
                    self.checkpoints.delete(command.uri)
                case cmd.EndSweep():
                    self.events.append(ev.SweepEnded(at=self.at))

    @property
    def checkpoints(self) -> CheckpointStore:
        return CheckpointStore(self.folder.store, self.folder.sweep_id)

    def _run_trial(self, start: cmd.StartTrial) -> None:
        who = {"trial": start.trial, "attempt": start.attempt}
        self.events.append(ev.TrialStarted(at=self.at, **who))
        if start.trial == 1:
            self.events.append(ev.TrialFailed(at=self.at + 1, failure=BOOM, **who))
            return
        for report in range(STEPS - start.iteration):
            self.at += 1
            row = [float(start.trial) + 1 / (1 + start.iteration + report)]
            self.events.append(ev.TrialReported(at=self.at, first=report, keys=("loss",), rows=(row,), **who))
            number = start.next_checkpoint + report
            (self.source / "weights.bin").write_bytes(bytes([start.trial, report]) * 64)
            saved = self.checkpoints.save(f"{start.trial:05d}", number, self.source)
            self.events.append(
                ev.CheckpointCommitted(
                    at=self.at, number=number, report=report, uri=saved.reference, size_bytes=128, **who
                )
            )
        self.events.append(ev.TrialReturned(at=self.at + 1, **who))


@dataclass(frozen=True)
class Stored:
    """The folder, and the state that its journal gives."""

    folder: SweepFolder
    asked: SweepRequest
    state: SweepState

    @property
    def path(self) -> Path:
        path = self.folder.store.local_path(self.folder.sweep_id)
        assert path is not None
        return path

    def uri(self, trial: int) -> str:
        """Of a trial's newest checkpoint, where the store is now."""
        checkpoint = self.state.trials[trial].checkpoint
        assert checkpoint is not None
        return f"{self.folder.uri}/{checkpoint.uri}"

    def files(self) -> list[str]:
        """The paths of all files, relative to the folder."""
        return sorted(
            path.relative_to(self.path).as_posix() for path in self.path.rglob("*") if path.is_file()
        )

    def segments(self) -> list[str]:
        return [name for name in self.files() if name.startswith("journal/")]


def store_sweep(
    root: Path,
    *,
    is_ended: bool,
    per_segment: int = 2,
    key: str = "k",
    at: float = 1000.0,
    events: int = 5,
    **checkpoint: Any,
) -> Stored:
    """A sweep of two generations at `root/store`, with a snapshot of the middle of the second.

    `key`, `at` (when it began) and `checkpoint` (fields of its policy) are for several of one name; `events`:
    those of the last controller of a sweep that has not ended.
    """
    asked = make_asked(str(root / "store"), key, **checkpoint)
    folder = SweepFolder(open_store(asked.spec.storage_path), sweep_id("night", key))
    folder.write_spec_if_absent(
        SweepRecord(digest=asked.spec.digest(), key=key, seed=SEED, spec=asked.spec.to_dict())
    )
    source = root / "source"
    source.mkdir(exist_ok=True)
    (source / "config.json").write_text('{"layers": 3}')
    state = SweepState.create(asked.spec, SEED)
    shell = Shell(folder, asked, source, state, per_segment, at=at)
    shell.run(12)
    shell.run(8)
    assert state.phase == "running"
    journal = folder.journal()
    for _ in journal.read():
        pass
    folder.snapshots.write(journal.last_number, freeze(state).parts())
    shell.run(10_000 if is_ended else events)
    assert (state.phase == "ended") == is_ended
    if is_ended:
        folder.write_outcome_if_absent(
            make_outcome(state, sweep_id=folder.sweep_id, key=key, uri=folder.uri, version="0")
        )
    return Stored(folder, asked, state)


def copy_of(stored: Stored, root: Path) -> Stored:
    """The same sweep in another store, to be damaged."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(stored.path, root / stored.folder.sweep_id)
    return Stored(SweepFolder(open_store(root), stored.folder.sweep_id), stored.asked, stored.state)


def resume(stored: Stored) -> SweepOutcome | Ownership:
    """What `run_sweep` does with a stored sweep before it has a cluster do anything."""
    outcome = find_outcome(stored.folder, stored.asked)
    if outcome is not None:
        return outcome
    holder, generation = find_holder(stored.folder)
    assert holder is None
    if stored.folder.read_spec() is None:
        check_not_lost(stored.folder, generation)
    held = hold(stored.folder, stored.asked, after=generation)
    assert held is not None
    return held
