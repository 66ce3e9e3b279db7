"""Finds and removes placement groups that trials created and that outlive their worker.

Ray binds a placement group to the actor that created it *and* to the actor's job: the group holds its
resources until both are gone. A sweep's workers come and go within one job, so the groups of a killed
worker would starve the sweep and stay on the cluster after it. The control store names the creator of each
group.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from raysweep.raycompat.cluster import find_groups_of, remove_group

SETTLED_S: Final = 1.0
"""By then the control store knows all that an actor had asked for when it ended."""
log = logging.getLogger("raysweep")


class Orphans:
    """The actors that have ended, until it was looked for what they left behind."""

    def __init__(self) -> None:
        self._ended: dict[str, float] = {}

    def add(self, actor: str) -> None:
        """This actor, by the hex of its id, has ended or is being killed."""
        self._ended[actor] = time.monotonic()

    def remove_last(self) -> None:
        """As `remove`, of all that have ended, at the sweep's end: raises nothing, that end stands."""
        try:
            self.remove(settled_s=0.0)
        except Exception as error:  # noqa: BLE001  whatever Ray raises while its control store is away
            log.warning("placement groups of trials may be left on the cluster: %s", error)

    def remove(self, settled_s: float = SETTLED_S) -> None:
        """Remove the groups of those that ended at least `settled_s` seconds ago.

        For a thread: the control store may be slow. Whatever it raises, the next call tries again.
        """
        latest = time.monotonic() - settled_s
        actors = {actor for actor, at in list(self._ended.items()) if at <= latest}
        if not actors:
            return
        groups = find_groups_of(actors)
        for group in groups:
            remove_group(group)
        if groups:
            log.info("removed %d placement groups that killed trials had made", len(groups))
        for actor in actors:
            self._ended.pop(actor, None)
