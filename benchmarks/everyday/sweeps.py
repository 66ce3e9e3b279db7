"""Sweeps for the figures: made by the core and the journal alone, without Ray."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import raysweep as rs
from benchmarks.everyday.lookup import find

SPACE = {"x": {"uniform": [0.0, 1.0]}, "y": {"loguniform": [1e-5, 1.0]}, "z": {"choice": [1, 2, 3]}}


def spec(**fields: Any) -> rs.SweepSpec:
    """A spec with the usual fields, changed by `fields`."""
    usual = {
        "name": "everyday",
        "trainable": "benchmarks.trainables:noop",
        "param_space": SPACE,
        "metric": "loss",
        "mode": "min",
        "search": "random",
    }
    return rs.SweepSpec.model_validate(usual | fields)


def events(trials: int, reports: int = 1, slots: int = 2) -> list[Any]:
    """The events of a sweep; `step` has them all."""
    made = spec(num_samples=trials)
    ev, cmd = _vocabulary("events"), _vocabulary("commands")
    state, step, at = find("raysweep.core:SweepState").create(made, 1), find("raysweep.core:step"), 1e9
    begun = ev("ControllerStarted")(at=at, generation=1), ev("CapacityChanged")(at=at, slots=slots)
    todo, found = deque[Any](begun), list[Any]()
    names = {cmd(name): name for name in ("SuggestConfigs", "OpenSlot", "StartTrial", "EndSweep")}
    while todo:
        event = todo.popleft()
        found.append(event)
        for command in step(state, event):
            at += 0.01
            todo.extend(_answers(ev, names.get(type(command), ""), command, at, trials, reports))
    return found


def _answers(ev: Any, name: str, command: Any, at: float, trials: int, reports: int) -> Iterator[Any]:
    if name == "SuggestConfigs":
        first, end = command.first, min(trials, command.first + command.count)
        configs = tuple({"x": (number + 1) / (trials + 2), "y": 0.1, "z": 1} for number in range(first, end))
        yield ev("ConfigsSuggested")(at=at, first=first, configs=configs, is_exhausted=end == trials)
    elif name == "OpenSlot":
        yield ev("SlotOpened")(at=at, slot=command.slot, node="node")
    elif name == "StartTrial":
        who = {"trial": command.trial, "attempt": command.attempt}
        rows = tuple([((command.trial * 7919 + number) % 10_007) / 10_007] for number in range(reports))
        yield ev("TrialStarted")(at=at, **who)
        yield ev("TrialReported")(at=at, first=0, keys=("loss",), rows=rows, **who)
        yield ev("TrialReturned")(at=at, **who)
    elif name == "EndSweep":
        yield ev("SweepEnded")(at=at)


def _vocabulary(kind: str) -> Any:
    return lambda name: find(f"raysweep.core.vocabulary.{kind}:{name}", f"raysweep.core.{kind}:{name}")


def store_run(place: Path, trials: int, reports: int = 1, number: int = 0) -> Any:
    """A sweep that ended, in a storage; its folder."""
    made, key = spec(num_samples=trials, storage_path=str(place)), f"night {number}"
    step, encode = find("raysweep.core:step"), find("raysweep.core:encode")
    make_outcome = find("raysweep.core:make_outcome", "raysweep.core.result:make_outcome")
    run_id = find("raysweep.specs.identity:RunId", "raysweep.spec.identity:RunId")
    record = find("raysweep.runs.folder:SweepRecord")
    folder = find("raysweep.runs.folder:SweepFolder")(open_store(place), run_id.of(made, key).id)
    folder.write_spec_if_absent(record(digest=made.digest(), key=key, seed=1, spec=made.to_dict()))
    state = find("raysweep.core:SweepState").create(made, 1)
    first, *others = events(trials, reports)
    with writer_of(folder.journal(), encode(first)) as writer:
        step(state, first)
        for event in others:
            writer.write(encode(event))
            step(state, event)
    outcome = make_outcome(state, sweep_id=folder.sweep_id, key=key, uri=folder.uri, version="0")
    folder.write_outcome_if_absent(outcome)
    return folder


def writer_of(journal: Any, first: bytes) -> Any:
    """The writer of a journal that begins with this record."""
    claim = journal.claim(lambda generation: first)
    make = find("raysweep.storage.journal.writer:JournalWriter", "raysweep.storage.writer:JournalWriter")
    return make(journal.backend, claim.generation, claim.next_number, _fail, writer=claim.writer)


def open_store(place: Path) -> Any:
    """The storage in a folder."""
    return find("raysweep.storage.objects.opening:open_store", "raysweep.storage.opening:open_store")(place)


def _fail(error: Exception) -> None:
    raise error
