"""One loop for all that run the core: the controller, the simulator, and the tests' worlds.

An event is encoded, applied, written, and only then carried out. One that `step` cannot take is never
written: the journal holds nothing that a later replay could stumble over, and the sweep can be resumed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from raysweep.core.machine import step
from raysweep.core.state.sweep import SweepState
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.codec import encode
from raysweep.core.vocabulary.commands import Command


class Loop:
    """Applies events in the order in which they come; those that commands cause come after the present one.

    `write` takes the event's line, `carry` one command at a time. What either raises, and what `step` raises,
    ends the loop: events that wait are dropped, later ones are ignored.
    """

    def __init__(
        self, state: SweepState, write: Callable[[bytes], None], carry: Callable[[Command], None]
    ) -> None:
        self.state = state
        self.is_over = False
        self._write = write
        self._carry = carry
        self._events: deque[ev.Event] = deque()
        self._is_draining = False

    @property
    def is_draining(self) -> bool:
        """True if an event that is emitted now waits for others."""
        return self._is_draining

    def begin(self, claimed: ev.Event) -> None:
        """Apply the event that the claim's own segment holds already: it is not written again."""
        for command in step(self.state, claimed):
            self._carry(command)

    def emit(self, event: ev.Event) -> None:
        """Take an event; it is applied at once, or when the one being applied is done."""
        if not self.is_over:
            self._events.append(event)
            self._drain()

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Apply the events of this block at its end: one pass over a whole frame before anything goes out."""
        was_draining, self._is_draining = self._is_draining, True
        try:
            yield
        finally:
            self._is_draining = was_draining
        self._drain()

    def end(self) -> None:
        """Apply nothing more."""
        self.is_over = True
        self._events.clear()

    def _drain(self) -> None:
        if self._is_draining:
            return
        self._is_draining = True
        events, state, write, carry = self._events, self.state, self._write, self._carry
        try:
            while events:
                event = events.popleft()
                line = encode(event)
                commands = step(state, event)
                write(line)
                for command in commands:
                    carry(command)
        except BaseException:
            self.end()
            raise
        finally:
            self._is_draining = False
