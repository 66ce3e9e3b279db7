"""The sessions of a gang: rank 0 says when it leaves, the others follow it.

Their reports are only counted, unless metrics are reduced: then they are sent, and the controller makes one
of those of all ranks.
"""

from __future__ import annotations

from typing import Any

from raysweep.messages import Follow, Interrupt, Job, Leaving, Meet, Met, Order, Upcoming
from raysweep.trial.session import Reported
from raysweep.worker.link import Link
from raysweep.worker.session import Session, StoredParts
from raysweep.worker.sweep_info import SweepPlace


def make_session(job: Job, place: SweepPlace, link: Link) -> Session:
    """The session of an attempt."""
    if job.gang is None:
        return Session(job, place, link)
    return FollowerSession(job, place, link) if job.rank else LeaderSession(job, place, link)


class MemberSession(Session):
    """Any rank of a gang."""

    def __init__(self, job: Job, place: SweepPlace, link: Link) -> None:
        super().__init__(job, place, link)
        self._leaves_at: int | None = None
        self._reduced = place.reduced
        self._meeting: Meet | None = None

    def say_port(self, port: int) -> None:
        """This rank can be reached at this port."""
        self._link.send(Met(*self.job.who, port=port, is_each=True))

    def await_addresses(self) -> tuple[str, ...]:
        """The addresses of all ranks, as `host:port`, once all have said their ports.

        Raises:
            TrialStopped: The attempt is to end.
        """
        return self._await_meeting().addresses

    def tell(self, order: Order) -> None:
        """See `Session`."""
        if isinstance(order, Meet):
            with self.ending.changed:
                self._meeting = order
                self.ending.changed.notify_all()
        super().tell(order)

    def _await_meeting(self) -> Meet:
        self.waiting.is_busy = True
        try:
            with self.ending.changed:
                while self._meeting is None and not self.ending.is_asked:
                    self.ending.changed.wait()
        finally:
            self.waiting.is_busy = False
        if self._meeting is None:
            self.ending.raise_stopped()
        return self._meeting


class LeaderSession(MemberSession):
    """Rank 0. Told to end, it ends in the next report that it begins, so that the others can, too."""

    def say_met(self, port: int) -> None:
        """The others can meet it at this port."""
        self._link.send(Met(*self.job.who, port=port))

    def _say_upcoming(self, report: int) -> None:
        if self._reduced is not None:
            self._link.send(Upcoming(*self.job.who, report=report))

    def stop(self, reason: str, wants_checkpoint: bool = False, allows: str = "nothing") -> None:
        """See `Session`."""
        super().stop(reason, wants_checkpoint, allows)
        if not wants_checkpoint:
            self._announce(self._reports)

    def _announce(self, report: int) -> None:
        if self._leaves_at is None:
            self._leaves_at = report
            self._link.send(Leaving(*self.job.who, report=report, reason=self.ending.reason or ""))

    def _leaves_before(self, index: int, has_checkpoint: bool) -> bool:
        if self.ending.wants_checkpoint and has_checkpoint:
            self._announce(index)
        return super()._leaves_before(index, has_checkpoint) and self._is_reached(index)

    def _leaves_after(self, index: int, is_saved: bool) -> bool:
        return super()._leaves_after(index, is_saved) and self._is_reached(index)

    def _is_reached(self, index: int) -> bool:
        return self.ending.is_interrupted or self._leaves_at is None or index >= self._leaves_at


class FollowerSession(MemberSession):
    """Any other rank. Its checkpoints are those of rank 0: they go nowhere.

    Neither do its reports, unless metrics are reduced: then also the one in which it leaves is sent, as
    rank 0 may have made it.
    """

    @property
    def should_checkpoint(self) -> bool:
        """Rank 0 is asked."""
        return False

    def report(self, metrics: dict[str, Any], checkpoint: Reported | StoredParts, wait: bool) -> None:
        """See `raysweep.report`."""
        index = self._reports
        self.ending.raise_if_interrupted()
        if self._reduced is None:
            self._reports = index + 1
        else:
            super().report(self._chosen(metrics), None, False)
        if self._leaves_at is not None and index >= self._leaves_at:
            self.ending.raise_stopped()

    def _chosen(self, metrics: dict[str, Any]) -> dict[str, Any]:
        """Those that are reduced."""
        if not self._reduced:
            return metrics
        return {name: metrics[name] for name in self._reduced if name in metrics}

    def _leaves_before(self, index: int, has_checkpoint: bool) -> bool:
        return False

    def _leaves_after(self, index: int, is_saved: bool) -> bool:
        return False

    def await_meeting(self) -> int:
        """The port at which rank 0 waits.

        Raises:
            TrialStopped: The attempt is to end.
        """
        return self._await_meeting().port

    def tell(self, order: Order) -> None:
        """See `Session`."""
        with self.ending.changed:
            match order:
                case Follow(report=report, reason=reason):
                    self._leaves_at, self.ending.reason = report, reason
                case Interrupt() if self.ending.reason is None:
                    self._leaves_at, self.ending.reason = 0, "interrupt"
            self.ending.changed.notify_all()
        super().tell(order)
