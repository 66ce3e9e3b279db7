"""Patience with errors before they count: those that pass by themselves, and those that look otherwise."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from raysweep.errors import RaysweepError

LOG: Final = logging.getLogger("raysweep.jobs")
UNREACHABLE_S: Final = 300.0
"""The default wait for a server that does not answer."""
REFUSED_S: Final = 60.0
"""The time for which a server that has answered may refuse: an ingress that restarts answers 403 and 404."""


class Patience:
    """Bears errors of one kind of thing for a while: each time from the first one on until it is well again.

    Args:
        limit_s: How long retryable errors are borne.
        refused_s: How long others are; 0: not at all.
    """

    def __init__(self, limit_s: float, refused_s: float = 0.0) -> None:
        self._limit_s = limit_s
        self._refused_s = min(refused_s, limit_s)
        self._failing_since: float | None = None
        self._refused_since: float | None = None

    def renew(self) -> None:
        """It is well."""
        self._failing_since = self._refused_since = None

    def spend(self, error: RaysweepError) -> None:
        """Continue for now; or raise the error, which does not pass or has lasted too long."""
        now = asyncio.get_running_loop().time()
        is_new = self._failing_since is None
        self._failing_since = now if self._failing_since is None else self._failing_since
        limit_s, since = self._limit_s, self._failing_since
        if error.retryable:
            self._refused_since = None
        else:
            self._refused_since = now if self._refused_since is None else self._refused_since
            limit_s, since = self._refused_s, self._refused_since
        if now - since >= limit_s:
            raise error
        if is_new:
            LOG.warning("%s; waiting up to %.0f s for it", error, limit_s)
