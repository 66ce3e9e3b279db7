"""One chart of a report as a figure of its own, for notebooks and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from raysweep.errors import SpecError
from raysweep.outcome.figure import Figure
from raysweep.outcome.record import without_collector
from raysweep.pages.document import make_document
from raysweep.pages.page import render
from raysweep.pages.write import others_of
from raysweep.runs.reading.naming.lookup import find_sweep
from raysweep.runs.reading.whole_sweep import read_whole

KEPT: Final = 4
"""Of so many sweeps the documents are kept: the next chart of a sweep that has ended is made at once."""
_TITLES: Final = {
    "history": "best so far",
    "parallel": "parameters and result",
    "importances": "importance of parameters",
    "curves": "learning curves",
    "pareto": "Pareto front",
}
_NOT_DRAWN: Final = ("top", "configs", "running", "failures", "notes")
_EMPTY_COLUMN: Final = {"type": "u4", "data": ""}
_NO_CURVES: Final = {
    "of": 0,
    "trial": _EMPTY_COLUMN,
    "length": _EMPTY_COLUMN,
    "iteration": {"type": "f4", "data": ""},
    "values": {},
}


def make_figure(name: str, sweep: str, *, compare: Sequence[str] = ()) -> Figure:
    """A chart of a stored sweep.

    Args:
        name: `history`, `parallel`, `importances`, `curves` or `pareto`.
        sweep: The sweep's URI.
        compare: Other sweeps, as `write_report` takes them; only for `history`.

    Raises:
        SpecError: The sweep has nothing to draw there.
        StorageError, SweepNotFoundError, SweepDamagedError, JournalDamagedError: A sweep cannot be read.
    """
    document = _document(sweep, tuple(compare))
    _check(name, document)
    facts = document["sweep"]
    title = f"{facts['name'] or facts['id']}: {_TITLES[name]}"
    drawn = {key: [] if key in _NOT_DRAWN else value for key, value in document.items()}
    drawn |= {"spec": "", "timeline": None, "law": None}
    if name != "curves":
        drawn["curves"] = _NO_CURVES
    page = render(title, {"figure": name, "document": drawn})
    return Figure(name, title, page, _height(name, document))


def _document(sweep: str, compare: tuple[str, ...]) -> Mapping[str, Any]:
    folder = find_sweep(sweep, None)
    info = folder.store.head(f"{folder.sweep_id}/outcome.json")
    if info is None:
        return _read(sweep, compare)
    return _kept(sweep, compare, info)


@lru_cache(KEPT)
def _kept(sweep: str, compare: tuple[str, ...], version: object) -> Mapping[str, Any]:
    """`version`: of the outcome; a sweep that has continued has another."""
    return _read(sweep, compare)


def _read(sweep: str, compare: tuple[str, ...]) -> Mapping[str, Any]:
    folder = find_sweep(sweep, None)
    with without_collector():
        return make_document(read_whole(folder), others_of(compare, folder.store.url), has_logs=False)


def _check(name: str, document: Mapping[str, Any]) -> None:
    facts = document["sweep"]
    problem = ""
    if name == "curves":
        if document["problem"]:
            problem = f"the journal cannot be read: {document['problem']}"
        elif not document["curves"]["values"]:
            problem = "no trial has reported a number"
    elif name == "parallel":
        problem = "" if document["params"] else "no parameter varies"
    elif not facts["metric"]:
        problem = "the sweep has no metric"
    elif name == "importances":
        problem = document["importances"].get("problem", "").rstrip(".")
    elif not any(metric["name"] == facts["metric"] for metric in document["metrics"]):
        problem = f"no trial has a score: none reported {facts['metric']}"
    elif name == "pareto" and not facts["others"]:
        problem = f"the sweep has one metric, {facts['metric']}"
    if problem:
        raise SpecError(f"plot.{name}", f"{facts['id']}: {problem}", _FIXES[name])


_FIXES: Final = {
    "history": "see the trials with outcome.to_dataframe()",
    "parallel": "see the trials with outcome.to_dataframe()",
    "importances": "it needs ten trials with a score, and parameters that vary",
    "curves": "see the trials with outcome.to_dataframe()",
    "pareto": "write metric: [auc, latency_ms] in the spec, or use plot.history()",
}


def _height(name: str, document: Mapping[str, Any]) -> int:
    if name == "importances":
        return 150 + 30 * min(20, len(document["importances"]["shares"]))
    return {"history": 450, "curves": 490, "parallel": 510, "pareto": 490}[name]
