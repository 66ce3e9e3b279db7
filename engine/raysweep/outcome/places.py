"""All places that an outcome names, changed by one function: to store them, and when they are read."""

from __future__ import annotations

from collections.abc import Callable

from raysweep.outcome.gate import Confirmed, GateOutcome
from raysweep.outcome.record import ErrorInfo
from raysweep.outcome.sweep import AttemptOutcome, SweepOutcome, TrialOutcome
from raysweep.outcome.train import TrainOutcome

Change = Callable[[str], str]


def sweep_with(outcome: SweepOutcome, change: Change) -> SweepOutcome:
    """The outcome with each URI in it changed."""
    best = outcome.found_best
    return outcome.model_copy(
        update={
            "uri": change(outcome.uri),
            "best": trial_with(best, change) if best is not None else None,
            "trials": tuple(trial_with(trial, change) for trial in outcome.trials),
            "error": _error_with(outcome.error, change),
            "gate": gate_with(outcome.gate, change) if outcome.gate is not None else None,
        }
    )


def trial_with(trial: TrialOutcome, change: Change) -> TrialOutcome:
    """The trial with each URI in it changed; the same object where it has none."""
    update: dict[str, object] = {}
    if trial.checkpoint_uri is not None:
        update["checkpoint_uri"] = change(trial.checkpoint_uri)
    if any(attempt.error is not None for attempt in trial.attempts):
        update["attempts"] = tuple(_attempt_with(attempt, change) for attempt in trial.attempts)
    if trial.error is not None:
        update["error"] = _error_with(trial.error, change)
    return trial.model_copy(update=update) if update else trial


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


def _attempt_with(attempt: AttemptOutcome, change: Change) -> AttemptOutcome:
    if attempt.error is None:
        return attempt
    return attempt.model_copy(update={"error": _error_with(attempt.error, change)})


def _error_with(error: ErrorInfo | None, change: Change) -> ErrorInfo | None:
    if error is None or error.traceback_uri is None:
        return error
    return error.model_copy(update={"traceback_uri": change(error.traceback_uri)})
