"""A whole sweep in virtual time: the real core, takeover and journal on a model of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Any, Final

from raysweep.core import SweepState, decode, make_outcome
from raysweep.core.seeds import derive_seed
from raysweep.core.state.frozen import freeze
from raysweep.core.views.result import best_shown
from raysweep.core.vocabulary.events import Event
from raysweep.errors import RaysweepError
from raysweep.outcome import Holder, SweepOutcome
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.sweep_claim import SweepRequest, find_outcome, hold
from raysweep.runs.policies import load_policies
from raysweep.simulate.clock import Clock
from raysweep.simulate.cluster import SimulatedCluster
from raysweep.simulate.controller import SimulatedController
from raysweep.simulate.delays import Costs, Delays
from raysweep.simulate.deletions import check_end, delete
from raysweep.simulate.journal import SimulatedWriter
from raysweep.simulate.kills import ControllerKilled, Kill, WatchedStore, appended
from raysweep.simulate.nodes import Node, Nodes
from raysweep.simulate.oracles import check_stored
from raysweep.simulate.trials import Curve, Moment, Pace, Work
from raysweep.specs import RunId, SweepSpec
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from raysweep.storage.objects.wrapped import WrappedStore
from raysweep.version import __version__

HOLDER: Final = Holder(host="simulated", pid=0, process_started_at=None, boot_id="", user="")
_numbers = count()


# Longer than anything that a sweep waits for by itself in the simulations that are checked.
MAX_IDLE_S: Final = 600.0
MAX_IDLE_EVENTS: Final = 400
MAX_GENERATIONS: Final = 200


class SimulationStuckError(RaysweepError):
    """Work is there, and nothing that happens brings it on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A controller at work, for who disturbs it. Whatever it does, it asks `clock` for a time to do it."""

    clock: Clock
    cluster: SimulatedCluster
    controller: SimulatedController
    delete: Callable[..., list[str]]
    """`delete(kind, random, all_of_it=False)`: deletes stored objects (`raysweep.simulate.deletions`)."""


Disturb = Callable[[Running], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """The course of a simulated sweep.

    `timeline` is what happened on the cluster, `journal` what was stored of it, `writes` every write of the
    controllers to their store in order, `fired` the kills that happened. `duration_s` is in virtual seconds.
    """

    outcome: SweepOutcome
    timeline: tuple[Moment, ...]
    journal: tuple[Event, ...]
    writes: tuple[str, ...]
    fired: tuple[Kill, ...]
    duration_s: float

    @property
    def appends(self) -> int:
        """The number of the journal's segments, claims included."""
        return max(filter(None, map(appended, self.writes)), default=0)


def simulate(
    spec: SweepSpec | Mapping[str, Any],
    curve: Curve,
    *,
    step_s: float | Pace = 1.0,
    slots: int = 2,
    save_every: int = 0,
    wait_every: int = 0,
    evaluation: Curve | None = None,
    evaluate_s: float = 1.0,
    seed: int = 0,
    costs: Costs | None = None,
    kills: Sequence[Kill] = (),
    reopened: Sequence[SweepSpec | Mapping[str, Any]] = (),
    has_snapshots: bool = False,
    is_checked: bool = False,
    nodes: Nodes | None = None,
    disturb: Disturb | None = None,
    earlier: Sequence[SweepOutcome] = (),
    keep_at: str | None = None,
) -> Simulated:
    """Run a sweep to its end in virtual time: seconds of computing for days of cluster.

    Scheduler, searcher, failure policy, journal and resuming are the real ones; the cluster is a model, and
    `curve` stands for the trainable, which is neither imported nor run. The same arguments give the same
    result.

    Args:
        spec: The sweep; its trainable and storage path are not used.
        curve: (config, iteration) -> metrics of that report, or None once the trial has returned. What it
            raises, the trial raises; `WorkerDied` kills the worker.
        step_s: Virtual seconds from one report to the next, or a function of (config, iteration).
        slots: How many trials the cluster can run at once.
        save_every: A checkpoint comes with every so-manyth report; 0: none.
        wait_every: The trial waits for the answer to every so-manyth report; 0: it never waits.
        evaluation: With `evaluate` in the spec: (config, iteration) -> the metrics of that checkpoint. A try
            fails with what it raises.
        evaluate_s: Virtual seconds that an evaluation takes.
        seed: For the jitter of `costs`.
        costs: How long everything else takes; default `Costs()`.
        kills: Where the controller is killed; the next one starts `costs.restart_s` later.
        reopened: Under these specs it is asked for again, one after the other, each time that it has ended:
            with more of what ended it, it continues.
        has_snapshots: Each controller stores a snapshot when it begins, for the next to start from.
        is_checked: Assert the invariants of core and fleet after every event, and that something always
        moves. nodes: The machines; default: `slots` of them with one CPU each. disturb: Called with each
        controller and its cluster as they begin, to make trouble for them. A
            controller that leaves is followed by another then, as an orchestrator would see to it.
        earlier: Sweeps that have ended at the same storage path before, the oldest first: for `warm_start`.
        keep_at: A storage path where what the sweep stored stays, also if it cannot continue; None: it goes.

    Raises:
        SpecError: The spec is wrong.
        RaysweepError: The sweep left without an end (no worker could be started), or cannot continue.
    """
    made = SweepSpec.from_any(spec)
    load_policies(made)
    # Under one name, so that nothing in the result tells one run from another.
    memory = f"memory://simulated/{next(_numbers)}"
    store = open_store(keep_at) if keep_at else WrappedStore(open_store(memory), url="memory://simulated")
    simulation = _Simulation(
        spec=made.replace(storage_path=store.url),
        work=Work(
            curve=curve,
            pace=step_s if callable(step_s) else _steady(step_s),
            save_every=save_every,
            wait_every=wait_every,
            evaluation=evaluation,
            evaluate_s=evaluate_s,
        ),
        random=Random(seed),
        costs=costs or Costs(),
        store=store,
        watched=WatchedStore(store, tuple(kills)),
        reopened=tuple(SweepSpec.from_any(spec).replace(storage_path=store.url) for spec in reopened),
        has_snapshots=has_snapshots,
        is_checked=is_checked,
        nodes=nodes or Nodes(all=[Node(name=f"node{number}") for number in range(slots)]),
        disturb=disturb,
    )
    try:
        for outcome in earlier:
            SweepFolder(store, outcome.sweep_id).write_outcome_if_absent(outcome)
        return simulation.run()
    finally:
        if keep_at is None:
            store.delete(*[info.key for info in store.list()])


def _steady(step_s: float) -> Pace:
    return lambda config, iteration: step_s


@dataclass(kw_only=True)
class _Simulation:
    spec: SweepSpec
    work: Work
    random: Random
    costs: Costs
    store: Store
    watched: WatchedStore
    reopened: tuple[SweepSpec, ...]
    has_snapshots: bool
    is_checked: bool
    nodes: Nodes
    disturb: Disturb | None

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.timeline: list[Moment] = []
        self.clusters: list[SimulatedCluster] = []
        self.generation = 0
        self.moved_at = 0.0
        self.deleted: list[str] = []
        self.moved_events = 0
        self.folder = SweepFolder(self.watched, RunId.of(self.spec, "simulated").id)
        seed = self.spec.seed if self.spec.seed is not None else derive_seed(0, self.folder.sweep_id)
        self.asked = SweepRequest(spec=self.spec, key="simulated", seed=seed)

    def run(self) -> Simulated:
        outcome = self._run_controllers()
        for spec in self.reopened:
            self.asked = replace(self.asked, spec=spec)
            outcome = self._run_controllers()
        plain = SweepFolder(self.store, self.folder.sweep_id)
        if self.is_checked:
            check_stored(outcome, plain, is_thorough=bool(self.deleted))
        return Simulated(
            outcome=outcome,
            timeline=tuple(self.timeline),
            journal=tuple(map(decode, plain.journal().contents().records)),
            writes=tuple(self.watched.writes),
            fired=tuple(self.watched.fired),
            duration_s=self.clock.now,
        )

    def _run_controllers(self) -> SweepOutcome:
        outcome = None
        while outcome is None:
            try:
                outcome = self._run_controller()
            except ControllerKilled:
                self._note("killed")
                self._lose_controller()
        return outcome

    def _lose_controller(self) -> None:
        self.clock.forget_all()
        while self.clusters:
            self.clusters.pop().lose_controller()
        self.clock.now += self.costs.restart_s

    def _run_controller(self) -> SweepOutcome | None:
        outcome = find_outcome(self.folder, self.asked)
        if outcome is not None:
            return outcome
        held = hold(self.folder, self.asked, at=self.clock.wall(), holder=HOLDER)
        if held is None:
            raise RaysweepError("no other process claims a simulated sweep")
        self.generation = held.claim.generation
        if self.generation > MAX_GENERATIONS:
            raise SimulationStuckError(f"{self.generation} controllers have not ended the sweep")
        self._note("claimed")
        if self.has_snapshots:
            self.folder.snapshots.write(held.claim.number - 1, freeze(held.state).parts())
        writer = SimulatedWriter(
            self.clock,
            held.journal.backend,
            held.claim,
            put_s=self.costs.put_s,
            interval_s=self.costs.commit_interval_s,
        )
        controller = SimulatedController(held, self.clock, writer, self.watched, is_checked=self.is_checked)
        # As the real one: an ended sweep is here only for its outcome, before which its controller died.
        if held.state.phase != "ended" or held.started.is_reopening:
            cluster = self._make_cluster(held.state, controller)
            self.clusters.append(cluster)
            controller.begin(cluster)
            if self.disturb is not None:
                running = Running(
                    clock=self.clock, cluster=cluster, controller=controller, delete=self._delete
                )
                self.disturb(running)
            self._run_to_end(controller)
            if controller.left is not None:
                if self.disturb is None:
                    raise RaysweepError(f"the simulated sweep was left: {controller.left}")
                self._note("left")
                self._lose_controller()
                return None
        self.clock.forget_all()
        best = best_shown(held.state)
        check_end(
            self.folder,
            claim=held.claim.number,
            last=writer.last_segment,
            best=best.checkpoint.uri if best is not None and best.checkpoint is not None else "",
        )
        ended = make_outcome(
            held.state,
            sweep_id=self.folder.sweep_id,
            key=self.asked.key,
            uri=self.folder.uri,
            version=__version__,
        )
        self.folder.write_outcome_if_absent(ended)
        return ended

    def _run_to_end(self, controller: SimulatedController) -> None:
        self.moved_at, self.moved_events = self.clock.now, controller.events
        while not controller.is_done:
            if not self.clock.run_next():
                raise RaysweepError(f"the simulated sweep is stuck in phase {controller.state.phase}")
            if self.is_checked:
                self._check_that_it_moves(controller)

    def _check_that_it_moves(self, controller: SimulatedController) -> None:
        """Neither does nothing happen for long, nor very much that leads nowhere."""
        if self.moved_at < 0.0:
            self.moved_at, self.moved_events = self.clock.now, controller.events
        idle_s, events = self.clock.now - self.moved_at, controller.events - self.moved_events
        if idle_s > MAX_IDLE_S or events > MAX_IDLE_EVENTS:
            raise SimulationStuckError(f"{events} events in {idle_s:g} s moved no trial")

    def _make_cluster(self, state: SweepState, controller: SimulatedController) -> SimulatedCluster:
        return SimulatedCluster(
            spec=state.spec,
            nodes=self.nodes,
            delays=Delays(self.costs, self.clock, self.random),
            work=self.work,
            store=self.store,
            sweep_id=self.folder.sweep_id,
            emit=controller.emit,
            note=self._note,
            now=controller.steady.now,
        )

    def _delete(self, kind: str, random: Random, *, all_of_it: bool = False) -> list[str]:
        gone = delete(self.store, self.folder.sweep_id, kind, random, all_of_it=all_of_it)
        self.deleted += gone
        return gone

    def _note(self, what: str, **fields: Any) -> None:
        self.moved_at = -1.0
        self.timeline.append(Moment(at=self.clock.now, what=what, generation=self.generation, **fields))
