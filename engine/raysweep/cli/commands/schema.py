"""`raysweep schema`."""

from __future__ import annotations

import orjson
import typer

from raysweep.cli.exit_codes import DONE
from raysweep.specs import SweepSpec, TrainSpec
from raysweep.specs.document import SpecDocument
from raysweep.specs.pipeline import PipelineSpec


def show_schema(kind: str) -> int:
    """Print the JSON Schema of `sweep`, `train` or `pipeline` specs."""
    kinds: dict[str, type[SpecDocument]] = {"sweep": SweepSpec, "train": TrainSpec, "pipeline": PipelineSpec}
    typer.echo(orjson.dumps(kinds[kind].json_schema(), option=orjson.OPT_INDENT_2).decode())
    return DONE
