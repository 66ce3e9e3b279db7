"""Learning curves as columns: all of a small sweep, of a large one the best, the failed, and a sample."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Final

from raysweep.outcome import TrialOutcome
from raysweep.pages.columns import encode
from raysweep.runs.reading.whole_sweep import Curve, WholeSweep

MAX_VALUES: Final = 90_000
"""The number of numbers that all curves together have, iterations included."""
MAX_POINTS: Final = 400
"""A curve of more reports is thinned to so many."""
MAX_CURVES: Final = 2000
MAX_METRICS: Final = 4
_BEST: Final = 60
_FAILED: Final = 40


def curve_columns(
    sweep: WholeSweep, ranked: Sequence[TrialOutcome], metrics: Sequence[str]
) -> dict[str, Any]:
    """The curves of the trials, one after the other.

    `trial` and `length` have an entry for each curve, `iteration` and each of `values` one for each report.

    Args:
        sweep: What is stored of the sweep.
        ranked: Its trials, the best first.
        metrics: Whose curves are wanted, in this order; the first few that any trial reported are shown.
    """
    reported = {name for curve in sweep.curves.values() for name in curve.values}
    names = [name for name in metrics if name in reported][:MAX_METRICS]
    chosen = _choose(sweep, ranked, len(names)) if names else []
    iterations, lengths = array("f"), array("I")
    shown = [sweep.curves[number].values for number in chosen]
    wide = {name for values in shown for name in values if values[name].typecode == "d"}
    columns = {name: array("d" if name in wide else "f") for name in names}
    for number in chosen:
        curve = sweep.curves[number]
        places = _places(len(curve.iterations))
        lengths.append(len(places))
        iterations.extend(curve.iterations[place] for place in places)
        for name in names:
            column = curve.values.get(name)
            columns[name].extend(column[place] if column is not None else float("nan") for place in places)
    return {
        "of": len(sweep.curves),
        "trial": encode(array("I", chosen)),
        "length": encode(lengths),
        "iteration": encode(iterations),
        "values": {name: encode(column) for name, column in columns.items()},
    }


def _choose(sweep: WholeSweep, ranked: Sequence[TrialOutcome], metrics: int) -> list[int]:
    """The trials whose curves are shown, by number."""
    curves = sweep.curves
    order = dict.fromkeys(trial.number for trial in ranked[:_BEST] if trial.number in curves)
    failed = [trial.number for trial in sweep.trials if trial.state == "failed" and trial.number in curves]
    order.update(dict.fromkeys(failed[-_FAILED:]))
    rest = [number for number in curves if number not in order]
    order.update(dict.fromkeys(_spread(rest)))
    found: list[int] = []
    left = MAX_VALUES
    for number in order:
        left -= _cost(curves[number], metrics)
        if left < 0 or len(found) >= MAX_CURVES:
            break
        found.append(number)
    return sorted(found)


def _cost(curve: Curve, metrics: int) -> int:
    return min(MAX_POINTS, len(curve.iterations)) * (1 + metrics)


def _spread(numbers: Sequence[int]) -> Iterable[int]:
    """All of them, in an order in which any beginning is spread evenly over the whole."""
    count = len(numbers)
    if count <= MAX_CURVES:
        step = max(1, count // 7)
        return [numbers[place] for start in range(step) for place in range(start, count, step)]
    return [numbers[count * place // MAX_CURVES] for place in range(MAX_CURVES)]


def _places(count: int) -> Sequence[int]:
    if count <= MAX_POINTS:
        return range(count)
    return sorted({round(place * (count - 1) / (MAX_POINTS - 1)) for place in range(MAX_POINTS)})
