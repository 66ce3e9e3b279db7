"""Makes the reader of a source of metrics."""

from __future__ import annotations

from pathlib import Path

from raysweep.programs.readers.base import Reader


def make_reader(kind: str, source: Path | str, restored: Path | None) -> Reader:
    """The reader of a source.

    Args:
        kind: As in `specs.trial.program.MetricsSource`.
        source: The path; of `stdout` the pattern.
        restored: The checkpoint that the attempt begins from.
    """
    if kind == "stdout":
        from raysweep.programs.readers.stdout import StdoutReader

        return StdoutReader(str(source))
    if kind == "tensorboard":
        from raysweep.programs.readers.tensorboard import TensorBoardReader

        return TensorBoardReader(Path(source))
    if kind == "trainer_state":
        from raysweep.programs.readers.trainer_state import TrainerStateReader

        return TrainerStateReader(Path(source), restored)
    from raysweep.programs.readers.jsonl import JsonlReader

    return JsonlReader(Path(source))
