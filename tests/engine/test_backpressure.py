"""A controller that takes nothing: the trial's process and its worker hold a bounded part of the reports."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.cluster.server import LinkServer
from raysweep.core.vocabulary.events import TrialReported
from raysweep.outcome import SweepProgress

pytestmark = pytest.mark.ray
REPORTS = 150_000
TEXT_BYTES = 1_000
HELD_BACK_S = 5.0
# Beyond what each held before: a queue of 16 MiB twice (rows, a frame), and what an allocator keeps of it.
# Without a bound the worker grows by 164 MiB meanwhile.
MAX_GROWTH_BYTES = 72 * 2**20


def held_bytes(pid: int) -> int:
    """What a process holds for itself alone: a forked child shares what it was loaded with."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class Dam:
    """Has the controller take nothing for a while, from when the trial runs; notes what is held then."""

    def __init__(self, lines: Callable[[], list[list[str]]]) -> None:
        self.server: LinkServer | None = None
        self.seen: dict[str, list[int]] = {"child": [], "worker": []}
        self._lines = lines
        self._until: float | None = None

    def __call__(self, progress: SweepProgress) -> None:
        started = [line for line in self._lines() if line[0] == "start"]
        assert self.server is not None
        if not started or (self._until is not None and not self.server.is_held):
            return
        if self._until is None:
            self._until = time.monotonic() + HELD_BACK_S
            self.server.hold_back(True)
        child = int(started[0][1])
        # Its parent is the fork server, and that one's the worker.
        self.seen["child"].append(held_bytes(child))
        self.seen["worker"].append(held_bytes(parent_of(parent_of(child))))
        if time.monotonic() > self._until:
            self.server.hold_back(False)


@pytest.mark.slow
def test_in_a_process_of_its_own_report_waits_for_the_controller(
    run: Callable[..., rs.SweepOutcome],
    lines: Callable[[], list[list[str]]],
    events: Callable[..., list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[..., None],
) -> None:
    dam = Dam(lines)
    plain = LinkServer.start

    async def start(server: LinkServer, host: str) -> None:
        dam.server = server
        await plain(server, host)

    # To hold the server of this sweep in hand; it does what it always does.
    monkeypatch.setattr(LinkServer, "start", start)

    def flood(config: dict[str, Any]) -> None:
        with open(config["log"], "a") as file:
            file.write(f"start {os.getpid()}\n")
        time.sleep(1.0)
        for step in range(REPORTS):
            rs.report({"loss": 1.0, "step": step, "text": "x" * TEXT_BYTES})

    outcome = run(flood, isolation="process", num_samples=1, on_progress=dam)
    growth = {who: max(held) - held[0] for who, held in dam.seen.items()}
    record_property("growth_mib", {who: growth_bytes >> 20 for who, growth_bytes in growth.items()})
    assert len(dam.seen["child"]) >= 5
    assert all(growth_bytes < MAX_GROWTH_BYTES for growth_bytes in growth.values()), growth
    (trial,) = outcome.trials
    assert (trial.state, trial.reports) == ("completed", REPORTS)
    batches = events(TrialReported)
    steps = [row[batch.keys.index("step")] for batch in batches for row in batch.rows]
    assert steps == list(range(REPORTS))
