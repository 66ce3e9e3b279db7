"""Can a worker process of the connected cluster import a trainable?"""

from __future__ import annotations

from typing import Any, Final

import ray

from raysweep.errors import TrainableImportError, one_line

IMPORT_S: Final = 120.0


def find_import_problem(reference: str) -> str | None:
    """Import `module:function` in a worker process, where it would run; what failed, or None."""
    remote: Any = ray.remote(num_cpus=0, max_retries=0)(_import)
    try:
        problem: str | None = ray.get(remote.remote(reference), timeout=IMPORT_S)
    except ray.exceptions.GetTimeoutError:
        return f"{reference!r} was not imported within {IMPORT_S:g} s"
    except ray.exceptions.RayError as error:
        return f"the process that imported {reference!r} died: {one_line(str(error), 300)}"
    return problem


def _import(reference: str) -> str | None:
    from raysweep.spec import load_trainable

    try:
        load_trainable(reference)
    except TrainableImportError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  the user's module may raise anything while it is imported
        return one_line(f"{type(error).__name__}: {error}", 300)
    return None
