"""A trial's session under a fault plan: its reports are places where planned faults happen."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysweep.faultplan.faults import Here

if TYPE_CHECKING:
    from raysweep.faultplan import ActivePlan
    from raysweep.trial.session import Reported, TrialContext, TrialSession


class WatchedSession:
    """A session whose reports reach the places of a plan."""

    def __init__(self, session: TrialSession, plan: ActivePlan) -> None:
        self._session = session
        self._plan = plan
        self._step = session.context.iteration

    @property
    def watched(self) -> TrialSession:
        """The session itself: its reports reach no places."""
        return self._session

    @property
    def context(self) -> TrialContext:
        return self._session.context

    @property
    def should_checkpoint(self) -> bool:
        return self._session.should_checkpoint

    def report(self, metrics: dict[str, Any], checkpoint: Reported, wait: bool) -> None:
        self._step += 1
        context = self._session.context
        here = Here(trial=context.number, step=self._step, attempt=context.attempt)
        self._plan.reach("report", here)
        with self._plan.in_report(here):
            self._session.report(metrics, checkpoint, wait)
        self._plan.reach("reported", here)

    def get_checkpoint(self) -> AbstractContextManager[Path] | None:
        return self._session.get_checkpoint()

    def new_checkpoint(self) -> AbstractContextManager[Path]:
        return self._session.new_checkpoint()

    def count_stray(self) -> None:
        self._session.count_stray()
