"""`prometheus`: a sweep's numbers at Ray's own metrics agent, which Prometheus scrapes on each node.

The controller sets them as it runs, since only a process that is connected to Ray can. It keeps no history:
there is nothing to deliver, and nothing to resume.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from raysweep.hooks.base import CallbackOptions, CallbackSetup


class PrometheusOptions(CallbackOptions):
    """Trials by state, reports and the best value, as metrics of Ray."""

    is_in_controller: ClassVar[bool] = True

    interval_s: Annotated[float, Field(ge=1.0, le=3600.0)] = 5.0
    """The seconds between two updates. Ray passes them on every 10 s."""

    def make(self, setup: CallbackSetup) -> Any:
        """Nothing that is called beside the sweep."""
        return object()
