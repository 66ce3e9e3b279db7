"""Replays a golden journal, and describes the commands that the core answers it with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import orjson

from raysweep.core import SweepState, decode, encode, make_outcome, step
from raysweep.core.state.invariants import check
from raysweep.core.views.scores import told
from raysweep.core.vocabulary.commands import Command
from raysweep.core.vocabulary.events import Event
from raysweep.schedulers import load_scheduler
from raysweep.specs import SweepSpec

GOLDEN: Final = Path(__file__).parent
EACH_DIGITS: Final = 4
"""Hex digits for each event in `describe_commands`."""


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """A journal and the result of its replay: `commands[i]` are the core's commands for `events[i]`."""

    events: tuple[Event, ...]
    commands: tuple[tuple[Command, ...], ...]
    state: SweepState
    outcome: dict[str, Any]

    @property
    def all_commands(self) -> list[Command]:
        """The commands of all events, in order."""
        return [command for commands in self.commands for command in commands]


def read_journal(name: str) -> list[Event]:
    """The events of a stored journal."""
    return [decode(line) for line in (GOLDEN / f"{name}.jsonl").read_bytes().splitlines()]


def read_expected(name: str) -> dict[str, Any]:
    """The spec, the seed, the outcome, and digests of the commands and of what the search is told."""
    expected: dict[str, Any] = orjson.loads((GOLDEN / f"{name}.json").read_bytes())
    return expected


def make_state(plain: dict[str, Any], seed: int) -> SweepState:
    """The state before the first event."""
    spec = SweepSpec.model_validate(plain)
    load_scheduler(spec)
    return SweepState.create(spec, seed)


def replay(plain: dict[str, Any], seed: int, events: Sequence[Event]) -> Replayed:
    """Apply the events in order, and check the core's invariants after each one."""
    state = make_state(plain, seed)
    commands = []
    for event in events:
        commands.append(tuple(step(state, event)))
        check(state)
        assert decode(encode(event)) == event
    outcome = make_outcome(state, sweep_id="golden", key="golden", uri="mem://golden", version="0")
    return Replayed(
        events=tuple(events),
        commands=tuple(commands),
        state=state,
        outcome=orjson.loads(outcome.to_json()),
    )


def describe_commands(replayed: Replayed) -> dict[str, Any]:
    """The digest of the sequence of commands, their counts by type, and a short digest for each event.

    Fields that have their default value are left out: a command may get a new field with a default.
    """
    whole, each = blake2b(digest_size=16), ""
    for commands in replayed.commands:
        lines = b"".join(_line_of(command) + b"\n" for command in commands)
        whole.update(lines + b"\n")
        each += blake2b(lines, digest_size=EACH_DIGITS // 2).hexdigest()
    kinds = Counter(type(command).__name__ for command in replayed.all_commands)
    return {"digest": whole.hexdigest(), "kinds": dict(sorted(kinds.items())), "each": each}


def describe_told(replayed: Replayed) -> str:
    """The digest of the results that the search would receive if the sweep were resumed after its end."""
    known = [told(replayed.state, trial) for trial in replayed.state.trials.values()]
    return blake2b(orjson.dumps(known), digest_size=16).hexdigest()


def first_difference(found: dict[str, Any], expected: dict[str, Any]) -> int | None:
    """The index of the first event whose commands differ between two descriptions."""
    pairs = zip(_chunks(found["each"]), _chunks(expected["each"]), strict=False)
    return next((number for number, (one, other) in enumerate(pairs) if one != other), None)


def _chunks(text: str) -> Iterator[str]:
    return (text[start : start + EACH_DIGITS] for start in range(0, len(text), EACH_DIGITS))


def _line_of(command: Command) -> bytes:
    given = {
        field.name: getattr(command, field.name)
        for field in fields(command)
        if field.default is MISSING or getattr(command, field.name) != field.default
    }
    return orjson.dumps({"c": type(command).__name__, **given}, option=orjson.OPT_SORT_KEYS)
