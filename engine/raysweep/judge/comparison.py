"""The new model's figures beside those of the released one, paired by row or fold.

A permutation test (`scipy.stats.permutation_test`, samples that stay paired): where neither model is better,
each difference may as well have the other sign. All signs are tried for few pairs, 9,999 drawn ones for more;
with more than 1,000 pairs the mean is as good as normal, and the paired t test costs no draws. The interval
is a bootstrap's (B. Efron, Annals of Statistics 7, 1979) over the pairs. Equal figures give equal results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from raysweep.errors import SpecError
from raysweep.judge.figures import mean_of
from raysweep.outcome.judgement import MAX_DIFFERENCES
from raysweep.outcome.record import Record

LEVEL: Final = 0.1
"""A gain that chance gives more often than this is not sure."""
MIN_PAIRS: Final = 4
"""Fewer pairs cannot reach the level: all signs of three are eight."""
MANY: Final = 1_000
_DRAWS: Final = 9_999


class Comparison(Record):
    """The gain of the new model; positive is better."""

    improvement: float
    pairs: int
    test: str = ""
    """Empty where there are too few pairs for one."""
    p_value: float | None = None
    lower_bound: float | None = None
    upper_bound: float | None = None
    differences: tuple[float, ...] = ()
    """Those of more than 200 pairs are quantiles."""

    @property
    def is_sure(self) -> bool:
        """True where chance rarely gives such a gain."""
        return self.p_value is not None and self.p_value <= LEVEL


def check_scipy() -> None:
    """See that the test can be made here. Raises: SpecError."""
    try:
        import scipy.stats  # noqa: F401
    except ModuleNotFoundError as error:
        raise SpecError(
            "judge", f"requires {error.name}, which is not installed", "pip install raysweep[judge]"
        ) from error


def compare(new: Sequence[float], released: Sequence[float], sign: float) -> Comparison:
    """The difference of two models, pair by pair.

    Args:
        new: By row or fold.
        released: The same rows or folds.
        sign: 1 where more is better, else -1.
    """
    unit = max(map(abs, (*new, *released))) or 1.0
    ours, theirs = ([sign * each / unit for each in figures] for figures in (new, released))
    gains = [mine - other for mine, other in zip(ours, theirs, strict=True)]
    tested = _tested(ours, theirs, gains) if len(gains) >= MIN_PAIRS else {}
    bounds = {name: tested[name] * unit for name in ("lower_bound", "upper_bound") if name in tested}
    shown = [each * unit for each in gains] if len(gains) > 1 else []
    return Comparison(
        improvement=mean_of(gains) * unit,
        pairs=len(gains),
        differences=_quantiles(shown),
        **tested | bounds,
    )


def _tested(ours: Sequence[float], theirs: Sequence[float], gains: Sequence[float]) -> dict[str, Any]:
    check_scipy()
    import numpy as np
    from scipy import stats

    if max(gains) == min(gains):
        # Every pair has the same difference: its sign is all that a test could find.
        sure = 0.5 ** len(gains) if gains[0] > 0 else 1.0
        return {"test": "permutation", "p_value": sure, "lower_bound": gains[0], "upper_bound": gains[0]}
    if len(gains) > MANY:
        found = stats.ttest_rel(ours, theirs, alternative="greater")
        low, high = stats.ttest_rel(ours, theirs).confidence_interval(1 - 2 * LEVEL)
        return {
            "test": "paired t",
            "p_value": float(found.pvalue),
            "lower_bound": float(low),
            "upper_bound": float(high),
        }
    permuted = stats.permutation_test(
        (np.array(ours), np.array(theirs)),
        lambda mine, other, axis: np.mean(mine - other, axis=axis),
        permutation_type="samples",
        alternative="greater",
        n_resamples=_DRAWS,
        batch=500,
        vectorized=True,
        rng=0,
    )
    drawn = stats.bootstrap(
        (np.array(gains),),
        np.mean,
        confidence_level=1 - 2 * LEVEL,
        method="percentile",
        n_resamples=_DRAWS,
        batch=500,
        rng=0,
    )
    return {
        "test": "permutation",
        "p_value": float(permuted.pvalue),
        "lower_bound": float(drawn.confidence_interval.low),
        "upper_bound": float(drawn.confidence_interval.high),
    }


def _quantiles(differences: Sequence[float]) -> tuple[float, ...]:
    if len(differences) <= MAX_DIFFERENCES:
        return tuple(differences)
    ordered = sorted(differences)
    step = (len(ordered) - 1) / (MAX_DIFFERENCES - 1)
    return tuple(ordered[math.floor(place * step)] for place in range(MAX_DIFFERENCES))
