"""Any interleaving, with crashes: the sweep ends, and nothing is lost, doubled or run twice."""

from __future__ import annotations

import os
import random
from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from raysweep.core import make_outcome
from raysweep.core.handlers.reopen import find_failed
from raysweep.core.handlers.sizes import needed_sizes
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.core.vocabulary.lifecycle import FINAL
from tests.unit.core.drawn import (
    BEGINNINGS,
    BEYOND,
    FAILURES,
    GIB,
    LOSSES,
    SIZES,
    VALUES,
    Beginning,
    fitting,
)
from tests.unit.core.toys import METRIC, STEP, make_spec
from tests.unit.core.workers import Worker
from tests.unit.core.world import World

PICK = st.integers(0, 7)


# What the interleavings of this process were made of.
happened: Counter[str] = Counter()


class Interleavings(RuleBasedStateMachine):
    """Each rule lets one thing happen somewhere; which rule, where and in what order is Hypothesis's."""

    world: World

    @initialize(begun=BEGINNINGS)
    def begin(self, begun: Beginning) -> None:
        spec = make_spec(**fitting(begun.fields))
        # A searcher may run dry before num_samples.
        total = spec.num_samples // 2 if begun.is_dry else spec.num_samples
        self.world = World(spec, total=total, length=begun.length, tick_s=begun.tick_s)
        self.world.keeps_recent = True
        self.world.start(begun.capacity)
        self._go_on(begun.warm)

    def _go_on(self, count: int) -> None:
        for _ in range(count):
            self.world.move_on()

    def _pick(self, index: int, workers: list[Worker]) -> Worker | None:
        return workers[index % len(workers)] if workers else None

    @property
    def _is_on(self) -> bool:
        return not self.world.has_left and self.world.state.phase != "ended"

    @precondition(lambda self: self._is_on)
    @rule(pause_s=st.sampled_from([0.0, 0.0, 0.01, 2.0]), count=st.integers(1, 20))
    def go_on(self, pause_s: float, count: int) -> None:
        self.world.now += pause_s
        self._go_on(count)

    @precondition(lambda self: self._is_on)
    @rule(index=PICK, is_doubled=st.booleans())
    def deliver(self, index: int, is_doubled: bool) -> None:
        worker = self._pick(index, [worker for worker in self.world.workers.values() if worker.outbox])
        if worker is not None:
            event = self.world.deliver(worker)
            if is_doubled:
                happened["doubled"] += 1
                self.world.send(event)

    @precondition(lambda self: self._is_on and self.world.sent)
    @rule(index=st.integers(0, 1000))
    def deliver_late(self, index: int) -> None:
        event = self.world.sent[index % len(self.world.sent)]
        # These two name no attempt; the link delivers them once.
        if not isinstance(event, ev.TrialsRecalled | ev.SlotOpened):
            happened["late"] += 1
            self.world.send(event)

    @precondition(lambda self: self._is_on)
    @rule(index=PICK)
    def take_command(self, index: int) -> None:
        worker = self._pick(index, [w for w in self.world.workers.values() if w.inbox and w.is_up])
        if worker is not None:
            self.world.take_command(worker)

    @precondition(lambda self: self._is_on)
    @rule(index=PICK)
    def begin_trial(self, index: int) -> None:
        ready = [w for w in self.world.workers.values() if w.queue and w.job is None]
        worker = self._pick(index, ready)
        if worker is not None:
            self.world.begin(worker)

    def _running(self) -> list[Worker]:
        for _ in range(12):
            running = [w for w in self.world.workers.values() if w.job is not None and w.job.awaits is None]
            if running or not self._is_on:
                return running
            self.world.move_on()
        return []

    @precondition(lambda self: self._is_on)
    @rule(
        index=PICK,
        values=st.lists(VALUES, min_size=1, max_size=4),
        is_waiting=st.booleans(),
        is_saved=st.booleans(),
        keys=st.sampled_from([(METRIC,), (METRIC,), (METRIC, STEP), ("other",)]),
    )
    def report(
        self, index: int, values: list[object], is_waiting: bool, is_saved: bool, keys: tuple[str, ...]
    ) -> None:
        worker = self._pick(index, [w for w in self._running() if w.job is not None and not w.job.goes_back])
        if worker is not None:
            happened["reports"] += 1
            self.world.report(worker, values, is_waiting=is_waiting, keys=keys)
            if is_saved:
                self.world.save(worker)

    @precondition(lambda self: self._is_on)
    @rule(index=PICK, how=st.sampled_from(["returned", "stopped", "failed"]), failure=FAILURES)
    def finish_trial(self, index: int, how: str, failure: Failure) -> None:
        worker = self._pick(index, self._running())
        if worker is not None:
            self.world.finish(worker, how, failure)

    @precondition(lambda self: self._is_on)
    @rule(index=PICK, is_swallowed=st.booleans())
    def damage_newest(self, index: int, is_swallowed: bool) -> None:
        """The newest checkpoint of a trial goes bad; a resume from it says so; user code may continue."""
        trials = [self.world.state.trials[number] for number in self.world.state.line.active]
        able = [trial for trial in trials if len(trial.checkpoints) > 1]
        if able:
            self.world.damaged.add(able[index % len(able)].checkpoints[-1].uri)
        meeting = [w for w in self._running() if w.job is not None and self.world.meets_damage(w.job)]
        worker = self._pick(index, meeting)
        if worker is not None and is_swallowed:
            worker.find_damage(self.world.now)

    @precondition(lambda self: self._is_on)
    @rule(index=PICK, failure=LOSSES, was_handed=st.booleans())
    def lose_slot(self, index: int, failure: Failure, was_handed: bool) -> None:
        worker = self._pick(index, [w for w in self.world.workers.values() if w.is_up and not w.is_lost])
        if worker is not None:
            was_handed = was_handed or worker.job is not None or bool(worker.queue)
            self.world.lose_slot(worker, failure, was_handed=was_handed)

    @precondition(lambda self: self._is_on)
    @rule(index=PICK, is_fatal=st.sampled_from([False, False, False, True]), is_node_known=st.booleans())
    def fail_replacement(self, index: int, is_fatal: bool, is_node_known: bool) -> None:
        worker = self._pick(index, [w for w in self.world.workers.values() if w.is_up and not w.is_lost])
        if worker is not None:
            happened["replacements"] += 1
            failure = Failure(origin="start", type="ImportError", message="no", is_fatal=is_fatal)
            node = self.world.node_for(worker) if is_node_known else ""
            self.world.fail_slot(worker, failure, node)

    @precondition(lambda self: self._is_on)
    @rule(index=PICK, is_fatal=st.sampled_from([False, False, False, True]), is_node_known=st.booleans())
    def fail_slot(self, index: int, is_fatal: bool, is_node_known: bool) -> None:
        worker = self._pick(index, [w for w in self.world.workers.values() if not (w.is_up or w.is_lost)])
        if worker is not None:
            failure = Failure(origin="start", type="ImportError", message="no", is_fatal=is_fatal)
            node = self.world.node_for(worker) if is_node_known else ""
            self.world.fail_slot(worker, failure, node)

    @precondition(lambda self: self._is_on)
    @rule(slots=st.integers(0, 5), memory_bytes=SIZES, beyond=BEYOND)
    def change_capacity(self, slots: int, memory_bytes: int, beyond: tuple[str, ...]) -> None:
        world = self.world
        world.send(
            ev.CapacityChanged(
                at=world.now, slots=slots, nodes=3, memory_bytes=memory_bytes, problem="full", beyond=beyond
            )
        )

    @precondition(lambda self: self._is_on and self.world.state.line.hungry_for_memory)
    @rule(count=st.integers(0, 40), index=st.none() | PICK)
    def lose_the_large_nodes(self, count: int, index: int | None) -> None:
        """All of them, or the room for one of the sizes that trials need, of gangs with their memory."""
        happened["shrunk"] += 1
        world = self.world
        lost: tuple[str, ...] = ("cpu=2", "cpu=3")
        memory_bytes = GIB
        if index is not None and (sizes := needed_sizes(world.state)):
            lost, memory_bytes = (sizes[index % len(sizes)],), 16 * GIB
        world.send(ev.CapacityChanged(at=world.now, slots=2, nodes=1, memory_bytes=memory_bytes, beyond=lost))
        self._go_on(count)

    @precondition(lambda self: self._is_on)
    @rule(node=st.sampled_from(["n0", "n1", "n2"]), left_s=st.sampled_from([None, 0.0, 60.0, 7200.0]))
    def drain_node(self, node: str, left_s: float | None) -> None:
        happened["drains"] += 1
        self.world.drain_node(node, None if left_s is None else self.world.now + left_s)

    @precondition(lambda self: self._is_on)
    @rule(index=PICK, is_storage=st.booleans(), is_over=st.booleans())
    def keep_silent(self, index: int, is_storage: bool, is_over: bool) -> None:
        world = self.world
        if is_storage:
            world.send(ev.StorageStalled(at=world.now, is_over=is_over))
        elif worker := self._pick(index, self._running()):
            assert worker.job is not None
            trial, attempt = worker.job.who
            world.send(ev.TrialBusy(at=world.now, trial=trial, attempt=attempt, is_over=is_over))

    @precondition(lambda self: self._is_on)
    @rule(index=PICK, can_never=st.booleans())
    def say_what_waits(self, index: int, can_never: bool) -> None:
        world = self.world
        worker = self._pick(index, [w for w in world.workers.values() if not (w.is_up or w.is_lost)])
        if worker is not None:
            world.send(ev.SlotDelayed(at=world.now, slot=worker.slot, problem="no place"))
        else:
            world.send(ev.DemandStuck(at=world.now, problem="nested tasks wait", can_never=can_never))

    @precondition(lambda self: self._is_on and self.world.timer is not None)
    @rule()
    def fire_timer(self) -> None:
        world = self.world
        assert world.timer is not None
        world.now, world.timer = max(world.now, world.timer), None
        world.send(ev.TimerFired(at=world.now))

    @precondition(lambda self: self._is_on)
    @rule()
    def flush(self) -> None:
        self.world.flush()

    @precondition(lambda self: self._is_on)
    @rule(how=st.sampled_from(["no", "no", "no", "no", "interrupt", "cancel"]))
    def end(self, how: str) -> None:
        at = self.world.now
        if how != "no":
            self.world.send(ev.CancelRequested(at=at) if how == "cancel" else ev.InterruptRequested(at=at))

    @precondition(lambda self: self.world.state.phase != "ended")
    @rule(
        lost=st.integers(0, 6),
        gap=st.floats(0, 50),
        capacity=st.integers(0, 4),
        memory_bytes=SIZES,
        beyond=BEYOND,
    )
    def crash(self, lost: int, gap: float, capacity: int, memory_bytes: int, beyond: tuple[str, ...]) -> None:
        world = self.world
        world.largest_bytes, world.beyond = memory_bytes, beyond
        happened["crashes"] += 1
        world.now += gap
        world.crash(max(world.durable, len(world.journal) - lost), capacity)

    @precondition(lambda self: self.world.state.phase == "running")
    @rule(count=st.integers(1, 3), capacity=st.integers(1, 4))
    def resume_with_more_samples(self, count: int, capacity: int) -> None:
        self.world.crash(capacity=capacity)
        if self.world.state.phase == "running":
            self.world.extend(count)

    @precondition(lambda self: self._is_on)
    @rule()
    def restore_from_snapshot(self) -> None:
        happened["replayed"] += 1
        self.world.fork_twin()

    @precondition(lambda self: self.world.state.end.status in ("deadline", "budget"))
    @precondition(lambda self: self.world.state.phase == "ended")
    @rule(later_s=st.floats(0.5, 50), capacity=st.integers(1, 4))
    def reopen(self, later_s: float, capacity: int) -> None:
        self.world.reopen(later_s, capacity)

    @precondition(lambda self: self.world.state.end.status in ("completed", "failed"))
    @precondition(lambda self: self.world.state.phase == "ended" and self.world.state.end.reopened < 3)
    @rule(
        every=st.integers(1, 3),
        further=st.sampled_from([{}, {"extend_top": 2}, {"extend_trials": (0, 3)}]),
        to=st.sampled_from([2.0, 5.0, 20.0]),
        capacity=st.integers(1, 4),
    )
    def ask_for_more(self, every: int, further: dict[str, object], to: float, capacity: int) -> None:
        happened["asked for more"] += 1
        wanted = {**further, "extend_to": to} if further else {}
        self.world.go_on(capacity, retried=find_failed(self.world.state)[::every], **wanted)

    @precondition(lambda self: self.world.state.phase == "ended")
    @rule(every=st.integers(1, 3))
    def keep_a_budget(self, every: int) -> None:
        happened["budgets"] += 1
        self.world.release(every)

    @precondition(lambda self: self.world.state.phase == "ended")
    @rule(index=st.integers(0, 1000), begun=BEGINNINGS)
    def begin_another(self, index: int, begun: Beginning) -> None:
        world = self.world
        before = world.snapshot()
        if world.sent:
            assert world.send(world.sent[index % len(world.sent)]) == []
        assert world.snapshot() == before, "an event after the end changed something"
        self._check_end()
        self.begin(begun)

    def teardown(self) -> None:
        if not hasattr(self, "world") or self.world.loop.is_over:
            return  # it has failed, and says so already
        world = self.world
        if world.state.phase != "ended":
            if world.has_left:
                world.crash()
            room = {"memory_bytes": world.largest_bytes, "beyond": world.beyond}
            world.send(ev.CapacityChanged(at=world.now, slots=2, **room))
        world.drain()
        self._check_end()

    def _check_end(self) -> None:
        world = self.world
        assert all(trial.state in FINAL for trial in world.state.trials.values())
        outcome = make_outcome(world.state, sweep_id="toy", key="k", uri="mem://toy", version="0")
        assert len(outcome) == world.state.search.suggested
        happened["interleavings"] += 1
        happened["found damage"] += sum(b"CheckpointDamaged" in line for line in world.journal)


# One run of all examples is one test: it may take longer than others.
pytestmark = [pytest.mark.faults, pytest.mark.timeout(4 * 3600)]
WANTED = int(os.environ.get("RAYSWEEP_INTERLEAVINGS", "10000"))
SETTINGS = settings(
    max_examples=20,  # and ten thousand every night
    stateful_step_count=60,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
Interleavings.TestCase.settings = SETTINGS
TestInterleavings = Interleavings.TestCase


@pytest.mark.slow
def test_ten_thousand_interleavings() -> None:
    """An example holds one sweep or more (2 on average), each driven to its end in an order of its own.

    RAYSWEEP_SEED repeats a run; a failure also prints its own steps and a blob to repeat it with.
    RAYSWEEP_INTERLEAVINGS asks for another number of them: 24 a second on one core.
    """
    number = int(os.environ.get("RAYSWEEP_SEED") or random.SystemRandom().randrange(2**32))
    print(f"RAYSWEEP_SEED={number}")
    happened.clear()
    examples = WANTED * 6 // 10
    many = settings(SETTINGS, max_examples=examples, database=None, phases=[Phase.generate, Phase.shrink])
    run_state_machine_as_test(seed(number)(Interleavings), settings=many)
    told = ", ".join(f"{happened[what]} {what}" for what in sorted(happened) if what != "interleavings")
    print(f"{happened['interleavings']} interleavings: {told}")
    assert happened["interleavings"] >= WANTED
    assert min(happened[what] for what in ("crashes", "doubled", "late", "replayed", "reports")) > WANTED / 10
