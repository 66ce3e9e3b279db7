"""Actions of the fleet on the cluster and the links. Workers and groups go by numbers of its own."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import JsonValue

from raysweep.messages import ToWorker, Validation
from raysweep.space.amounts import Needs


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateGroup:
    """Ask for a placement group for trials with these needs, not on the `excluded` nodes."""

    group: int
    needs: Needs
    excluded: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveGroup:
    """Give the group's resources back."""

    group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWorker:
    """Start an actor in bundle `rank` of the group.

    A spare takes no resources: it shares those of the one it will replace.
    """

    worker: int
    group: int
    is_spare: bool
    rank: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KillWorker:
    """End the actor now. What it has said already may still arrive until `HangUp`."""

    worker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HangUp:
    """Close the worker's link: nothing that it says counts any more."""

    worker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send these messages to the worker, in one frame."""

    worker: int
    messages: list[ToWorker]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainDelay:
    """Look why this group has no place yet, and say so by `SlotDelayed`."""

    slot: int
    group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartEvaluation:
    """Evaluate a checkpoint, in a slot for evaluations as soon as one is free.

    `tried`: which try this is, from 1; `iteration`: the number of its report, from 1. Answered by one of
    `Evaluations.done` and `Evaluations.failed`.
    """

    evaluation: int
    tried: int
    trial: int
    attempt: int
    iteration: int
    seed: int
    config: dict[str, JsonValue]
    uri: str
    validation: Validation | None = None
    """The evaluation, where the trial's own trainer has given one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelEvaluation:
    """No report waits for this evaluation any more: end it, and say nothing."""

    evaluation: int


Action = (
    CreateGroup
    | RemoveGroup
    | StartWorker
    | KillWorker
    | HangUp
    | Send
    | ExplainDelay
    | StartEvaluation
    | CancelEvaluation
)
