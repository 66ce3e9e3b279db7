"""import: what a fresh process pays for raysweep before it does anything."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from statistics import median

from benchmarks.measure import Contender, Json, Sample, alternate, describe, significant, target

HELP = "import sys; sys.argv = ['raysweep', '--help']; from raysweep.cli import main; main()"
WITHOUT_RAY = "import sys; sys.modules['ray'] = None; "


def run(rounds: int, *, least: int = 7) -> Json:
    """The wall time of fresh processes. At least `least` rounds: they are short."""
    programs = {
        "pass": "pass",
        "import raysweep": WITHOUT_RAY + "import raysweep",
        "import ray.tune": "import ray.tune",
    }
    if importlib.util.find_spec("raysweep.cli") is not None:
        programs["raysweep --help"] = WITHOUT_RAY + HELP
    contenders = [_program(name, code) for name, code in programs.items()]
    for contender in contenders:
        contender.run()  # compiles what is not compiled yet, and warms the disk's cache
    samples = alternate(contenders, max(rounds, least))
    seconds = {name: median(sample.wall_s for sample in taken) for name, taken in samples.items()}
    targets = [target("python -c 'import raysweep', s", seconds["import raysweep"], at_most=0.3)]
    if "raysweep --help" in seconds:
        targets.append(target("raysweep --help, s", seconds["raysweep --help"], at_most=0.5))
    return {
        "what": "wall time of a fresh process that ends at once; raysweep's with ray blocked",
        "contenders": {c.name: describe(c, samples[c.name], "run") for c in contenders},
        "ratios": {
            "raysweep / ray.tune": significant(seconds["import ray.tune"] / seconds["import raysweep"])
        },
        "targets": targets,
    }


def _program(name: str, code: str) -> Contender:
    def run() -> Sample:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
        return Sample(units=1, wall_s=time.perf_counter() - began)

    return Contender(name=name, settings=f"python -c {code!r}", run=run)
