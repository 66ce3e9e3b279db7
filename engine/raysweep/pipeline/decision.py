"""Is tonight's best config better than the champion? Scores in, verdict out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Final

from raysweep.outcome import Confirmed, GateOutcome
from raysweep.spec.pipeline import GateSpec

# Student's t, one-sided 90 %, by degrees of freedom from 1 on (NIST/SEMATECH e-Handbook, 1.3.6.7.2).
_T90: Final = (
    *(3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383, 1.372),
    *(1.363, 1.356, 1.350, 1.345, 1.341, 1.337, 1.333, 1.330, 1.328, 1.325),
    *(1.323, 1.321, 1.319, 1.318, 1.316, 1.315, 1.314, 1.313, 1.311, 1.310),
)
_T90_MANY: Final = 1.310


def measured(confirmed: Confirmed) -> Confirmed:
    """With mean, spread and count of its scores."""
    scores = [score for score in confirmed.scores if score is not None and math.isfinite(score)]
    if not scores:
        return confirmed
    spread = stdev(scores) if len(scores) > 1 else 0.0
    return confirmed.model_copy(update={"mean": fmean(scores), "spread": spread, "n": len(scores)})


def decide(
    gate: GateSpec, mode: str, candidates: Sequence[Confirmed], champion: Confirmed | None
) -> GateOutcome:
    """Whether the best candidate is promoted, and why.

    Args:
        gate: What it has to show.
        mode: "min" or "max".
        candidates: With scores by seed, or none where all its trials failed.
        champion: With scores of the same seeds; one without scores counts by its mean alone. None: the first.
    """
    sign = 1.0 if mode == "max" else -1.0
    ranked = sorted(
        (each for each in candidates if each.mean is not None), key=lambda each: -sign * (each.mean or 0.0)
    )
    common = {
        "candidates": tuple(ranked),
        "champion": champion,
        "min_improvement": gate.min_improvement,
        "test": gate.test,
    }
    if not ranked:
        return GateOutcome(promoted=False, why="not promoted: no candidate gave a score", **common)
    best = ranked[0]
    if champion is None or champion.mean is None or best.mean is None:
        why = f"no champion yet; promoted: {best.mean:.6g} ± {_short(best.spread or 0.0)}"
        return GateOutcome(promoted=True, why=why, **common)
    pairs = [
        (mine, theirs)
        for mine, theirs in zip(best.scores, champion.scores, strict=False)
        if mine is not None and theirs is not None
    ]
    gains = [sign * (mine - theirs) for mine, theirs in pairs]
    head = f"champion {champion.mean:.6g} ± {_short(champion.spread or 0.0)}"
    if gate.test == "mean" or len(gains) < 2:
        gain = sign * (best.mean - champion.mean)
        promoted = gain >= gate.min_improvement and gain > 0
        return GateOutcome(
            promoted=promoted, why=f"{head}; {_verdict(promoted, gain, gate)}", improvement=gain, **common
        )
    gain, error = fmean(gains), stdev(gains) / math.sqrt(len(gains))
    lower = gain - _t90(len(gains) - 1) * error
    is_enough = gain >= gate.min_improvement and gain > 0
    promoted = is_enough and lower > 0
    why = f"{head}; {_verdict(promoted, gain, gate)}"
    if is_enough and not promoted:
        why = f"{head}; not promoted: {gain:+.4g}, but not surely above 0 ({lower:+.4g})"
    return GateOutcome(
        promoted=promoted, why=why, improvement=gain, standard_error=error, lower_bound=lower, **common
    )


def _t90(freedom: int) -> float:
    return _T90[freedom - 1] if freedom <= len(_T90) else _T90_MANY


def _verdict(promoted: bool, gain: float, gate: GateSpec) -> str:
    if promoted:
        return f"promoted: {gain:+.4g} ≥ {gate.min_improvement:g}"
    if gate.min_improvement == 0 or gain >= gate.min_improvement:
        return f"not promoted: {gain:+.4g} is no gain"
    return f"not promoted: {gain:+.4g} < {gate.min_improvement:g}"


def _short(value: float) -> str:
    return f"{value:.2g}"
