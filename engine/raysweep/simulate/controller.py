"""The controller in virtual time: events in, the real `step`, the real journal, commands out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from raysweep.cluster.takeover import Held
from raysweep.core import commands as cmd
from raysweep.core import encode, step
from raysweep.core import events as ev
from raysweep.core.invariants import check
from raysweep.core.lifecycle import FINAL
from raysweep.simulate.clock import Clock
from raysweep.simulate.cluster import SimulatedCluster
from raysweep.simulate.journal import SimulatedWriter
from raysweep.storage.store import Store


class SimulatedController:
    """Runs one sweep from a claim to its end, or to its death. `is_checked`: assert what must hold."""

    def __init__(
        self, held: Held, clock: Clock, writer: SimulatedWriter, store: Store, *, is_checked: bool
    ) -> None:
        self.state = held.state
        self.writer = writer
        self.is_done = False
        self.left: str | None = None
        self._held = held
        self._clock = clock
        self._store = store
        self._is_checked = is_checked
        self._events: deque[ev.Event] = deque()
        self._is_draining = False
        self._timer = 0

    def begin(self, cluster: SimulatedCluster, slots: int) -> None:
        """Take the sweep up, on a cluster with room for so many trials."""
        self._cluster = cluster
        # The claim's own segment holds this event already: it is applied, not written.
        self._apply(self._held.started)
        for uri in self._held.discarded:
            self._delete(uri)
        if self._held.changed is not None:
            self._events.append(self._held.changed)
        self.emit(ev.CapacityChanged(at=self._clock.now, slots=slots))

    def emit(self, event: ev.Event) -> None:
        """Take an event; it is applied at once, or when the one being applied is done."""
        self._events.append(event)
        if self._is_draining:
            return
        self._is_draining = True
        try:
            while self._events:
                event = self._events.popleft()
                self.writer.write(encode(event))
                self._apply(event)
        finally:
            self._is_draining = False

    def _apply(self, event: ev.Event) -> None:
        finished = self._finished() if self._is_checked else frozenset()
        commands = step(self.state, event)
        if self._is_checked:
            check(self.state)
        for command in commands:
            if isinstance(command, cmd.StartTrial):
                assert command.trial not in finished, f"trial {command.trial} is finished and started again"
            self._carry(command)

    def _finished(self) -> frozenset[int]:
        return frozenset(number for number, trial in self.state.trials.items() if trial.state in FINAL)

    def _carry(self, command: cmd.Command) -> None:
        match command:
            case cmd.OpenSlot():
                self._cluster.open(command.slot)
            case cmd.CloseSlot():
                self._cluster.close(command.slot)
            case cmd.StartTrial() | cmd.StopTrial() | cmd.RecallTrials():
                self._cluster.send(command)
            case cmd.AnswerReport():
                self.writer.when_durable(lambda: self._cluster.send(command))
            case cmd.DeleteCheckpoint():
                self.writer.when_sealed(lambda: self._delete(command.uri))
            case cmd.SuggestConfigs():
                self._suggest(command)
            case cmd.TellSearch():
                self._held.searcher.tell(command.trial, command.value, command.end)
            case cmd.SetTimer():
                self._set_timer(command.at)
            case cmd.EndSweep():
                self._cluster.end()
                # In a segment of its own: behind it, what waits to be deleted can go.
                self._clock.after(0.0, lambda: self.writer.when_durable(self._end_sweep))
            case cmd.LeaveSweep():
                self._end(lambda: setattr(self, "left", command.why))

    def _end_sweep(self) -> None:
        self.emit(ev.SweepEnded(at=self._clock.now))
        self._end(lambda: None)

    def _end(self, then: Callable[[], None]) -> None:
        def end() -> None:
            self.is_done = True
            then()

        # Once everything up to here is stored, with what waited for that.
        self._clock.after(0.0, lambda: self.writer.when_durable(end))

    def _delete(self, uri: str) -> None:
        self._store.delete(f"{uri.removeprefix(f'{self._store.url}/')}.json")

    def _suggest(self, command: cmd.SuggestConfigs) -> None:
        searcher = self._held.searcher
        asked = [searcher.ask(number) for number in range(command.first, command.first + command.count)]
        configs = tuple(config for config in asked if config is not None)
        end = command.first + len(configs)
        is_exhausted = len(configs) < command.count or (searcher.total is not None and end >= searcher.total)
        self.emit(
            ev.ConfigsSuggested(
                at=self._clock.now,
                first=command.first,
                configs=configs,
                is_exhausted=is_exhausted,
                note=(searcher.note or "") if is_exhausted else "",
            )
        )

    def _set_timer(self, at: float | None) -> None:
        self._timer += 1
        timer = self._timer
        if at is not None:
            self._clock.at(at, lambda: self._fire() if timer == self._timer else None)

    def _fire(self) -> None:
        self.emit(ev.TimerFired(at=self._clock.now))
