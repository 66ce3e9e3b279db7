"""Calls of Ray in a trial of a sweep that runs without it: refused at the first one, with the fix."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NoReturn

from raysweep.errors import RaysweepError
from raysweep.worker.process.import_hooks import after_import


class RayRefusedError(RaysweepError, NotImplementedError):
    """The trial calls Ray, and the sweep runs without."""


def refuse_ray() -> None:
    """From now on, `ray.init`, and with it the first call that needs Ray, raises in this process."""
    after_import("ray", _refuse, key="here")


def _refuse(ray: ModuleType) -> None:
    def init(*args: Any, **options: Any) -> NoReturn:
        raise RayRefusedError(
            "the trial calls Ray, and this sweep runs on this machine without Ray",
            'run the sweep with address="local" (an embedded Ray), or on a cluster',
        )

    ray.init = init  # type: ignore[attr-defined]
