"""A sweep with what its storage holds: `rs.load`, and what `rs.run_sweep` returns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysweep.errors import RaysweepError
from raysweep.outcome import SweepOutcome
from raysweep.outcome.figure import Figure
from raysweep.outcome.frames import make_frame
from raysweep.runs.reading import history
from raysweep.runs.reading.view import Outcome

if TYPE_CHECKING:
    import pandas


class StoredSweep(SweepOutcome):
    """The outcome of a sweep, and from its storage its reports, its charts and its report.

    The storage is read by these methods alone: each raises RaysweepError where the outcome does not say where
    it is, StorageError or SweepNotFoundError where it cannot be read from here.
    """

    @classmethod
    def of(cls, outcome: SweepOutcome) -> StoredSweep:
        """The same outcome, as a stored sweep."""
        return outcome if isinstance(outcome, cls) else cls.model_construct(**outcome.__dict__)

    def __eq__(self, other: object) -> bool:
        """True if it is the same outcome, also of one that was read alone."""
        if not isinstance(other, SweepOutcome):
            return NotImplemented
        plain = SweepOutcome.model_construct(**self.__dict__)
        return plain == SweepOutcome.model_construct(**other.__dict__)

    def reports(self) -> Iterator[dict[str, Any]]:
        """Every report of every trial, oldest first, streamed from the journal.

        Each has `trial_id`, `number`, `attempt`, `iteration` (its place in the trial, from 1), `at` (UTC
        seconds), `overrun` (it came after the trial was told to stop, and ranks nothing) and the metrics by
        name. An attempt that resumes from a checkpoint reports again what came after that checkpoint.

        Raises:
            StorageError, JournalDamagedError: The journal cannot be read from here.
        """
        return history.read_reports(_uri(self))

    def history(self) -> pandas.DataFrame:
        """`reports()` as a DataFrame, one row a report, `at` as a timestamp. Needs pandas.

        `history().drop_duplicates(["trial_id", "iteration"], keep="last")` is each trial's curve;
        `.merge(outcome.to_dataframe(), on="trial_id")` puts the configs beside it.
        """
        return make_frame(self.reports(), times=("at",), call="history()")

    def report(
        self, path: str | os.PathLike[str] | None = None, *, compare: Sequence[SweepOutcome | str] = ()
    ) -> Path:
        """Write a report of the sweep: one HTML file that needs nothing else. Returns the file.

        Args:
            path: The file, or its folder. Default: `<sweep_id>.html` in the working directory.
            compare: Other sweeps to show beside it: outcomes, ids of the same storage path, or URIs.

        Raises:
            SpecError: The file cannot be written.
            StorageError, SweepNotFoundError: A sweep cannot be read from here.
        """
        from raysweep.pages import write_report

        return write_report(_uri(self), path, compare=_uris(compare))

    @property
    def plot(self) -> Plots:
        """Charts for notebooks and files: `outcome.plot.history().save("history.png")`; see `Plots`."""
        return Plots(self)


def stored(outcome: Outcome) -> Outcome:
    """Of a sweep its outcome as a stored sweep; of a training its outcome."""
    return StoredSweep.of(outcome) if isinstance(outcome, SweepOutcome) else outcome


def load(sweep: str, storage: str | None = None) -> StoredSweep:
    """A sweep with all its trials, from its storage.

    Args:
        sweep: Its id, an unambiguous beginning of the id, its name, `churn@latest`, `churn@2026-11-25` (a
            date in the key, or the day on which it was started), `churn@KEY`, or the URI of its folder.
        storage: The storage path; default: `~/raysweep`. A URI needs none.

    Returns:
        Its outcome, with the verdict of its newest gate. Of a sweep that has not ended, what its journal
        holds: `has_ended` is False, `status` is `running` or `interrupted`, `raise_for_status()` raises.

    Raises:
        SweepNotFoundError: There is no such sweep, or there are several; lists them with key, status and age.
        StorageError, SweepDamagedError, JournalDamagedError: It cannot be read.
    """
    return StoredSweep.of(history.load(sweep, storage))


class Plots:
    """The charts of a sweep, each a `Figure`: it shows in a notebook, and has `.save("x.html" or "x.png")`.

    They are made of what the sweep's storage holds, as its report is.

    Every method raises SpecError where the sweep has nothing to draw there, and StorageError or
    SweepNotFoundError where it cannot be read from here.
    """

    def __init__(self, outcome: SweepOutcome) -> None:
        self._outcome = outcome

    def history(self, *, compare: Sequence[SweepOutcome | str] = ()) -> Figure:
        """The best so far, by trials and by time.

        Args:
            compare: Other sweeps to draw beside it: outcomes, ids of the same storage path, or URIs.
        """
        return self._make("history", compare)

    def parallel(self) -> Figure:
        """An axis for each parameter and the metric, a line for each trial; drag on an axis to filter."""
        return self._make("parallel")

    def importances(self) -> Figure:
        """The importance of each parameter: PED-ANOVA."""
        return self._make("importances")

    def curves(self) -> Figure:
        """The learning curves, with what was stopped and what failed."""
        return self._make("curves")

    def pareto(self) -> Figure:
        """The Pareto front of a sweep with several metrics."""
        return self._make("pareto")

    def __repr__(self) -> str:
        return f"<plots of {self._outcome.sweep_id}: history, parallel, importances, curves, pareto>"

    def _make(self, name: str, compare: Sequence[SweepOutcome | str] = ()) -> Figure:
        from raysweep.pages.figures import make_figure

        return make_figure(name, _uri(self._outcome), compare=_uris(compare))


def _uri(outcome: SweepOutcome) -> str:
    if not outcome.uri:
        raise RaysweepError(f"the outcome of {outcome.sweep_id!r} does not say where the sweep is stored")
    return outcome.uri


def _uris(sweeps: Sequence[SweepOutcome | str]) -> list[str]:
    return [each if isinstance(each, str) else each.uri for each in sweeps]
