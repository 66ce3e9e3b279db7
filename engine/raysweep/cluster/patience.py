"""Time for a node of Ray to come up.

Ray 2.60 gives its own new raylet 30 s, asks for it without a pause meanwhile, and has no setting for either.
On a busy machine it takes longer, and the asking is a part of why.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

START_S: Final = 120.0
_PAUSE_S: Final = 0.1


@contextmanager
def patient_start(timeout_s: float = START_S) -> Iterator[None]:
    """Nodes that are started in here, in this process, have so many seconds to join their cluster."""
    from ray._private import services

    get_node = services.get_node

    def wait_for_node(gcs_address: str, node_id: str) -> Any:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return get_node(gcs_address, node_id)  # type: ignore[no-untyped-call]
            except RuntimeError:  # it has not joined yet
                if time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_S)

    services.get_node = wait_for_node
    try:
        yield
    finally:
        services.get_node = get_node
