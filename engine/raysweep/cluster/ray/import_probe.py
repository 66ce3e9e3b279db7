"""Checks whether a worker process of the connected cluster can import a trainable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import ray

from raysweep.errors import TrainableImportError, one_line

IMPORT_S: Final = 120.0


def find_import_problem(reference: str) -> str | None:
    """Import `module:function` in a worker process, where it would run; what failed, or None."""
    return _find_problem(_import, reference)


def find_group_problem(group: str) -> str | None:
    """Import what connects the workers of a gang, where they would run; what failed, or None."""
    return _find_problem(_import_group, group)


def _find_problem(run: Callable[[str], str | None], name: str) -> str | None:
    remote: Any = ray.remote(num_cpus=0, max_retries=0)(run)
    try:
        problem: str | None = ray.get(remote.remote(name), timeout=IMPORT_S)
    except ray.exceptions.GetTimeoutError:
        return f"{name!r} was not imported within {IMPORT_S:g} s"
    except ray.exceptions.RayError as error:
        return f"the process that imported {name!r} died: {one_line(str(error), 300)}"
    return problem


def _import(reference: str) -> str | None:
    from raysweep.specs import load_trainable

    try:
        load_trainable(reference)
    except TrainableImportError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  the user's module may raise anything while it is imported
        return one_line(f"{type(error).__name__}: {error}", 300)
    return None


def _import_group(group: str) -> str | None:
    from raysweep.worker.gang.surroundings import preload

    try:
        preload(group)
    except Exception as error:  # noqa: BLE001  a package may raise anything while it is imported
        return one_line(str(error), 300)
    return None
