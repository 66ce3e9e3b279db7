"""A trainable's module that one node can import only once: its disk fills up, say."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import raysweep as rs
from tests.engine.trouble import node_id

_folder = Path(os.environ.get("RAYSWEEP_TEST_LOADS", ""))
if (_folder / "bad").is_file() and node_id() == (_folder / "bad").read_text():
    if (_folder / "loaded").exists():
        (_folder / "refused").touch()
        raise RuntimeError("this node cannot import it any more")
    (_folder / "loaded").touch()


def train(config: dict[str, Any]) -> None:
    """Two reports; elsewhere than on that node not before an import was refused, so that it has its turn."""
    until = time.monotonic() + 200
    while node_id() != (_folder / "bad").read_text() and not (_folder / "refused").exists():
        assert time.monotonic() < until, "that node was asked for nothing more"
        time.sleep(0.05)
    for step in range(1, 3):
        time.sleep(0.2)
        rs.report({"loss": 1.0 / step})
