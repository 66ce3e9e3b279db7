"""A server that runs beside the program of a trial: its options."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from raysweep.documents.base import SpecModel
from raysweep.documents.validation import Problem, show
from raysweep.specs.trial.command import Command

_ADDRESS: Final = re.compile(r"(https?://[^/\s]+(/\S*)?|tcp://[^/\s]+:[^/\s:]+)")


def _address(given: str) -> str:
    if _ADDRESS.fullmatch(given) is None:
        fix = "write such as http://localhost:{port}/health, or tcp://localhost:{port}"
        raise Problem(f"{show(given)} is not the address of a service", fix)
    return given


class ServiceSpec(SpecModel):
    """A server that is started for each attempt of a trial, waited for, and ended with it.

    Its command and its variables have the placeholders of the program's; `{port}` is a free port, the same
    for both.
    """

    command: Command
    """The server: `[vllm, serve, my/model, --port, "{port}", --max-num-seqs, "{max_num_seqs}"]`."""
    ready: Annotated[str, AfterValidator(_address)]
    """The ready check: a URL that answers with a status below 400, `http://localhost:{port}/health`.

    Or `tcp://localhost:{port}`, which accepts a connection.
    """
    ready_timeout_s: Annotated[float, Field(gt=0)] = 300.0
    """The longest time until it is ready, in seconds; then the attempt fails."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Variables of the server, beside those that the program has."""
