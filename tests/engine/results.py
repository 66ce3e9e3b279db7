"""Results of sweeps that must not depend on when a driver died."""

from __future__ import annotations

from typing import Any

import raysweep as rs


def shown(outcome: rs.SweepOutcome) -> dict[str, Any]:
    """What must not depend on when a driver died."""
    assert outcome.best is not None
    return {
        "status": outcome.status,
        "best": outcome.best.trial_id,
        "counts": outcome.counts,
        "trials": [
            {
                "config": {k: v for k, v in trial.config.items() if k != "log"},
                "state": trial.state,
                "metrics": trial.metrics,
                "best_metrics": trial.best_metrics,
                "score": trial.score,
            }
            for trial in outcome.trials
        ],
    }
