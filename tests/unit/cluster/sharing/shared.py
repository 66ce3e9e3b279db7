"""A cluster in virtual time that sweeps share: the real core and register, model slots and trials."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from random import Random
from typing import Any

from raysweep.cluster.sharing.division import Claim
from raysweep.cluster.sharing.register import ALONE, Register, Share, Sight
from raysweep.core import SweepState, step
from raysweep.core.handlers.sharing import needed_slots, wanted_slots
from raysweep.core.state.invariants import check
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from tests.unit.core.toys import METRIC, make_spec

START_S = 1.5
"""From a place to a worker that takes trials."""


class FakeNotes(dict[str, str]):
    """The control store."""

    def put(self, key: str, value: str) -> None:
        self[key] = value

    def delete(self, key: str) -> None:
        self.pop(key, None)

    def keys(self, prefix: str = "") -> list[str]:  # type: ignore[override]
        return [key for key in self if key.startswith(prefix)]


class SharedCluster:
    """Nodes with CPUs; those in `taken`, of the first one, belong to a plain Ray job."""

    def __init__(self, *nodes: int, seed: int = 0) -> None:
        self.nodes = nodes
        self.cpus = sum(nodes)
        self.taken = 0
        self.now = 0.0
        self.notes = FakeNotes()
        self.random = Random(seed)
        self.sweeps: list[SharingSweep] = []
        self.placed: dict[str, tuple[int, int]] = {}
        """By group its node and its CPUs."""
        self.waiting: deque[tuple[str, int, Callable[[], None]]] = deque()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = count()

    def sweep(
        self, name: str, trial_s: float, *, deadline: float | None = None, **fields: Any
    ) -> SharingSweep:
        """A sweep that begins now; its trials take `trial_s`, give or take a fifth."""
        if deadline is not None:
            fields["stop"] = {"deadline": datetime.fromtimestamp(deadline, UTC).isoformat(), "grace_s": 1}
        made = SharingSweep(self, name, trial_s, fields)
        self.sweeps.append(made)
        made.begin()
        return made

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._count), call))

    def run_until(self, at: float) -> None:
        """Let the time pass, and count what each sweep has and what idles while some sweep wants more."""
        while self._due and self._due[0][0] <= at:
            due, _, call = heapq.heappop(self._due)
            self._meter(due)
            call()
        self._meter(at)

    def _meter(self, at: float) -> None:
        seconds, self.now = at - self.now, at
        running = 0
        for sweep in self.sweeps:
            sweep.slot_s += seconds * len(sweep.placed)
            sweep.busy_s += seconds * sweep.state.tally.busy_slots * sweep.is_alive
            running += len(sweep.placed) * sweep.cpus
        wanting = sum(
            (sweep.wanted - len(sweep.placed)) * sweep.cpus for sweep in self.sweeps if sweep.is_alive
        )
        free = self.cpus - self.taken - running
        self.idle_s += seconds * max(0, min(free, wanting))

    idle_s = 0.0

    def look_around(self) -> Sight:
        return Sight(
            free={str(node): {"CPU": float(self.free(node))} for node in range(len(self.nodes))},
            total={"CPU": float(self.cpus)},
            placed={group: [str(node)] for group, (node, _) in self.placed.items()},
        )

    def free(self, node: int) -> int:
        used = sum(cpus for on, cpus in self.placed.values() if on == node)
        return self.nodes[node] - used - (self.taken if node == 0 else 0)

    def place(self) -> None:
        """Ray places what waits and fits, the first that waits first, where most is free."""
        for group, cpus, placed in list(self.waiting):
            node = max(range(len(self.nodes)), key=self.free)
            if self.free(node) >= cpus:
                self.waiting.remove((group, cpus, placed))
                self.placed[group] = (node, cpus)
                placed()


@dataclass(eq=False)
class SharingSweep:
    cluster: SharedCluster
    name: str
    trial_s: float
    fields: dict[str, Any]
    slot_s: float = 0.0
    busy_s: float = 0.0
    wanted: int = 0
    is_alive: bool = True
    has_ended: bool = False
    ended_at: float | None = None
    looks: int = 0
    moved: int = 0
    opened: int = 0
    placed: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    shares: list[Share] = field(default_factory=list)

    def begin(self) -> None:
        fields = {"share": {}, "num_samples": 100_000} | self.fields
        self.cpus = fields.pop("cpus", 1)
        self.slots = sum(cpus // self.cpus for cpus in self.cluster.nodes)
        self.saves = fields.pop("saves", False)
        spec = make_spec(**fields)
        assert spec.share is not None
        self.share = spec.share
        self.total = spec.num_samples
        self.state = SweepState.create(spec, 7)
        self.done_s: dict[int, float] = {}
        self.register = Register(
            self.cluster.notes, self.name, self.cluster.look_around, lambda: self.cluster.now
        )
        self.told = ALONE
        self.send(ev.ControllerStarted, generation=1)
        self.look(first=True)
        self.send(ev.CapacityChanged, slots=self.slots)
        self.cluster.after(self.register.pause_s * self.cluster.random.random(), self._look_again)

    def kill(self) -> None:
        """The controller dies: Ray takes its slots back, its lease stays."""
        self.is_alive = False
        for group in self.placed:
            del self.cluster.placed[group]
        self.placed.clear()
        self.cluster.waiting = deque(each for each in self.cluster.waiting if each[0] not in self.asked)
        self.cluster.place()

    def send(self, make: Callable[..., ev.Event], **fields: Any) -> None:
        if not self.is_alive or self.has_ended:
            return
        for command in step(self.state, make(at=self.cluster.now, **fields)):
            self.carry(command)

    def _look_again(self) -> None:
        if self.is_alive and not self.has_ended:
            self.looks += 1
            if self.looks % 50 == 1:
                check(self.state)
            self.look()
            self.cluster.after(self.register.pause_s, self._look_again)

    def look(self, *, first: bool = False) -> None:
        state, now = self.state, self.cluster.now
        self.wanted = wanted_slots(state, self.slots)
        bundle = {"CPU": float(self.cpus)}
        claim = Claim(
            owner="",
            bundle=bundle,
            weight=self.share.weight,
            priority=self.share.priority,
            deadline=state.clock.deadline_at,
            needed=needed_slots(state, now),
            wants=self.wanted,
        )
        share = self.register.look(claim, {group: [bundle] for group in self.asked})
        if share != self.told:
            self.told = share
            self.shares.append(share)
            self.send(
                ev.ShareChanged,
                slots=share.slots,
                beside=share.beside,
                is_hurried=share.is_hurried,
                kept=tuple(share.kept.items()),
            )

    def carry(self, command: cmd.Command) -> None:
        after = self.cluster.after
        match command:
            case cmd.SuggestConfigs(first=first, count=number):
                number = min(number, self.total - first)
                configs = tuple({"x": 0.5} for _ in range(number))
                is_last = first + number >= self.total
                self.cluster.after(
                    0.0,
                    lambda: self.send(
                        ev.ConfigsSuggested, first=first, configs=configs, is_exhausted=is_last
                    ),
                )
            case cmd.OpenSlot(slot=slot):
                group = f"{self.name}.{slot}"
                self.asked.add(group)
                self.opened += 1
                self.cluster.waiting.append((group, self.cpus, lambda: self._placed(group, slot)))
                self.cluster.place()
            case cmd.CloseSlot(slot=slot):
                self._remove(f"{self.name}.{slot}")
            case cmd.StartTrial(trial=trial, attempt=attempt):
                self.send_later(0.01, ev.TrialStarted, trial=trial, attempt=attempt)
                left_s = self.trial_s * self.cluster.random.uniform(0.8, 1.2) - self.done_s.get(trial, 0.0)
                began = self.cluster.now
                if self.saves:
                    after(1.0, lambda: self._save(trial, attempt, began))
                after(max(0.05, left_s), lambda: self._return(trial, attempt))
            case cmd.StopTrial(trial=trial, attempt=attempt, reason=reason):
                self.moved += reason == "preempt"
                self.send_later(0.5, ev.TrialStopped, trial=trial, attempt=attempt)
            case cmd.EndSweep():
                for group in list(self.asked):
                    self._remove(group)
                self.register.leave()
                self.send_later(0.0, ev.SweepEnded)
                self.ended_at, self.wanted = self.cluster.now, 0

    def send_later(self, seconds: float, make: Callable[..., ev.Event], **fields: Any) -> None:
        self.cluster.after(seconds, lambda: self.send(make, **fields))

    def _placed(self, group: str, slot: int) -> None:
        self.placed.add(group)
        node, _ = self.cluster.placed[group]
        self.send_later(START_S, ev.SlotOpened, slot=slot, node=str(node))

    def _remove(self, group: str) -> None:
        self.asked.discard(group)
        self.placed.discard(group)
        self.cluster.placed.pop(group, None)
        self.cluster.waiting = deque(each for each in self.cluster.waiting if each[0] != group)
        self.cluster.place()

    def _is_running(self, trial: int, attempt: int) -> bool:
        known = self.state.trials[trial]
        return self.is_alive and known.attempt == attempt and known.state in ("running", "stopping")

    def _report(self, trial: int, attempt: int) -> None:
        first = self.state.trials[trial].results.attempt_reports
        self.send(ev.TrialReported, trial=trial, attempt=attempt, first=first, keys=(METRIC,), rows=([0.5],))

    def _save(self, trial: int, attempt: int, began: float) -> None:
        if self._is_running(trial, attempt):
            self._report(trial, attempt)
            number = self.state.trials[trial].results.next_checkpoint
            report = self.state.trials[trial].results.attempt_reports - 1
            self.done_s[trial] = self.done_s.get(trial, 0.0) + 1.0
            fields = {"number": number, "report": report, "uri": f"mem://{trial}/{number}"}
            self.send(ev.CheckpointCommitted, trial=trial, attempt=attempt, **fields)
            self.cluster.after(1.0, lambda: self._save(trial, attempt, self.cluster.now))

    def _return(self, trial: int, attempt: int) -> None:
        if self._is_running(trial, attempt) and self.state.trials[trial].state == "running":
            self._report(trial, attempt)
            self.send(ev.TrialReturned, trial=trial, attempt=attempt)
