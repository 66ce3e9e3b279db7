"""Results of sweeps with a search and a scheduler of the user."""

from __future__ import annotations

from typing import Any

import raysweep as rs


def shown(outcome: rs.SweepOutcome) -> list[Any]:
    """What must not depend on when a driver died, or on where the sweep ran."""
    return [(trial.config["x"], trial.state, trial.score, trial.metrics["step"]) for trial in outcome.trials]


def curve(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
    """What the trainable `steps` reports."""
    return {"loss": config["x"] / iteration, "step": iteration} if iteration <= 9 else None
