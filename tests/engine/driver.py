"""A process that runs one sweep: `python -m tests.engine.driver OPTIONS`, with options as JSON.

Prints `{"outcome": …}` or `{"error": …, "message": …}`, and exits as the command line would.
"""

from __future__ import annotations

import json
import logging
import sys

import raysweep as rs


def main() -> None:
    options = json.loads(sys.argv[1])
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    try:
        outcome = rs.run_sweep(options.pop("spec"), **options)
    except rs.RaysweepError as error:
        print(json.dumps({"error": type(error).__name__, "message": str(error)}), flush=True)
        sys.exit(error.exit_code)
    print(json.dumps({"outcome": json.loads(outcome.to_json())}), flush=True)


if __name__ == "__main__":
    main()
