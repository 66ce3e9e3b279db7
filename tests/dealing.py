"""Which test runs in which of the processes of `pytest -n 2`, and in which order.

pytest-xdist's own groups (`--dist loadgroup`) have no effect with pytest 9.2, which no longer reads the
attribute by which it marks them: every test was dealt out by itself, and each process started a Ray, an
Airflow and a Prefect of its own.

A file stays in one process, in its order; all files on Airflow's servers are one. Of two processes the first
takes from the front, where what waits for servers is, the second from the back, where what computes is, until
they meet: so that only one has a Ray, or an Airflow, for most of the time, and neither core is idle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

FOLDERS = ("airflow", "users", "engine", "faults", "orchestrators", "jobs", "prefect", "storms", "unit")
"""From the front to the back. A folder that is not named is between."""


def place_of(path: str) -> int:
    """How far from the front the tests of a file are, by its path from the root."""
    folder = path.split("/")[1]
    return FOLDERS.index(folder) if folder in FOLDERS else FOLDERS.index("jobs")


def scope_of(nodeid: str) -> str:
    """What stays in one process."""
    path = nodeid.split("::", 1)[0]
    return "tests/airflow" if path.startswith("tests/airflow/") else path


class TwoEnds(LoadScopeScheduling):
    """Deals out a line of files from both of its ends."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # the line is in order: not the largest files first

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if int(node.gateway.id.removeprefix("gw")) % 2:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
