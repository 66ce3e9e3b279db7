"""All places that an outcome names, changed by one function: to store them, and when they are read."""

from __future__ import annotations

from raysweep.outcome.gate import Confirmed, GateOutcome
from raysweep.outcome.standing import Standing
from raysweep.outcome.sweep import SweepOutcome
from raysweep.outcome.train import TrainOutcome
from raysweep.outcome.trial_places import Change, error_with, trial_with

__all__ = [
    "Change",
    "confirmed_with",
    "error_with",
    "gate_with",
    "standing_with",
    "sweep_with",
    "training_with",
    "trial_with",
]


def sweep_with(outcome: SweepOutcome, change: Change) -> SweepOutcome:
    """The outcome with each URI in it changed, but those of its trials: these have their own base."""
    best = outcome.found_best
    return outcome.model_copy(
        update={
            "uri": change(outcome.uri),
            "best": trial_with(best, change) if best is not None else None,
            "error": error_with(outcome.error, change),
            "gate": gate_with(outcome.gate, change) if outcome.gate is not None else None,
        }
    )


def standing_with(standing: Standing, change: Change) -> Standing:
    """The standing of a sweep with each URI in it changed."""
    update: dict[str, object] = {"uri": change(standing.uri), "error": error_with(standing.error, change)}
    for name in ("top", "failures"):
        update[name] = tuple(trial_with(trial, change) for trial in getattr(standing, name))
    for name in ("best", "first_failure"):
        trial = getattr(standing, name)
        update[name] = trial_with(trial, change) if trial is not None else None
    if standing.gate is not None:
        update["gate"] = gate_with(standing.gate, change)
    return standing.model_copy(update=update)


def gate_with(gate: GateOutcome, change: Change) -> GateOutcome:
    """The gate's verdict with each URI in it changed."""
    champion = gate.champion
    return gate.model_copy(
        update={
            "candidates": tuple(confirmed_with(each, change) for each in gate.candidates),
            "champion": confirmed_with(champion, change) if champion is not None else None,
        }
    )


def confirmed_with(confirmed: Confirmed, change: Change) -> Confirmed:
    """The config that a gate has run, with its URI changed."""
    uri = confirmed.checkpoint_uri
    return confirmed if uri is None else confirmed.model_copy(update={"checkpoint_uri": change(uri)})


def training_with(outcome: TrainOutcome, change: Change) -> TrainOutcome:
    """The outcome of a training with each URI in it changed, but that of the sweep it comes from."""
    model, checkpoint = outcome.model_uri, outcome.checkpoint_uri
    return outcome.model_copy(
        update={
            "uri": change(outcome.uri),
            "model_uri": change(model) if model is not None else None,
            "checkpoint_uri": change(checkpoint) if checkpoint is not None else None,
        }
    )
