"""The first resume of a sweep that was killed after a million events: seconds, and memory at its most.

    python -m benchmarks.first_resume

A sweep of 10,000 trials that report one row at a time, on 64 slots, is driven through the real core, journal
and snapshots, in a folder on disk; then a process of its own takes it up. Beside it the same without the
snapshots that were written while the sweep ran, which is what a resume used to be.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path
from time import thread_time
from typing import Any, Final

from raysweep.cluster.snapshots import Snapshots
from raysweep.core import SweepState, encode, step
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.specs import SweepSpec
from raysweep.storage.journal.writer import JournalWriter
from raysweep.storage.objects.opening import open_store

TRIALS: Final = 10_000
EVENTS: Final = 1_000_000
SLOTS: Final = 64
# How often the controller looks whether a snapshot is due: twice a second, at so many events a second.
LOOK_EVERY: Final = 5_000
SWEEP: Final = "resume-1"
_RESUME: Final = """
import json, sys
from time import perf_counter, process_time
from raysweep.runs.ownership.replay import rebuild
from raysweep.runs.folder import SweepFolder
from raysweep.storage.objects.opening import open_store
folder = SweepFolder(open_store(sys.argv[1]), sys.argv[2])
before, cpu = perf_counter(), process_time()
rebuilt = rebuild(folder, folder.read_spec())
took_s, cpu_s = perf_counter() - before, process_time() - cpu
peak_kib = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"s": round(took_s, 2), "cpu_s": round(cpu_s, 2), "peak_mib": round(peak_kib / 1024),
    "trials": len(rebuilt.state.trials)}))
"""


def run(trials: int = TRIALS, events: int = EVENTS) -> dict[str, Any]:
    """The figures with and without snapshots, and what freezing the state cost the loop."""
    with tempfile.TemporaryDirectory(prefix="raysweep-benchmark-") as path:
        written = write(Path(path), trials, events)
        with_snapshots = resume(path)
        for snapshot in Path(path, SWEEP, "snapshots").glob("*"):
            snapshot.unlink()
        without = resume(path)
    return {**written, "with_snapshots": with_snapshots, "without": without}


def resume(path: str) -> dict[str, float]:
    """Take the sweep up in a process of its own."""
    command = [sys.executable, "-c", _RESUME, path, SWEEP]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def write(path: Path, trials: int, events: int) -> dict[str, float]:
    """Run a sweep for so many events, with snapshots, and leave it as a killed controller does."""
    spec = _spec(trials)
    folder = SweepFolder(open_store(path), SWEEP)
    folder.write_spec_if_absent(SweepRecord(digest="d", key="k", seed=1, spec=spec.to_dict()))
    journal = folder.journal()
    assert not list(journal.read())
    state = SweepState.create(spec, 1)
    started = ev.ControllerStarted(at=1000.0, generation=1)
    claim = journal.claim(lambda generation: encode(started))
    _answer(state, step(state, started))
    longest_s, begun = 0.0, 0
    with JournalWriter(
        journal.backend, claim.generation, claim.next_number, _raise, writer=claim.writer
    ) as writer:
        snapshots = Snapshots(folder, writer, state, list)
        for number, event in enumerate(_events(state, trials, events // trials - 2), start=1):
            line = encode(event)
            _answer(state, step(state, event))
            writer.write(line)
            if number % LOOK_EVERY == 0:
                before, records = thread_time(), snapshots.records
                snapshots.look()
                longest_s = max(longest_s, thread_time() - before)
                begun += snapshots.records != records
            if number >= events:
                break
        writer.flush()
        snapshots.close()
    return {"events": number, "snapshots": begun, "freeze_ms": round(longest_s * 1e3, 2)}


_todo: deque[ev.Event] = deque()
_at = [1000.0]


def _events(state: SweepState, trials: int, reports: int) -> Any:
    """The events of the sweep: slots open, trials run one report after the other, each slot in turn."""
    _todo.append(ev.CapacityChanged(at=_at[0], slots=SLOTS))
    while True:
        while _todo:
            yield _todo.popleft()
        for slot in list(state.slots.values()):
            if not slot.queue:
                continue
            trial = state.trials[slot.queue[0]]
            who: dict[str, int] = {"trial": trial.number, "attempt": trial.attempt}
            _at[0] += 0.001
            if trial.results.attempt_reports >= reports:
                _todo.append(ev.TrialReturned(at=_at[0], **who))
            else:
                row: list[Any] = [(trial.number * 7919 + trial.results.reports) % 10_007 / 10_007, 0.5, 3]
                yield ev.TrialReported(
                    at=_at[0],
                    first=trial.results.attempt_reports,
                    keys=("loss", "lr", "epoch"),
                    rows=(row,),
                    **who,
                )


def _answer(state: SweepState, commands: list[cmd.Command]) -> None:
    for command in commands:
        match command:
            case cmd.SuggestConfigs():
                numbers = range(command.first, command.first + command.count)
                configs = tuple({"lr": number * 1e-6, "width": number % 512} for number in numbers)
                _todo.append(ev.ConfigsSuggested(at=_at[0], first=command.first, configs=configs))
            case cmd.OpenSlot():
                _todo.append(ev.SlotOpened(at=_at[0], slot=command.slot, node="node"))
            case cmd.StartTrial():
                _todo.append(ev.TrialStarted(at=_at[0], trial=command.trial, attempt=command.attempt))
            case _:
                pass


def _raise(error: BaseException) -> None:
    raise error


def _spec(trials: int) -> SweepSpec:
    plain = {
        "name": "resume",
        "trainable": "benchmarks.first_resume:run",
        "param_space": {"lr": {"loguniform": [1e-5, 1e-1]}, "width": {"randint": [0, 512]}},
        "metric": "loss",
        "mode": "min",
        "search": "random",
        "num_samples": trials,
    }
    return SweepSpec.model_validate(plain)


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
