"""Sweeps drawn at random, on clusters drawn at random, under faults drawn at random: all from one seed.

Workers, nodes and controllers are killed, nodes drained, links cut, loads fail, the storage stands still,
trials raise, hang and take too much memory; retries wait under every searcher and scheduler. What must hold
of each is asserted while it runs (`is_checked`: invariants of core and fleet, their agreement, and that
something always moves) and at its end (`check`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.core.vocabulary.lifecycle import FINAL
from raysweep.errors import TrialStopped
from raysweep.outcome import ErrorInfo
from raysweep.simulate import Costs, Simulated, TrialHangs, TrialOverMemory, WorkerDied, simulate
from raysweep.simulate.kills import ControllerKilled
from raysweep.simulate.nodes import Node, Nodes
from raysweep.simulate.oracles import check_limit, check_times
from raysweep.simulate.simulation import Running
from raysweep.specs import SweepSpec
from tests.unit.simulate import sweeps

GIB: Final = 2**30
LOOK_S: Final = 2.0
HORIZON_S: Final = 90.0
# What is held against trials, and what may have caused it. A trial that ends for its memory may not be heard.
CHARGED: Final = {
    ("user_error",): ("trial raise", "trial stop"),
    ("worker_died", "oom"): (
        "trial die",
        "trial memory",
        "worker killed",
        "link cut",
        "node killed",
        "node drained",
    ),
}


@dataclass
class Faults:
    """Which faults fired, how often."""

    fired: Counter[str] = field(default_factory=Counter)


class Trainable:
    """A curve that depends on its config alone but for its faults, of which so many may happen."""

    def __init__(self, random: Random, faults: Faults, left: int, length: int, *, may_hang: bool) -> None:
        self._random = random
        self._faults = faults
        self._left = left
        self._length = length
        self._rate = random.choice([0.02, 0.1, 0.4])
        kinds = ["raise", "die", "memory", "stop", "nan", *(["hang"] if may_hang else [])]
        self._kinds = random.sample(kinds, k=random.randint(1, len(kinds)))

    def __call__(self, config: Mapping[str, Any], iteration: int) -> Mapping[str, Any] | None:
        if iteration > self._length:
            return None
        if self._left and self._random.random() < self._rate:
            self._left -= 1
            kind = self._random.choice(self._kinds)
            self._faults.fired[f"trial {kind}"] += 1
            if kind == "nan":
                return {"loss": "NaN"}
            raise _RAISED[kind]("as asked")
        x = config["x"]
        return {"loss": round((x - 0.3) ** 2 + x / iteration, 6)}


_RAISED: Final[dict[str, type[BaseException]]] = {
    "raise": ValueError,
    "die": WorkerDied,
    "hang": TrialHangs,
    "memory": TrialOverMemory,
    "stop": TrialStopped,
}


class Disturber:
    """Makes trouble for each controller, `left` times in all."""

    def __init__(self, random: Random, faults: Faults, nodes: Nodes, left: int) -> None:
        self.failing_loads = 0
        self._random = random
        self._faults = faults
        self._nodes = nodes
        self._left = left
        self._kinds = random.sample(list(self._makers()), k=random.randint(1, len(self._makers())))

    def _makers(self) -> dict[str, Callable[[Running], bool]]:
        return {
            "worker killed": self._kill_worker,
            "node killed": self._kill_node,
            "node drained": self._drain_node,
            "node added": self._add_node,
            "link cut": self._cut_link,
            "controller killed": self._kill_controller,
            "interrupted": self._interrupt,
            "cancelled": self._cancel,
            "hurried": self._hurry,
            "load failed": self._fail_loads,
            "storage stalled": self._stall_storage,
            "clock moved": self._move_clock,
        }

    def __call__(self, running: Running) -> None:
        """A controller begins: give it a node at least, look now and then as its watch does, plan trouble."""
        if not any(True for _ in self._nodes.usable(running.controller.state.room.excluded)):
            self._add_node(running)
        running.cluster.set_load_failures(self._takes_load_failure)
        self._look(running)
        for _ in range(self._random.randint(0, min(4, self._left))):
            self._left -= 1
            kind = self._random.choice(self._kinds)
            at = running.clock.now + self._random.random() ** 2 * HORIZON_S
            running.clock.at(at, lambda kind=kind: self._make(kind, running))  # type: ignore[misc]

    def _make(self, kind: str, running: Running) -> None:
        if running.controller.is_done or running.controller.state.phase == "ended":
            return
        if kind == "controller killed":
            self._faults.fired[kind] += 1
        if self._makers()[kind](running) and kind != "controller killed":
            self._faults.fired[kind] += 1

    def _look(self, running: Running) -> None:
        if running.controller.is_done or running.controller.state.phase not in ("running", "stopping"):
            return
        running.controller.look()
        running.clock.after(LOOK_S, lambda: self._look(running))

    def _pick(self, items: list[Any]) -> Any:
        return self._random.choice(items) if items else None

    def _kill_worker(self, running: Running) -> bool:
        actor = self._pick([actor for actor in running.cluster.actors.values() if actor.is_alive])
        if actor is not None:
            died = Failure(origin="process", type="WorkerDied", message="killed by signal 9")
            running.cluster.die(actor, died)
        return actor is not None

    def _cut_link(self, running: Running) -> bool:
        actor = self._pick([actor for actor in running.cluster.actors.values() if actor.is_linked])
        if actor is not None:
            running.cluster.cut_link(actor)
        return actor is not None

    def _kill_node(self, running: Running) -> bool:
        node = self._pick([node for node in self._nodes.all if node.is_alive])
        if node is not None:
            running.cluster.lose_node(node)
        return node is not None

    def _drain_node(self, running: Running) -> bool:
        node = self._pick([node for node in self._nodes.all if node.is_alive and not node.is_draining])
        if node is None:
            return False
        node.is_draining = True
        left_s = self._random.choice([None, 0.0, 5.0, 60.0])
        node.goes_at = None if left_s is None else running.clock.now + left_s
        goes_at = node.goes_at if node.goes_at is not None else running.clock.now + 40.0
        running.clock.at(goes_at, lambda: running.cluster.lose_node(node) if node.is_alive else None)
        return True

    def _add_node(self, running: Running) -> bool:
        like = self._random.choice(self._nodes.all)
        node = Node(name=f"node{len(self._nodes.all)}", cpus=like.cpus, memory_bytes=like.memory_bytes)
        self._nodes.all.append(node)
        running.cluster.place_groups()
        return True

    def _kill_controller(self, running: Running) -> bool:
        raise ControllerKilled

    def _interrupt(self, running: Running) -> bool:
        running.controller.emit(ev.InterruptRequested(at=running.controller.now))
        return True

    def _cancel(self, running: Running) -> bool:
        if self._random.random() < 0.8:
            return False
        running.controller.emit(ev.CancelRequested(at=running.controller.now))
        return True

    def _hurry(self, running: Running) -> bool:
        if self._random.random() < 0.8:
            return False
        running.cluster.hurry()
        running.controller.emit(ev.CancelRequested(at=running.controller.now))
        return True

    def _fail_loads(self, running: Running) -> bool:
        self.failing_loads += self._random.randint(1, 2)
        return True

    def _stall_storage(self, running: Running) -> bool:
        writer = running.controller.writer
        writer.put_s = self._random.choice([1.0, 5.0, 20.0])
        running.clock.after(self._random.random() * 30.0, lambda: setattr(writer, "put_s", Costs().put_s))
        return True

    def _move_clock(self, running: Running) -> bool:
        running.clock.set_wall(self._random.choice([-7200.0, -3600.0, -60.0, 60.0, 3600.0, 7200.0]))
        return True

    def _takes_load_failure(self) -> bool:
        self.failing_loads -= self.failing_loads > 0
        return self.failing_loads > 0


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One sweep with all that happens to it."""

    seed: int
    spec: SweepSpec
    nodes: Nodes
    options: dict[str, Any]
    trainable: Trainable
    disturber: Disturber
    faults: Faults

    @classmethod
    def of(cls, seed: int) -> Drawn:
        """The sweep of this seed."""
        random, faults = Random(seed), Faults()
        length = random.choice([1, 3, 9])
        nodes = _draw_nodes(random)
        spec = _draw_spec(random, length, nodes)
        return cls(
            seed=seed,
            spec=spec,
            nodes=nodes,
            options=_draw_options(random),
            trainable=Trainable(
                random,
                faults,
                random.randint(0, 8),
                length,
                may_hang=spec.failure.report_timeout_s is not None or spec.stop.trial_time_s is not None,
            ),
            disturber=Disturber(random, faults, nodes, random.randint(0, 9)),
            faults=faults,
        )

    def run(self) -> Simulated:
        """Run it to its end, and check what must hold of it."""
        simulated = simulate(
            self.spec,
            self.trainable,
            is_checked=True,
            seed=self.seed,
            nodes=self.nodes,
            disturb=self.disturber,
            **self.options,
        )
        check(self, simulated)
        return simulated


_TARGET_AT_A_LIMIT: Final = {"target": 0.12, "trial": {"training_iteration": 1}}
_MOVING: Final[list[dict[str, Any]]] = [
    {"tests.policies:Halving": {"rungs": [1, 3], "tweak": 0.01}},
    {"tests.policies:Copycat": {"at": 2}},
    {"tests.policies:Whim": {"left": 30}},
]
_BELOW: Final = {"trial": {"loss": {"below": 0.2}}}


def _draw_nodes(random: Random) -> Nodes:
    sizes = random.choice([[0], [2 * GIB], [2 * GIB, 8 * GIB], [2 * GIB, 4 * GIB, 16 * GIB]])
    memory_bytes = GIB if sizes[0] and random.random() < 0.7 else 0
    count = random.randint(1, 4)
    nodes = [
        Node(name=f"node{number}", cpus=random.randint(1, 3), memory_bytes=sizes[number % len(sizes)])
        for number in range(count)
    ]
    return Nodes(all=nodes, memory_bytes=memory_bytes)


def _draw_spec(random: Random, length: int, nodes: Nodes) -> SweepSpec:
    pick = random.choice
    failure: dict[str, Any] = {
        "backoff_initial_s": pick([0.0, 0.5, 10.0]),
        "backoff_max_s": pick([10.0, 30.0]),
        "max_failures": pick([0, 1, 3]),
        "max_worker_deaths": pick([0, 1, 3]) + pick([0, 2]),
        "oom_memory_factor": pick([1.0, 2.0, 6.0]),
        "report_timeout_s": pick([None, None, 25.0]),
        "placement_timeout_s": pick([5.0, 30.0]),
        "start_timeout_s": pick([None, 20.0]),
        "breaker_trials": pick([0, 4]),
        "non_finite": pick(["fail", "ignore"]),
    }
    stop: dict[str, Any] = {"grace_s": pick([0.1, 2.0, 15.0])}
    if random.random() < 0.4:
        stop |= pick(
            [{"trial_time_s": 20.0}, {"target": 0.12}, _BELOW, _TARGET_AT_A_LIMIT, *_draw_ends(random)]
        )
    fields: dict[str, Any] = {
        "num_samples": random.randint(1, 12),
        "isolation": pick(["worker", "worker", "process", "actor"]),
        "failure": failure,
        "stop": stop,
        "search": pick(["random", "random", "tpe"]),
        "max_concurrent_trials": pick([None, None, 1, 2, 5]),
        "checkpoint": {"keep_last": pick([1, 2])},
    }
    if random.random() < 0.3:
        fields["search"], fields["num_samples"] = "grid", 2
        fields["param_space"] = {"x": {"grid_search": [0.1, 0.4, 0.7]}}
    if length > 1 and random.random() < 0.5:
        asha = {"asha": {"max_t": length, "grace_period": 1, "reduction_factor": 2}}
        fields["scheduler"] = pick([asha, asha, *_MOVING])
    if nodes.memory_bytes:
        fields["resources"] = {"cpu": 1, "memory": nodes.memory_bytes}
    return sweeps.make_spec(**fields)


def _draw_ends(random: Random) -> list[dict[str, Any]]:
    """What ends a sweep by itself, at a moment when it may have done everything."""
    seconds = random.choice([5.0, 20.0, 60.0])
    return [
        {"time_budget_s": seconds},
        {"deadline": datetime.fromtimestamp(seconds, UTC)},
        {"budget": {"cpu_hours": seconds / 1800.0}},
        {"plateau": {"window": random.randint(1, 3), "min_improvement": 0.0}},
    ]


def _draw_options(random: Random) -> dict[str, Any]:
    pick = random.choice
    costs = Costs(
        start_worker_s=pick([0.1, 1.0, 3.0]),
        load_s=pick([0.0, 1.0]),
        place_s=pick([0.0, 0.5]),
        message_s=pick([0.0005, 0.05, 0.5]),
        save_s=pick([0.02, 2.0]),
        notice_death_s=pick([0.01, 0.2, 5.0]),
        jitter=pick([0.0, 0.5, 3.0]),
        hiccups=pick([0.0, 0.02, 0.2]),
        hiccup_s=pick([1.0, 10.0]),
    )
    return {
        "step_s": pick([0.01, 0.5, 4.0]),
        "save_every": pick([0, 1, 2]),
        "wait_every": pick([0, 1, 3]),
        "has_snapshots": random.random() < 0.2,
        "costs": costs,
    }


def check(drawn: Drawn, simulated: Simulated) -> None:
    """What must hold at the end, whatever happened."""
    outcome = simulated.outcome
    assert all(trial.state in FINAL for trial in outcome.trials)
    sweeps.check_history(drawn.spec, simulated)
    fired = drawn.faults.fired
    charged = Counter(
        attempt.error.kind
        for trial in outcome.trials
        for attempt in trial.attempts
        if attempt.end == "failed" and attempt.error is not None and not _is_given_up(attempt.error)
    )
    for kinds, causes in CHARGED.items():
        assert sum(charged[kind] for kind in kinds) <= sum(fired[name] for name in causes), (
            f"{dict(charged)} held against trials, of {dict(fired)}"
        )
    assert not drawn.nodes.groups, f"groups are left on the cluster: {list(drawn.nodes.groups)}"
    _check_target(drawn.spec, simulated)
    check_limit(outcome)
    check_times(outcome, simulated.timeline, simulated.journal, simulated.duration_s)


def _is_given_up(error: ErrorInfo) -> bool:
    """Whether a limit of the spec ended it, or no node has the memory that it needs."""
    return error.type == "TrialTimeLimit" or (error.kind == "oom" and error.message != "as asked")


def _check_target(spec: SweepSpec, simulated: Simulated) -> None:
    target = spec.stop.target
    if target is None or simulated.outcome.status in ("target", "cancelled", "failed"):
        return
    best = [trial.score for trial in simulated.outcome.trials if trial.score is not None]
    assert min(best, default=target + 1.0) > target, f"{min(best)} hits the target {target}"
