"""Makes the reader of a source of metrics."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from raysweep.programs.doubts import Doubts
from raysweep.programs.readers.base import Reader


def make_reader(
    kind: str, source: Path | str, restored: Path | None, doubts: Doubts, ranked: Collection[str] = ()
) -> Reader:
    """The reader of a source.

    Args:
        kind: As in `specs.trial.program.MetricsSource`.
        source: The path; of `stdout` the pattern.
        restored: The checkpoint that the attempt begins from.
        doubts: Says what the reader is not sure of.
        ranked: The metrics that rank the trials.
    """
    if kind == "stdout":
        from raysweep.programs.readers.stdout import StdoutReader

        return StdoutReader(str(source))
    if kind == "tensorboard":
        from raysweep.programs.readers.tensorboard import TensorBoardReader

        return TensorBoardReader(Path(source), doubts, ranked)
    if kind == "trainer_state":
        from raysweep.programs.readers.trainer_state import TrainerStateReader

        return TrainerStateReader(Path(source), restored, doubts)
    from raysweep.programs.readers.jsonl import JsonlReader

    return JsonlReader(Path(source), doubts)
