"""The environment variables by which a trial's own logging lands in the runs of the sweep's trackers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module

from raysweep.errors import message_of, one_line
from raysweep.messages import Job
from raysweep.worker.sweep_info import SweepPlace


def set_variables(job: Job, place: SweepPlace, note: Callable[[str], None]) -> Mapping[str, str]:
    """Set them in this process before an attempt begins; what cleans up after it puts them back.

    `note` tells of a run that could not be opened: the trial begins without it.
    """
    if not place.variables:
        return {}
    trial = f"{job.trial:05d}"
    found = {name: _filled(value, job) for name, value in place.variables.items()}
    # One process of a gang writes to the run.
    for opener in place.openers if job.rank == 0 else ():
        module, _, name = opener.partition(":")
        try:
            found |= getattr(import_module(module), name)(found, place.sweep_id, place.begun_at, trial)
        except Exception as error:  # noqa: BLE001  a tracker costs no trial its start
            why = one_line(message_of(error), 200)
            note(f"a tracker's run could not be opened before its trial, which logs elsewhere: {why}")
    os.environ.update(found)
    return found


def _filled(value: str, job: Job) -> str:
    return value.replace("{trial}", f"{job.trial:05d}").replace("{number}", f"{job.trial:08d}")
