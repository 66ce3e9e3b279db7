"""A module that starts a process when it is loaded, as some do to compile or to keep statistics."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

HELPER = subprocess.Popen(["sleep", "600"])


def outlives_its_helper(config: dict[str, Any]) -> dict[str, float]:
    """The fork server hears that the helper has ended while this trial runs."""
    print("before")
    os.kill(HELPER.pid, signal.SIGKILL)
    while Path(f"/proc/{HELPER.pid}").exists():
        time.sleep(0.01)
    print("after")
    return {"loss": 0.0}
