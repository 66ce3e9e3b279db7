"""How checkpoints are named: by a URI for people, by a reference in the sweep's own documents."""

from __future__ import annotations

import math
import secrets

from raysweep.errors import SpecError


def reference_of(trial_id: str, number: int) -> str:
    """How a sweep's own documents name one of its checkpoints."""
    return f"checkpoints/{trial_id}/{number}"


def parse_reference(text: str) -> tuple[str, int] | None:
    """(trial_id, number) of a reference; None for anything else."""
    parts = text.split("/")
    if len(parts) != 3 or parts[0] != "checkpoints" or not parts[2].isdecimal():
        return None
    return parts[1], int(parts[2])


def parse_uri(uri: str) -> tuple[str, str, str, int]:
    """(storage_path, sweep_id, trial_id, number)."""
    parts = uri.rstrip("/").rsplit("/", 4)
    if len(parts) != 5 or parts[2] != "checkpoints" or not parts[4].isdecimal():
        raise SpecError(
            "checkpoint",
            f"{uri!r} is no checkpoint URI",
            "use <storage_path>/<sweep_id>/checkpoints/<trial>/<n>",
        )
    return parts[0], parts[1], parts[3], int(parts[4])


def new_folder(number: int) -> str:
    """The folder of a new checkpoint's own objects: no other save has the same."""
    return f"{number}-{secrets.token_hex(4)}"


def number_of(name: str) -> float:
    """Which checkpoint stored the object of this name first; infinite for manifests and strangers."""
    number, dash, _ = name.partition("/")[0].partition("-")
    return int(number) if dash and number.isdecimal() else math.inf
