"""An hour of a hundred checkpoints a minute, in virtual time: what is stored and remembered stays flat."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from raysweep.simulate import simulate
from raysweep.simulate.simulation import Running
from raysweep.storage.checkpoints.store import CheckpointRef, CheckpointStore
from raysweep.storage.objects.opening import open_store
from tests.unit.simulate.sweeps import make_spec

SLOTS = 64
PER_MINUTE = 100
STEP_S = SLOTS * 60 / PER_MINUTE
KEPT = 2


@pytest.mark.parametrize("minutes", [8, pytest.param(60, marks=pytest.mark.slow)])
def test_a_hundred_checkpoints_a_minute_from_64_slots_leave_objects_and_the_controllers_state_flat(
    minutes: int,
) -> None:
    """Each trial keeps its last two and its best; looked at once a minute."""
    reports = round(minutes * 60 / STEP_S)
    seen: list[tuple[int, int]] = []

    def watch(running: Running) -> None:
        trials = running.cluster._trials
        store, prefix = trials._store, f"{trials._sweep_id}/checkpoints"

        def look() -> None:
            objects = sum(1 for _ in store.list(prefix))
            seen.append((objects, len(pickle.dumps(running.controller.state))))
            if len(seen) < minutes - 1:
                running.clock.after(60.0, look)

        running.clock.after(60.0, look)

    def curve(config: Mapping[str, Any], iteration: int) -> Mapping[str, Any] | None:
        return {"loss": 1 / iteration} if iteration <= reports else None

    spec = make_spec(num_samples=SLOTS, checkpoint={"keep_last": KEPT, "keep_best": True})
    simulated = simulate(spec, curve, step_s=STEP_S, slots=SLOTS, save_every=1, disturb=watch)

    committed = sum(type(event).__name__ == "CheckpointCommitted" for event in simulated.journal)
    assert committed == SLOTS * reports >= 0.9 * PER_MINUTE * minutes
    assert simulated.outcome.counts == {"completed": SLOTS}
    # From the third minute on each trial has as many as it keeps, and one more until its end is sealed.
    flat = seen[3:]
    assert len(flat) >= minutes // 2
    assert max(objects for objects, _ in flat) <= SLOTS * (KEPT + 1)
    sizes = [size_bytes for _, size_bytes in flat]
    assert max(sizes) <= 1.1 * sizes[0]


def test_the_objects_of_64_trials_in_a_real_store_stay_as_many_however_many_checkpoints_there_were(
    tmp_path: Path,
) -> None:
    """Each keeps its last two; a third of what it holds changes, the rest is what the first one stored."""
    store = open_store(f"memory://{uuid.uuid4().hex}")
    checkpoints, source = CheckpointStore(store, "s-1"), tmp_path / "source"
    source.mkdir()
    (source / "frozen").write_bytes(bytes(70_000))
    kept: dict[str, list[CheckpointRef]] = {f"{trial:05d}": [] for trial in range(SLOTS)}
    counts = []
    for number in range(1, 5):
        (source / "head").write_bytes(number.to_bytes(2, "big") * 35_000)
        for trial, refs in kept.items():
            parent = refs[-1].manifest if refs else None
            refs.append(checkpoints.save(trial, number, source, parent=parent))
            if len(refs) > KEPT:
                checkpoints.delete(refs.pop(0))
        counts.append(sum(1 for _ in store.list()))
    # Two manifests, two heads, and what is frozen.
    assert counts[1:] == [SLOTS * 5] * 3
