"""The importance of each parameter for the metric: conditional PED-ANOVA, as Optuna computes it.

PED-ANOVA compares, for one parameter at a time, where the best tenth of the trials lies with where all of
them lie (https://arxiv.org/abs/2304.10255, https://arxiv.org/abs/2601.20800). Optuna's evaluator has the same
figures, and a test compares them; it is not used, since its import takes seconds (it brings scikit-learn) and
it needs a trial object for every trial. Here only counts on a grid of 50 values are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from raysweep.pages.columns import are_numbers, show_label

MIN_TRIALS: Final = 10
TOP: Final = 0.1
"""The share of the trials that counts as the best."""
_STEPS: Final = 50
_MAX_CHOICES: Final = 100
_TINY: Final = 1e-12
_PRIOR: Final = 1.0

Counts = list[int]


def importances(
    params: Mapping[str, Sequence[Any]],
    logs: Mapping[str, bool],
    scores: Sequence[float | None],
    *,
    is_max: bool,
) -> dict[str, Any]:
    """The shares of the parameters, which add up to 1, the largest first; or why there are none.

    Args:
        params: By name, the value of each trial; None where it has none.
        logs: Whether a parameter is on a logarithmic scale.
        scores: By trial; None or not finite: the trial is left out.
        is_max: Whether the larger score is the better.

    Returns:
        `{"shares": [[name, share], …], "trials": n}`, or `{"problem": text}`.
    """
    usable = [n for n, score in enumerate(scores) if score is not None and math.isfinite(score)]
    if len(usable) < MIN_TRIALS:
        return {"problem": too_few(len(usable))}
    losses = [(-1.0 if is_max else 1.0) * (scores[n] or 0.0) for n in usable]
    limit = sorted(losses)[math.ceil(TOP * len(losses)) - 1]
    is_top = [loss <= limit for loss in losses]
    if all(is_top):
        return {"problem": "Too many trials share the best score."}
    found: dict[str, float] = {}
    for name, values in params.items():
        divergence = _divergence([values[n] for n in usable], is_top, is_log=logs.get(name, False))
        if divergence is not None:
            found[name] = divergence
    total = sum(found.values())
    if not total > 0:
        return {"problem": "No parameter has several values in enough trials."}
    shares = sorted(((name, value / total) for name, value in found.items()), key=lambda pair: -pair[1])
    return {"shares": shares, "trials": len(usable)}


def too_few(scored: int) -> str:
    """The reason why so many trials with a score say nothing."""
    have = "1 trial has" if scored == 1 else f"{scored} trials have"
    return f"{have} a score; {MIN_TRIALS} are needed."


def _divergence(values: Sequence[Any], is_top: Sequence[bool], *, is_log: bool) -> float | None:
    """The difference of the top trials with the parameter from all that have it; None: it says nothing."""
    there = [(value, top) for value, top in zip(values, is_top, strict=True) if value is not None]
    top_count = sum(top for _, top in there)
    if len(there) < MIN_TRIALS or not top_count:
        return None
    grid = _grid([value for value, _ in there], is_log=is_log)
    if grid is None:
        return None
    place, size, density = grid
    everyone, best = [0] * size, [0] * size
    for value, top in there:
        cell = place(value)
        everyone[cell] += 1
        best[cell] += top
    of_all, of_top = density(everyone), density(best)
    distance = sum(
        (each + _TINY) * ((top + _TINY) / (each + _TINY) - 1.0) ** 2
        for each, top in zip(of_all, of_top, strict=True)
    )
    # Of a parameter that only some trials have: by how likely these are among the best, and among all.
    return distance * (top_count / sum(is_top)) ** 2 / (len(there) / len(values))


def _grid(
    values: Sequence[Any], *, is_log: bool
) -> tuple[Callable[[Any], int], int, Callable[[Counts], list[float]]] | None:
    """The cell of a value, how many cells there are, and what makes a density of counts."""
    if are_numbers(values):
        low, high = float(min(values)), float(max(values))
        if not (math.isfinite(low) and math.isfinite(high)) or low == high:
            return None
        to = math.log if is_log and low > 0 else float
        start, step = to(low), (to(high) - to(low)) / (_STEPS - 1)

        def cell(value: Any) -> int:
            return min(_STEPS - 1, max(0, math.ceil((to(value) - start) / step - 0.5)))

        return cell, _STEPS, _density_of_numbers
    labels = {label: n for n, label in enumerate(dict.fromkeys(map(show_label, values)))}
    if not 2 <= len(labels) <= _MAX_CHOICES:
        return None
    return (lambda value: labels[show_label(value)]), len(labels), _density_of_choices


def _density_of_choices(counts: Counts) -> list[float]:
    """A mixture of a kernel for each choice that was made, and an even one; weights are the counts."""
    size, seen = len(counts), [n for n, count in enumerate(counts) if count]
    kernels, total = len(seen) + 1, sum(counts) + _PRIOR
    even = _PRIOR / kernels
    row = size * even + 1
    found = [_PRIOR / total / size] * size
    for n in seen:
        weight = counts[n] / total / row
        for m in range(size):
            found[m] += weight * (even + (m == n))
    return found


def _density_of_numbers(counts: Counts) -> list[float]:
    """A mixture of normal kernels on the cells, as wide as Scott's rule says, and a wide one."""
    high = len(counts) - 1
    seen = [n for n, count in enumerate(counts) if count]
    weights = [counts[n] for n in seen]
    total = sum(weights)
    mean = sum(n * weight for n, weight in zip(seen, weights, strict=True)) / total
    square = sum((n - mean) ** 2 * weight for n, weight in zip(seen, weights, strict=True))
    spread = math.sqrt(square / max(1, total - 1))
    sums = list(accumulate(weights))
    first = next(n for n, each in enumerate(sums) if each >= total // 4)
    third = next((n for n, each in enumerate(sums) if each > total * 3 // 4), len(seen) - 1)
    width = 1.059 * min((seen[third] - seen[first]) / 1.34, spread) * total**-0.2
    sigma = max(width, 0.5 / 1.64)
    found = [0.0] * len(counts)
    for middle, wide, weight in [
        *((float(n), sigma, weight) for n, weight in zip(seen, weights, strict=True)),
        (high / 2.0, high + 1.0, _PRIOR),
    ]:
        edges = [_normal((n - 0.5 - middle) / wide) for n in range(len(counts) + 1)]
        whole = edges[-1] - edges[0]
        for n in range(len(counts)):
            found[n] += weight / (total + _PRIOR) * (edges[n + 1] - edges[n]) / whole
    return found


def _normal(at: float) -> float:
    """The share of a normal distribution below a value."""
    return 0.5 * math.erfc(-at / math.sqrt(2.0))
