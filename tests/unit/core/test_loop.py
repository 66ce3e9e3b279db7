"""The loop that controller, simulator and tests share: what is applied, written and carried out when."""

from __future__ import annotations

import pytest

from raysweep.core import SweepState, decode
from raysweep.core.loop import Loop
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.errors import SpecError
from tests.unit.core.toys import make_spec

STARTED = ev.ControllerStarted(at=1.0, generation=1)
ROOM = ev.CapacityChanged(at=2.0, slots=1)


class Shell:
    """Keeps what happens, in order; answers an ask for configs at once, as the controller does."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.written: list[bytes] = []
        self.loop = Loop(SweepState.create(make_spec(num_samples=1), 7), self._write, self._carry)

    def _write(self, line: bytes) -> None:
        self.written.append(line)
        self.seen.append(type(decode(line)).__name__)

    def _carry(self, command: cmd.Command) -> None:
        self.seen.append(type(command).__name__)
        if isinstance(command, cmd.SuggestConfigs):
            self.loop.emit(ev.ConfigsSuggested(at=1.0, first=0, configs=({"x": 0.5},), is_exhausted=True))


def test_an_event_is_written_before_what_follows_from_it_is_carried_out() -> None:
    shell = Shell()
    shell.loop.begin(STARTED)
    shell.loop.emit(ROOM)
    assert shell.seen == ["SuggestConfigs", "ConfigsSuggested", "CapacityChanged", "OpenSlot"]


def test_what_a_block_gathers_is_applied_at_its_end_in_order() -> None:
    shell = Shell()
    with shell.loop.gathering():
        shell.loop.begin(STARTED)
        shell.loop.emit(ROOM)
        assert shell.loop.is_draining
        assert shell.seen == ["SuggestConfigs"]
    assert shell.seen == ["SuggestConfigs", "ConfigsSuggested", "CapacityChanged", "OpenSlot"]
    assert not shell.loop.is_draining


def test_an_event_that_the_core_cannot_take_is_not_written() -> None:
    """A journal that held it could never be replayed: the sweep is over here, and can be resumed."""
    shell = Shell()
    shell.loop.begin(STARTED)
    before = list(shell.written)
    with pytest.raises(SpecError):
        shell.loop.emit(ev.SpecChanged(at=3.0, spec={"name": "toy"}))
    assert shell.written == before
    shell.loop.emit(ROOM)
    assert shell.written == before, "nothing is applied to a state that may be half changed"


def test_what_cannot_be_written_is_not_carried_out() -> None:
    shell = Shell()
    shell.loop.begin(STARTED)

    def fail(line: bytes) -> None:
        raise OSError("no space")

    carried = list(shell.seen)
    loop = Loop(shell.loop.state, fail, lambda command: carried.append(type(command).__name__))
    with pytest.raises(OSError, match="no space"):
        loop.emit(ROOM)
    assert "OpenSlot" not in carried
    assert loop.is_over
