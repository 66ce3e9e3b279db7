"""`python -m raysweep.runs.reading.print_estimate STORAGE_PATH SWEEP_ID`: prints an estimate as JSON.

The controller has a process of its own make it, so that its loop loses no time.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import orjson

from raysweep.outcome.estimate import Expected
from raysweep.runs.reading.reader import SweepReader

CPU_S = 1.0


def main() -> int:
    """Print the estimate of a sweep; nothing where there is none."""
    with suppress(OSError):
        os.nice(10)
    storage_path, sweep_id = sys.argv[1:]
    status = SweepReader(storage_path, sweep_id, cpu_s=CPU_S).read()
    if status is not None:
        found = Expected(estimate=status.estimate, slow=status.slow)
        sys.stdout.buffer.write(orjson.dumps(found.model_dump(mode="json")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
