"""Sweeps as a simulator stores them, for reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from raysweep.core import SweepState, encode, step
from raysweep.core.vocabulary import events as ev
from raysweep.outcome import SweepOutcome
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.runs.ownership.holder import current_holder
from raysweep.runs.reading.progress import make_progress
from raysweep.simulate import Simulated, simulate
from raysweep.specs import SweepSpec
from raysweep.storage.journal.writer import JournalWriter
from raysweep.storage.objects.opening import open_store

SPEC: dict[str, Any] = {
    "name": "night",
    "trainable": "m:f",
    "metric": "auc",
    "mode": "max",
    "search": "random",
    "num_samples": 24,
    "seed": 3,
    "param_space": {
        "rate": {"loguniform": [1e-4, 1e-1]},
        "net": {"width": {"randint": [4, 64]}, "kind": {"choice": ["wide", "deep"]}},
    },
    "scheduler": {"asha": {"max_t": 9, "grace_period": 1, "reduction_factor": 3}},
    "failure": {"max_failures": 0, "breaker_trials": 1000},
}


def learn(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
    """A curve that rises; wide nets fail after three reports."""
    if iteration > 3 and config["net"]["width"] > 56:
        raise ValueError(f"width {config['net']['width']} is too wide")
    if iteration > 9:
        return None
    return {"auc": config["rate"] + 0.5 - 0.3 / iteration, "latency_ms": 5 + config["net"]["width"] / 4}


def store(root: Path, curve: Callable[..., Any] = learn, **changes: Any) -> tuple[SweepFolder, SweepOutcome]:
    """The folder of a sweep that has ended, and its outcome."""
    how: dict[str, Any] = {"slots": 3, "save_every": 2, "step_s": 2.0}
    how |= {"kills": (), "disturb": None}
    how = {name: changes.pop(name, value) for name, value in how.items()}
    simulated = simulate(SPEC | changes, curve, keep_at=str(root), **how)
    outcome = simulated.outcome
    return SweepFolder(open_store(root), outcome.sweep_id), outcome


def nights(root: Path, counts: Sequence[int]) -> list[SweepFolder]:
    """Sweeps of one name, a night apart, of so many trials each."""
    found = []
    for place, count in enumerate(counts):
        folder, outcome = store(root, name=f"night {place}", num_samples=count, seed=count)
        by = 86_400.0 * place
        times = {"started_at": outcome.started_at + by, "ended_at": outcome.ended_at + by}
        folder.store.delete(f"{folder.sweep_id}/outcome.json")
        folder.write_outcome_if_absent(outcome.model_copy(update={"name": "night", **times}))
        found.append(folder)
    return found


def unfinished(folder: SweepFolder) -> SweepFolder:
    """The same sweep as if its controller had been lost just before its end."""
    folder.store.delete(f"{folder.sweep_id}/outcome.json")
    return folder


def first_half(folder: SweepFolder, root: Path) -> SweepFolder:
    """A copy at `root` of a sweep as it was halfway: no outcome, and the first half of its journal."""
    copy = SweepFolder(open_store(root), folder.sweep_id)
    names = sorted(info.key for info in folder.store.list(f"{folder.sweep_id}/journal"))
    for name in [f"{folder.sweep_id}/sweep.json", *names[: len(names) // 2]]:
        data = folder.store.get(name)
        assert data is not None
        copy.store.put(name, data)
    return copy


def second_half(folder: SweepFolder, copy: SweepFolder) -> None:
    """The rest of the sweep happens to the copy."""
    for info in list(folder.store.list(folder.sweep_id)):
        if not copy.store.exists(info.key):
            data = folder.store.get(info.key)
            assert data is not None
            copy.store.put(info.key, data)


def store_part(
    root: Path,
    spec: dict[str, Any],
    simulated: Simulated,
    *,
    part: float = 1.0,
    ago_s: float = 0.0,
    is_held: bool = True,
    sweep_id: str = "flights-0123abcd",
) -> SweepFolder:
    """Store the first part of a simulated sweep, as if it had happened until `ago_s` ago.

    The whole of it has an outcome.
    """
    folder = SweepFolder(open_store(root), sweep_id)
    made = SweepSpec.from_any(spec)
    seed = int(spec["seed"])
    folder.write_spec_if_absent(
        SweepRecord(digest=made.digest(), key="night", seed=seed, spec=made.to_dict())
    )
    count = max(1, round(len(simulated.journal) * part))
    events = _shifted(simulated.journal[:count], ago_s)
    journal = folder.journal()
    assert not list(journal.read())
    claim = journal.claim(lambda _: encode(events[0]))
    state = SweepState.create(made, seed)
    step(state, events[0])
    with JournalWriter(
        journal.backend, claim.generation, claim.next_number, lambda error: None, writer=claim.writer
    ) as writer:
        for event in events[1:]:
            writer.write(encode(event))
            step(state, event)
    progress = make_progress(
        state, sweep_id=sweep_id, holder=current_holder(), at=events[-1].at, total=int(spec["num_samples"])
    )
    folder.write_progress(progress.model_copy(update={"has_left": not is_held}))
    if part >= 1.0:
        by = events[-1].at - simulated.journal[-1].at
        ended = simulated.outcome.model_copy(
            update={
                "sweep_id": sweep_id,
                "started_at": simulated.outcome.started_at + by,
                "ended_at": simulated.outcome.ended_at + by,
                "uri": folder.uri,
                "trials": tuple(_later(trial, by) for trial in simulated.outcome.trials),
            }
        )
        folder.write_outcome_if_absent(ended)
    return folder


def _later(record: Any, by: float) -> Any:
    """A trial, or one of its attempts, as if it had been `by` seconds later."""
    times = {name: getattr(record, name) for name in ("started_at", "ended_at")}
    update: dict[str, Any] = {name: at + by for name, at in times.items() if at is not None}
    if hasattr(record, "attempts"):
        update["attempts"] = tuple(_later(attempt, by) for attempt in record.attempts)
    return record.model_copy(update=update)


def _shifted(events: Sequence[ev.Event], ago_s: float) -> list[ev.Event]:
    """The same events, the last of them `ago_s` ago."""
    by = time.time() - ago_s - events[-1].at
    return [replace(event, at=event.at + by) for event in events]
