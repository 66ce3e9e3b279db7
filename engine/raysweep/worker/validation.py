"""The call by which a trial's trainer of Ray Train has a checkpoint validated, on its way to an evaluation.

A trial packs what its trainer's ValidationConfig and `ray.train.report(…, validation=…)` say; the process
that evaluates makes the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from raysweep.errors import RaysweepError, SpecError, one_line

MAX_BYTES: Final = 1_000_000
"""It travels with each report that asks for a validation."""
_FIELD: Final = "validation_config.fn"


def pack(function: Callable[..., Any], options: Mapping[str, Any]) -> bytes:
    """The call as bytes.

    Raises:
        SpecError: It cannot be pickled, or is larger than `MAX_BYTES`.
    """
    import cloudpickle

    try:
        packed: bytes = cloudpickle.dumps((function, dict(options)))
    except Exception as error:  # whatever the objects that it refers to raise when they are pickled
        why = one_line(f"{type(error).__name__}: {error}", 200)
        fix = "create inside it what it refers to"
        raise SpecError(_FIELD, f"it cannot be sent to an evaluation: {why}", fix) from error
    if len(packed) > MAX_BYTES:
        size = f"{len(packed):,} bytes with what it refers to, and {MAX_BYTES:,} are allowed"
        raise SpecError(_FIELD, f"it has {size}", "load inside it what is large, such as a data set")
    return packed


def validate(folder: Path, packed: bytes) -> dict[str, Any]:
    """Validate the checkpoint in this folder.

    Returns: The metrics, those in others named `outer/inner`.
    Raises:
        RaysweepError: The function returned no dict.
    """
    import cloudpickle
    from ray.train import Checkpoint

    from raysweep.worker.ray_calls.tune_calls import flatten

    function, options = cloudpickle.loads(packed)
    found = function(Checkpoint.from_directory(str(folder)), **options)
    if not isinstance(found, dict):
        raise RaysweepError(f"the validation returned a {type(found).__name__}: return a dict of metrics")
    return flatten(found)
