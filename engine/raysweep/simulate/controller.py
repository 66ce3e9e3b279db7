"""The controller in virtual time: events in, the real `step`, the real journal, commands out."""

from __future__ import annotations

from collections.abc import Callable

from raysweep.cluster.clock import SteadyClock
from raysweep.cluster.suggestions import suggest, tell
from raysweep.core.handlers.sizes import needed_sizes
from raysweep.core.loop import Loop
from raysweep.core.state.invariants import check
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.lifecycle import FINAL
from raysweep.runs.ownership.sweep_claim import Ownership
from raysweep.simulate.clock import Clock
from raysweep.simulate.cluster import SimulatedCluster
from raysweep.simulate.journal import SimulatedWriter
from raysweep.storage.objects.store import Store

# When a slot of another size is asked for, it is looked at whether any node can hold it.
LOOK_S = 2.0


class SimulatedController:
    """Runs one sweep from a claim to its end, or to its death. `is_checked`: assert what must hold."""

    def __init__(
        self, held: Ownership, clock: Clock, writer: SimulatedWriter, store: Store, *, is_checked: bool
    ) -> None:
        self.state = held.state
        self.writer = writer
        self.is_done = False
        self.left: str | None = None
        self._held = held
        self._clock = clock
        self.steady = SteadyClock(held.started.at, clock.wall, lambda: clock.now)
        self._store = store
        self._is_checked = is_checked
        self.events = 0
        self._core = Loop(self.state, writer.write, self._carry_checked)
        self._final = self._finished()
        self._timer = 0
        self._told: tuple[int, int, int, tuple[str, ...]] | None = None

    @property
    def now(self) -> float:
        """The time that its events carry."""
        return self.steady.now()

    def begin(self, cluster: SimulatedCluster) -> None:
        """Take the sweep up on a cluster."""
        self._cluster = cluster
        with self._core.gathering():
            self._core.begin(self._held.started)
            for uri in self._held.discarded:
                self._delete(uri)
            if self._held.changed is not None:
                self._core.emit(self._held.changed)
            self.see_room()

    def see_room(self) -> None:
        """As the cluster's watch does: tell the core of the room, at first and when it is another."""
        nodes, excluded = self._cluster.nodes, self.state.room.excluded
        usable = sum(1 for _ in nodes.usable(excluded))
        slots, memory_bytes = nodes.count_slots(excluded), nodes.largest_memory(excluded)
        beyond = nodes.beyond(needed_sizes(self.state), excluded)
        if (slots, usable, memory_bytes, beyond) != self._told:
            self._told = slots, usable, memory_bytes, beyond
            self.emit(
                ev.CapacityChanged(
                    at=self.steady.now(),
                    slots=slots,
                    nodes=usable,
                    memory_bytes=memory_bytes,
                    beyond=beyond,
                    problem="" if slots else "no usable node",
                )
            )

    def look(self) -> None:
        """Do the checks that a controller and its watch do now and then."""
        if self.steady.has_moved(self.state.clock.ahead_s):
            self.emit(ev.ClockMoved(at=self.steady.now(), ahead_s=self.steady.ahead_s()))
        is_stalled = self.writer.is_stalled
        if is_stalled != self.state.controller.is_stalled:
            self.emit(ev.StorageStalled(at=self.steady.now(), is_over=not is_stalled))
        self._held.folder.check_is_there(self._held.claim.number)
        self.see_draining()
        self.see_room()

    def see_draining(self) -> None:
        """As the cluster's watch does: nodes that are about to go."""
        draining = {node.name: node for node in self._cluster.nodes.all if node.is_draining and node.is_alive}
        gone = {node.name for node in self._cluster.nodes.all if not node.is_alive}
        self._cluster.avoid({*draining, *gone})
        for name, node in draining.items():
            if name not in self.state.room.draining:
                goes_at = node.goes_at
                if goes_at is not None:
                    goes_at += self.steady.now() - self._clock.now
                self.emit(ev.NodeDraining(at=self.steady.now(), node=name, deadline=goes_at))

    def emit(self, event: ev.Event) -> None:
        """Take an event; it is applied at once, or when the one being applied is done."""
        self.events += 1
        self._core.emit(event)
        if self._is_checked and not self._core.is_draining and self.state.phase in ("running", "stopping"):
            check(self.state)
            self._cluster.check(self.state)

    def _carry_checked(self, command: cmd.Command) -> None:
        if isinstance(command, cmd.StartTrial):
            number = command.trial
            # What a person wants more of has ended, and starts again.
            wanted = (
                number in self._held.started.retried or self.state.trials[number].continued.max_t is not None
            )
            assert wanted or number not in self._final, f"trial {number} is finished and started again"
        elif isinstance(command, cmd.TellSearch) and command.end != "paused":
            self._final.add(command.trial)
        self._carry(command)

    def _finished(self) -> set[int]:
        ended = FINAL - {"cancelled"}
        return {number for number, trial in self.state.trials.items() if trial.state in ended}

    def _carry(self, command: cmd.Command) -> None:
        match command:
            case cmd.AnswerReport():
                self.writer.when_durable(lambda: self._cluster.carry(command))
            case cmd.DeleteCheckpoint():
                self.writer.when_sealed(lambda: self._delete(command.uri))
            case cmd.SuggestConfigs():
                self.emit(suggest(self._held.searcher, command, self.steady.now()))
            case cmd.TellSearch() | cmd.TellRung():
                tell(self._held.searcher, command)
            case cmd.SetTimer():
                self._set_timer(command.at)
            case cmd.EndSweep():
                self._cluster.end()
                # In a segment of its own: behind it, what waits to be deleted can go.
                self._clock.after(0.0, lambda: self.writer.when_durable(self._end_sweep))
            case cmd.LeaveSweep():
                self._end(lambda: setattr(self, "left", command.why))
            case cmd.OpenSlot() if command.needs.size:
                self._cluster.carry(command)
                self._clock.after(LOOK_S, lambda: None if self.is_done else self.see_room())
            case _:
                self._cluster.carry(command)

    def _end_sweep(self) -> None:
        self.emit(ev.SweepEnded(at=self.steady.now()))
        self._end(lambda: None)

    def _end(self, then: Callable[[], None]) -> None:
        def end() -> None:
            self.is_done = True
            then()

        # Once everything up to here is stored, with what waited for that.
        self._clock.after(0.0, lambda: self.writer.when_durable(end))

    def _delete(self, uri: str) -> None:
        self._store.delete(f"{uri.removeprefix(f'{self._store.url}/')}.json")

    def _set_timer(self, at: float | None) -> None:
        self._timer += 1
        timer = self._timer
        if at is not None:
            self._clock.after(at - self.steady.now(), lambda: self._fire() if timer == self._timer else None)

    def _fire(self) -> None:
        self.emit(ev.TimerFired(at=self.steady.now()))
