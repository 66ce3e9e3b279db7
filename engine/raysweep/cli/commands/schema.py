"""`raysweep schema`."""

from __future__ import annotations

from raysweep.cli.consoles import print_json
from raysweep.cli.exit_codes import DONE
from raysweep.specs import SweepSpec, TrainSpec


def show_schema(kind: str) -> int:
    """Print the JSON Schema of `sweep` or `train` specs."""
    print_json((SweepSpec if kind == "sweep" else TrainSpec).json_schema())
    return DONE
