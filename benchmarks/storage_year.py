"""storage-year: a year of nightly sweeps with checkpoints under a budget, on an S3 server on loopback.

Each night is a sweep of small trials whose journal, checkpoints and outcome are stored as a controller stores
them. The storage budget of the name is kept (as `raysweep gc NAME` does it) after every so many nights: each
time it reads the journals of all nights. What is measured: the objects and bytes of checkpoints through the
year, what else is stored for each night, a list of all nights, and the first list of the dashboard.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import perf_counter, process_time
from typing import Any, Final

import orjson

from benchmarks.measure import Json, significant, target
from benchmarks.places import place
from raysweep.core import SweepState, encode, make_outcome, step
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.pages.dashboard.runs import Runs
from raysweep.runs.across_runs.budget import keep_budget, plan_budget
from raysweep.runs.across_runs.pins import PinReader
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.runs.reading.nights import nights_at
from raysweep.specs import SweepSpec
from raysweep.specs.identity import RunId
from raysweep.storage.checkpoints.store import CheckpointRef, CheckpointStore
from raysweep.storage.journal.writer import JournalWriter
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store

NIGHTS: Final = 365
TRIALS: Final = 1_000
SAVING: Final = 20
"""So many of them store a checkpoint: as in a sweep whose scheduler stops most trials early."""
GC_EVERY: Final = 30
"""Nights between two collections; there is one after the last night, too."""
SIZE_BYTES: Final = 4096
"""Of each checkpoint; no two share a byte."""
KEPT: Final = 30
"""The budget, in checkpoints."""
NAME: Final = "churn"
_DAY_S: Final = 86_400.0
_BEGAN: Final = 1_700_000_000.0


def run(
    rounds: int,
    *,
    nights: int = NIGHTS,
    trials: int = TRIALS,
    saving: int = SAVING,
    gc_every: int = GC_EVERY,
    is_s3: bool = True,
) -> Json:
    """One year, whatever `rounds` is; the fastest list of as many as there are rounds."""
    with place(is_s3=is_s3) as where, tempfile.TemporaryDirectory() as scratch:
        store, budget_bytes = open_store(where.path), KEPT * SIZE_BYTES
        seen: list[Json] = []
        for number in range(1, nights + 1):
            Night(store, number, trials, saving, Path(scratch)).run()
            if number % gc_every == 0 or number == nights:
                began = perf_counter()
                pins = PinReader(store)
                keep_budget(store, plan_budget(store, NAME, budget_bytes, pins), pins)
                seen.append({"nights": number, "gc_s": significant(perf_counter() - began), **_stored(store)})
        lists = [_list(where.path, nights) for _ in range(rounds)]
        pages = [_first_page(where.path, nights) for _ in range(rounds)]
    fastest = min(lists, key=lambda each: float(each["wall_s"]))
    return {
        "what": f"{nights} nights of {trials} trials, {saving} with a checkpoint of {SIZE_BYTES} bytes,"
        f" a budget of {KEPT} checkpoints, gc every {gc_every} nights, "
        + ("S3 on loopback" if is_s3 else "local disk"),
        "load": round(os.getloadavg()[0], 1),
        "stored": seen,
        "list": fastest,
        "dashboard": min(pages, key=lambda each: float(each["wall_s"])),
        "targets": [
            target(
                "bytes of checkpoints after a collection, of the budget",
                max(each["checkpoint_bytes"] for each in seen) / budget_bytes,
                at_most=1.0,
            ),
            target("s of the list of all nights", fastest["wall_s"], at_most=2.0),
            target(
                "s of the dashboard's first list",
                min(float(each["wall_s"]) for each in pages),
                at_most=2.0 if is_s3 else 0.5,
            ),
        ],
    }


def _stored(store: Store) -> Json:
    infos = list(store.list())
    saved = [info for info in infos if "/checkpoints/" in info.key]
    return {
        "checkpoint_objects": len(saved),
        "checkpoint_bytes": sum(info.size_bytes for info in saved),
        "other_objects": len(infos) - len(saved),
        "other_bytes": sum(info.size_bytes for info in infos) - sum(info.size_bytes for info in saved),
    }


def _list(path: str, nights: int) -> Json:
    began, used = perf_counter(), process_time()
    found = nights_at(open_store(path))
    assert len(found) == nights
    return {
        "wall_s": significant(perf_counter() - began),
        "cpu_s": significant(process_time() - used),
    }


def _first_page(path: str, nights: int) -> Json:
    runs = Runs(open_store(path))
    began, used = perf_counter(), process_time()
    shown = orjson.loads(runs.list_runs().body)
    took = {"wall_s": significant(perf_counter() - began), "cpu_s": significant(process_time() - used)}
    runs.close()
    assert (len(shown["runs"]), shown["left"]) == (nights, 0)
    return took


@dataclass(kw_only=False)
class Night:
    """One sweep on two slots, every command answered at once."""

    store: Store
    number: int
    trials: int
    saving: int
    scratch: Path
    at: float = 0.0
    events: deque[ev.Event] = field(default_factory=deque)

    def run(self) -> None:
        """Store it all, from sweep.json to the outcome."""
        key = f"night {self.number:03d}"
        spec = _spec(self.trials)
        folder = SweepFolder(self.store, RunId.of(spec, key).id)
        folder.write_spec_if_absent(SweepRecord(digest=spec.digest(), key=key, seed=1, spec=spec.to_dict()))
        self.at = _BEGAN + self.number * _DAY_S
        state, journal = SweepState.create(spec, 1), folder.journal()
        first = ev.ControllerStarted(at=self.at, generation=1)
        claim = journal.claim(lambda _: encode(first))
        self.events = deque([first, ev.CapacityChanged(at=self.at, slots=2)])
        problems: list[Exception] = []
        with JournalWriter(
            journal.backend, claim.generation, claim.next_number, problems.append, writer=claim.writer
        ) as writer:
            while self.events:
                event = self.events.popleft()
                if event is not first:
                    writer.write(encode(event))
                for command in step(state, event):
                    self.events.extend(self._answers(folder, command))
        assert not problems
        folder.write_outcome_if_absent(
            make_outcome(state, sweep_id=folder.sweep_id, key=key, uri=folder.uri, version="0")
        )

    def _answers(self, folder: SweepFolder, command: cmd.Command) -> Iterator[ev.Event]:
        self.at += 1.0
        match command:
            case cmd.OpenSlot():
                yield ev.SlotOpened(at=self.at, slot=command.slot, node="node")
            case cmd.SuggestConfigs():
                random = Random(self.number)
                configs: tuple[dict[str, Any], ...] = tuple(
                    {"x": random.random()} for _ in range(self.trials)
                )
                yield ev.ConfigsSuggested(at=self.at, first=0, configs=configs, is_exhausted=True)
            case cmd.StartTrial():
                yield from self._trial(folder, command)
            case cmd.DeleteCheckpoint():
                CheckpointStore(folder.store, folder.sweep_id).delete(command.uri)
            case cmd.EndSweep():
                yield ev.SweepEnded(at=self.at)
            case _:
                pass

    def _trial(self, folder: SweepFolder, start: cmd.StartTrial) -> Iterator[ev.Event]:
        who: dict[str, Any] = {"trial": start.trial, "attempt": start.attempt}
        random = Random(self.number * 10_000 + start.trial)
        saved = self._save(folder, start, random) if start.trial < self.saving else None
        yield ev.TrialStarted(at=self.at, **who)
        rows: tuple[list[Any], ...] = ([random.random()],)
        yield ev.TrialReported(at=self.at, first=0, keys=("loss",), rows=rows, **who)
        if saved is not None:
            yield ev.CheckpointCommitted(
                at=self.at, number=1, report=0, uri=saved.reference, size_bytes=SIZE_BYTES, **who
            )
        yield ev.TrialReturned(at=self.at + 1.0, **who)

    def _save(self, folder: SweepFolder, start: cmd.StartTrial, random: Random) -> CheckpointRef:
        (self.scratch / "weights.bin").write_bytes(random.randbytes(SIZE_BYTES))
        return CheckpointStore(folder.store, folder.sweep_id).save(f"{start.trial:05d}", 1, self.scratch)


def _spec(trials: int) -> SweepSpec:
    plain = {
        "name": NAME,
        "trainable": "benchmarks.storage_year:run",
        "param_space": {"x": {"uniform": [0, 1]}},
        "metric": "loss",
        "mode": "min",
        "search": "random",
        "num_samples": trials,
        "scheduler": "fifo",
        "checkpoint": {"storage_budget": KEPT * SIZE_BYTES},
    }
    return SweepSpec.model_validate(plain)
