"""Runs one benchmark in a process of its own, on one embedded Ray of 2 CPUs that all its contenders share.

`python -m benchmarks.child NAME ROUNDS FILE [tiny]` writes the result to FILE.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path

from benchmarks.contenders import SLOTS
from benchmarks.measure import Json
from benchmarks.places import s3_server
from benchmarks.registry import BENCHMARKS


def main() -> None:
    """Run it and write what came out."""
    name, rounds, file, *size = sys.argv[1:]
    Path(file).write_text(json.dumps(run(name, int(rounds), is_tiny=size == ["tiny"])))


def run(name: str, rounds: int, *, is_tiny: bool = False) -> Json:
    """The result of one benchmark; `is_tiny`: at a size that measures nothing, to see that it runs."""
    benchmark = BENCHMARKS[name]
    sizes = benchmark.tiny if is_tiny else {}
    # Ray Tune's progress tables: the one setting of it that is not the default, and it costs it nothing.
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    if not benchmark.needs_ray:
        with s3_server() if benchmark.needs_s3 else nullcontext():
            return benchmark.run(rounds, **sizes)
    # raysweep has its worker imported ahead where it starts Ray itself; here that would slow its peers.
    os.environ["RAY_preload_python_modules"] = ""  # noqa: SIM112  as Ray spells it
    from raysweep.cluster.ray.connection import connect

    with s3_server() if benchmark.needs_s3 else nullcontext(), connect(num_cpus=SLOTS):
        shown = benchmark.run(rounds, **sizes)
    setting = (
        f"one embedded Ray of {SLOTS} CPUs, without dashboard, shared by all contenders;"
        " none finds a warm worker process of Ray at its start"
    )
    return {**shown, "ray": setting}


if __name__ == "__main__":
    main()
