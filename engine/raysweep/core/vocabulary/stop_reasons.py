"""Reasons to end a trial, and what is still taken of it then, as a literal table.

| reason | the trial | its reports count | it may still make |
|---|---|---|---|
| `scheduler` | is not promising | no | nothing |
| `pause` | gives its slot back | no: it makes them again when it is resumed | nothing |
| `resume` | was to be paused, and continues after all | no | nothing |
| `exploit` | continues from another's checkpoint | no | nothing |
| `limit` | has done all that it may | no | nothing |
| `non_finite` | has failed | no | nothing |
| `hung` | is silent | yes: perhaps it was only slow | nothing |
| `damage` | goes back to an older checkpoint | no: it makes them again | nothing |
| `sweep` | ends with the sweep | no | a checkpoint: the sweep may continue some day |
| `interrupt` | continues with the next controller | yes | a checkpoint |
| `preempt` | continues on another node, or when its sweep has a slot again | yes | a checkpoint |
| `ending` | ends in time with the sweep | yes | its last report |

Core and workers go by this table alone: what a worker may still send is in the message that stops it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

StopReason = Literal[
    "scheduler",
    "pause",
    "resume",
    "exploit",
    "limit",
    "sweep",
    "interrupt",
    "non_finite",
    "preempt",
    "hung",
    "damage",
    "ending",
]
Allowed = Literal["nothing", "checkpoint", "report"]


@dataclass(frozen=True, slots=True)
class Stop:
    """`counts`: reports past the request to end count. `allows`: what the trial may still make."""

    counts: bool
    allows: Allowed


STOPS: Final[dict[StopReason, Stop]] = {
    "scheduler": Stop(counts=False, allows="nothing"),
    "pause": Stop(counts=False, allows="nothing"),
    "resume": Stop(counts=False, allows="nothing"),
    "exploit": Stop(counts=False, allows="nothing"),
    "limit": Stop(counts=False, allows="nothing"),
    "non_finite": Stop(counts=False, allows="nothing"),
    "hung": Stop(counts=True, allows="nothing"),
    "damage": Stop(counts=False, allows="nothing"),
    "sweep": Stop(counts=False, allows="checkpoint"),
    "interrupt": Stop(counts=True, allows="checkpoint"),
    "preempt": Stop(counts=True, allows="checkpoint"),
    "ending": Stop(counts=True, allows="report"),
}
