"""Messages between a pool and its starter, in frames as on the link (`worker.wire`)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from raysweep.worker.evaluation import EvaluationJob, EvaluationSetup
from raysweep.worker.setup import WorkerSetup
from raysweep.worker.wire import Decoder

PATH: Final = "RAYSWEEP_STARTER_PYTHONPATH"
"""The PYTHONPATH of workers: the starter's own has all that the sweep's process imports from."""


class Learn(Struct, frozen=True, tag=True):
    """Keep the setup of workers under this key."""

    key: str
    setup: WorkerSetup


class LearnEvaluation(Struct, frozen=True, tag=True):
    """Keep the setup of evaluations."""

    setup: EvaluationSetup


class Start(Struct, frozen=True, tag=True):
    """Fork a worker: `number` names it here, `name` on the link."""

    number: int
    name: str
    node: str
    key: str
    environment: dict[str, str]


class Evaluate(Struct, frozen=True, tag=True):
    """Fork a process for one evaluation."""

    number: int
    job: EvaluationJob
    environment: dict[str, str]


class Kill(Struct, frozen=True, tag=True):
    """Kill this process now, if it lives; `Ended` follows all the same."""

    number: int


class Ended(Struct, frozen=True, tag=True):
    """A process has ended: with this exit code, or below 0 by that signal."""

    number: int
    exit_code: int
    is_kernel_oom: bool = False
    problem: str = ""
    """The exception, in one line."""
    result: bytes = b""
    """Of an evaluation: its `Evaluated`, encoded."""


Order = Learn | LearnEvaluation | Start | Evaluate | Kill
ORDERS: Final[Decoder[list[Order]]] = Decoder(list[Order])
ENDED: Final[Decoder[list[Ended]]] = Decoder(list[Ended])
