"""As many threads in numeric libraries as the trial has CPUs, unless the user has said how many.

A library looks at its variable when it is loaded. One that a worker of Ray has loaded before is told. What a
user has set stands: in the environment of the process that runs the sweep, of Ray's node, or of a runtime
environment. `OMP_NUM_THREADS` alone counts for all, as it does for the libraries.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from raysweep.threads import loaded_module

OPENMP: Final = "OMP_NUM_THREADS"
VARIABLES: Final = (
    OPENMP,
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
# Ray gives a job's driver a number of its own, in the variable that users set.
_OF_A_JOB: Final = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_LOADED: Final = ("numpy", "torch")


def said_by_driver() -> dict[str, str]:
    """The variables that the user has set in this process's environment."""
    if _OF_A_JOB in os.environ:
        return {}  # what a job's runtime environment sets, its workers have as well
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}


def use_cpus(cpus: float, said: Mapping[str, str]) -> None:
    """Have this process, and those that it starts, use so many threads; on the thread that runs trials.

    `said`: what the user has set elsewhere.
    """
    own = {**_environment_at_start(), **said}
    common = own.get(OPENMP, str(max(1, int(cpus))))
    os.environ.update({name: own.get(name, common) for name in VARIABLES})
    with suppress(ValueError):  # a list, one number for each level of nesting: for OpenMP alone
        _tell_loaded(int(common))


def _environment_at_start() -> dict[str, str]:
    """The variables that this process was started with: Ray sets `OMP_NUM_THREADS` later, in each worker."""
    try:
        pairs = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    found = (os.fsdecode(pair).partition("=") for pair in pairs)
    return {name: value for name, _, value in found if name in VARIABLES}


def _tell_loaded(count: int) -> None:
    if not any(name in sys.modules for name in _LOADED):
        return
    from threadpoolctl import threadpool_limits

    threadpool_limits(count)
    torch: Any = loaded_module("torch")
    if torch is not None:
        torch.set_num_threads(count)
