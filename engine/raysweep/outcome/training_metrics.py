"""The engine's own metrics in the reports of a training, which is a sweep of one trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

RESERVED: Final = "raysweep/"
"""No metric of a user's training begins with this."""
END: Final = "raysweep/end"
"""In the last report of the trial: the training's metrics, whether it was resumed, which limit ended it, its
error."""
USED: Final = "raysweep/used"
"""In each report: what the workers have used until then."""
WORKERS: Final = "raysweep/workers"
"""In a report of a training whose number of workers may change: how many trained together."""


def own_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics that the workers have reported, out of these of the trial."""
    return {name: value for name, value in metrics.items() if name not in (END, USED, WORKERS)}
