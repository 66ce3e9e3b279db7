"""Prints the estimate of a sweep as JSON; nothing where there is none.

The controller starts `python -m raysweep.runs.reading.estimate_process STORAGE_PATH SWEEP_ID`, so that
its own loop loses no time.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import orjson

from raysweep.outcome.estimate import Expected
from raysweep.runs.reading.reader import SweepReader


def main() -> int:
    """Print it."""
    with suppress(OSError):
        os.nice(10)
    storage_path, sweep_id = sys.argv[1:]
    status = SweepReader(storage_path, sweep_id, cpu_s=1.0).read()
    if status is not None:
        found = Expected(estimate=status.estimate, slow=status.slow)
        sys.stdout.buffer.write(orjson.dumps(found.model_dump(mode="json")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
