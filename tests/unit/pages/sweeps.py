"""Sweeps as a simulator stores them, for reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from raysweep.outcome import SweepOutcome
from raysweep.runs.folder import SweepFolder
from raysweep.simulate import simulate
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
    how |= {"kills": ()}
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
