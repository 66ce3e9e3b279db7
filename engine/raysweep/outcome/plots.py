"""`outcome.plot` and `outcome.report()`; what reads the stored sweep lies above, and is found by its name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

from raysweep.errors import RaysweepError
from raysweep.outcome.figure import Figure


class StoredSweep(Protocol):
    """An outcome, as far as it says where its sweep is."""

    @property
    def sweep_id(self) -> str: ...
    @property
    def uri(self) -> str: ...


class Plots:
    """The charts of a sweep, each a `Figure`: it shows in a notebook, and has `.save("x.html" or "x.png")`.

    They are made of what the sweep's storage holds, as its report is.

    Every method raises SpecError where the sweep has nothing to draw there, and StorageError or
    SweepNotFoundError where it cannot be read from here.
    """

    def __init__(self, outcome: StoredSweep) -> None:
        self._outcome = outcome

    def history(self, *, compare: Sequence[StoredSweep | str] = ()) -> Figure:
        """The best so far, by trials and by time.

        Args:
            compare: Other sweeps to draw beside it: outcomes, ids of the same storage path, or URIs.
        """
        return self._make("history", compare)

    def parallel(self) -> Figure:
        """An axis for each parameter and the metric, a line for each trial; drag on an axis to filter."""
        return self._make("parallel")

    def importances(self) -> Figure:
        """How much each parameter matters: PED-ANOVA."""
        return self._make("importances")

    def curves(self) -> Figure:
        """The learning curves, with what was stopped and what failed."""
        return self._make("curves")

    def pareto(self) -> Figure:
        """The Pareto front of a sweep with several metrics."""
        return self._make("pareto")

    def __repr__(self) -> str:
        return f"<plots of {self._outcome.sweep_id}: history, parallel, importances, curves, pareto>"

    def _make(self, name: str, compare: Sequence[StoredSweep | str] = ()) -> Figure:
        figures = import_module("raysweep.pages.figures")
        made: Figure = figures.make_figure(name, _stored(self._outcome), compare=_uris(compare))
        return made


def write_report(
    outcome: StoredSweep,
    path: str | os.PathLike[str] | None,
    compare: Sequence[StoredSweep | str],
) -> Path:
    """As `SweepOutcome.report`."""
    pages = import_module("raysweep.pages")
    written: Path = pages.write_report(_stored(outcome), path, compare=_uris(compare))
    return written


def _stored(outcome: StoredSweep) -> str:
    if not outcome.uri:
        raise RaysweepError(f"the outcome of {outcome.sweep_id!r} does not say where the sweep is stored")
    return outcome.uri


def _uris(sweeps: Sequence[StoredSweep | str]) -> list[str]:
    return [each if isinstance(each, str) else each.uri for each in sweeps]
