"""Readers of a program's metrics, on one base class: each turns what the program writes into records.

A record is the metrics of one report. Readers only look; `raysweep.programs.runner` calls them again and
again while the program runs, and once more with `is_end` after it has ended.

A program that was killed may have written a part of its last line, `loss=1` of `loss=14.9`, and nothing in
the text says so. Hence the remainder of a text counts only where the program ended with exit code 0.
"""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]
STEPS = ("step", "global_step", "iteration", "training_iteration", "epoch")
"""The metrics that say which step a record is of, in the order of preference."""


class Reader:
    """The base of every reader: reads the records of one attempt."""

    def read(self, *, is_end: bool = False, is_whole: bool = True) -> list[Record]:
        """The records that are complete now and were not read before; with `is_end`, all the rest.

        `is_whole`: with `is_end`, whether a last line without its end counts as a line.
        """
        return []

    def missing(self) -> str:
        """The source that never appeared, for the message of a trial without reports; or nothing."""
        return ""

    def close(self) -> None:
        """The attempt has ended."""


def step_of(record: Record) -> float | None:
    """The step of a record, if it names one."""
    for name in STEPS:
        value = record.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None
