"""The lease of a sweep or training run: the waiting process renews `lease.json`; the driver watches it.

An orchestrator that is gone for good does not leave a sweep running for ever: once the lease has not been
renewed for its `ttl_s`, the driver leaves the sweep as it is, and the next attach continues with it. Without
`lease_ttl_s` there is no lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from raysweep.errors import SpecError, StorageError
from raysweep.outcome import Lease
from raysweep.runs.ownership.holder import current_holder
from raysweep.storage.objects.store import Store

SHORTEST_S = 5.0
"""A driver takes a lease to be at least this long: storage may be slow."""
POLLS = 4
"""The number of looks of the driver within one lease."""


def renew_lease(store: Store, run_id: str, ttl_s: float, holder: str = "") -> None:
    """Record that `holder` still waits for this sweep (or training run). Raises: StorageError."""
    lease = Lease(at=time.time(), ttl_s=ttl_s, holder=holder)
    store.put(_key(run_id), lease.to_json().encode())


def read_lease(store: Store, run_id: str) -> Lease | None:
    """The lease as last renewed; None for none, or one that cannot be read. Raises: StorageError."""
    data = store.get(_key(run_id))
    if data is None:
        return None
    try:
        return Lease.from_json(data)
    except SpecError:
        return None


class LeaseWatch:
    """Sees when a lease is over.

    Only changes of the lease count, on this process's own clock: the holder's clock may be wrong. The first
    lease runs from here, renewed or not.
    """

    def __init__(
        self, store: Store, run_id: str, ttl_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._run_id = run_id
        self._clock = clock
        self._lease: Lease | None = None
        self._changed_at = self._looked_at = clock()
        self.ttl_s = max(ttl_s, SHORTEST_S)

    @property
    def interval_s(self) -> float:
        """The seconds to wait between two looks."""
        return self.ttl_s / POLLS

    def is_over(self) -> bool:
        """Look at the lease now. While the storage does not answer, the lease does not age."""
        now = self._clock()
        try:
            lease = read_lease(self._store, self._run_id)
        except StorageError:
            self._changed_at += now - self._looked_at
            self._looked_at = now
            return False
        self._looked_at = now
        if lease is not None and lease != self._lease:
            self._lease, self._changed_at = lease, now
            self.ttl_s = max(lease.ttl_s, SHORTEST_S)
        return now - self._changed_at > self.ttl_s


def whoami() -> str:
    """This user and host, as the one that waits or cancels: for people to read."""
    holder = current_holder()
    return f"{holder.user} on {holder.host}"


def _key(run_id: str) -> str:
    return f"{run_id}/lease.json"
