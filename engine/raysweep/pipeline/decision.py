"""Is one of tonight's best configs better than the champion? Scores in, verdict out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from raysweep.numeric.comparison import MIN_SEEDS, Gain, Scores, mean_gain, paired_gains, unpaired_gain
from raysweep.numeric.means import mean_of, spread_of
from raysweep.numeric.shown import show_number
from raysweep.outcome import Confirmed, GateOutcome
from raysweep.pipeline.sentences import explain, night_of, trial_of
from raysweep.specs.pipeline import GateSpec


def measured(confirmed: Confirmed) -> Confirmed:
    """With mean, spread and count of its scores by seed; a config without seeds stays as it is."""
    if not confirmed.scores:
        return confirmed
    scores = [score for score in confirmed.scores if score is not None and math.isfinite(score)]
    if not scores:
        return confirmed.model_copy(update={"mean": None, "spread": None, "n": 0})
    spread = spread_of(scores) if len(scores) > 1 else 0.0
    return confirmed.model_copy(update={"mean": mean_of(scores), "spread": spread, "n": len(scores)})


def seeds_needed(gate: GateSpec) -> int:
    """The number of seeds with a score that it takes to judge a config."""
    return MIN_SEEDS if gate.test == "paired" else 1


def decide(
    gate: GateSpec,
    mode: str,
    candidates: Sequence[Confirmed],
    champion: Confirmed | None,
    *,
    lost: str = "",
    metric: str = "score",
) -> GateOutcome:
    """The candidate that is promoted, if one is, and the reason.

    Of the candidates that pass, the best is promoted; more seeds with a score come before better scores. One
    that did not satisfy the sweep's constraints under some seed does not pass.

    Args:
        gate: What it has to show.
        mode: "min" or "max".
        candidates: With scores by seed, or none where all its trials failed.
        champion: With scores of the same seeds; one without scores by seed counts by its mean, spread and
            count. None: the first.
        lost: Why the champion does not run any more: the candidates are judged as on a first night.
        metric: What is compared, for the sentence.
    """
    refused = _ranked([each for each in candidates if each.violated], mode)
    ranked = _ranked([each for each in candidates if not each.violated], mode)
    common: dict[str, Any] = {
        "champion": champion,
        "min_improvement": gate.min_improvement,
        "test": gate.test,
        "notes": (lost,) if lost else (),
    }
    if refused:
        verdict = decide(
            gate, mode, [each for each in candidates if not each.violated], champion, lost=lost, metric=metric
        )
        if not ranked:
            broken = " and ".join(dict.fromkeys(text for each in refused for text in each.violated))
            verdict = verdict.model_copy(update=_words(False, f"no candidate satisfies {broken}"))
        return verdict.model_copy(update={"candidates": (*verdict.candidates, *refused)})
    if not ranked:
        return GateOutcome(**_words(False, "no candidate gave a score"), candidates=(), **common)
    if lost or champion is None:
        return _first(gate, ranked, lost or "there was no champion", metric, common)
    gains = gains_of(gate, mode, ranked, champion)
    passed = [index for index, gain in enumerate(gains) if gain is not None and _is_passed(gate, gain)]
    # Where none passes, the best one that could be compared says why.
    shown = next(iter(passed or [index for index, gain in enumerate(gains) if gain is not None]), None)
    if shown is None:
        why = _too_few(gate, ranked[0], champion)
        return GateOutcome(**_words(False, why), candidates=tuple(ranked), **common)
    gain = gains[shown]
    assert gain is not None
    if passed:
        ranked = [ranked[shown], *ranked[:shown], *ranked[shown + 1 :]]
    finding = explain(gate, gain, ranked[0 if passed else shown], champion, metric, is_passed=bool(passed))
    return GateOutcome(
        **_words(bool(passed), finding),
        candidates=tuple(ranked),
        improvement=gain.gain,
        standard_error=gain.error,
        lower_bound=gain.lower,
        common_seeds=gain.seeds,
        **common,
    )


def _first(
    gate: GateSpec, ranked: list[Confirmed], head: str, metric: str, common: dict[str, Any]
) -> GateOutcome:
    """Of a night with nothing to beat: the best candidate, if there is enough to judge it by."""
    best = ranked[0]
    needed = min(seeds_needed(gate), len(best.scores))
    if best.n < needed:
        why = f"{trial_of(best)} has a score of {_count(best)}, {needed} are required; {head}"
        return GateOutcome(**_words(False, why), candidates=tuple(ranked), **common)
    score = f"{show_number(best.mean)} ± {show_number(best.spread or 0.0)}"
    why = f"{metric} {score} ({trial_of(best)}); {head}"
    return GateOutcome(**_words(True, why), candidates=tuple(ranked), **common)


def _words(promoted: bool, finding: str) -> dict[str, Any]:
    return {
        "promoted": promoted,
        "finding": finding,
        "why": f"{'promoted' if promoted else 'not promoted'}: {finding}",
    }


def _ranked(candidates: Sequence[Confirmed], mode: str) -> list[Confirmed]:
    """Those with a score: more seeds first, then by how much better than the others of the same seeds."""
    scored = [each for each in candidates if each.mean is not None]
    count = max((len(each.scores) for each in scored), default=0)
    by_seed = [
        [score for each in scored for score in each.scores[seed : seed + 1] if score is not None]
        for seed in range(count)
    ]
    levels = [mean_of(scores) if scores else 0.0 for scores in by_seed]

    def standing(each: Confirmed) -> tuple[int, float]:
        # Half of each, as the difference of two numbers may be more than a float can hold.
        above = [score / 2 - levels[seed] / 2 for seed, score in enumerate(each.scores) if score is not None]
        return each.n, _sign(mode) * mean_of(above)

    return sorted(scored, key=standing, reverse=True)


def gains_of(
    gate: GateSpec, mode: str, ranked: Sequence[Confirmed], champion: Confirmed
) -> list[Gain | None]:
    """The gain of each over the champion, as the gate tests it; None of one that cannot be compared."""
    sign = _sign(mode)
    ours = [_signed(each.scores, sign) for each in ranked]
    theirs, mean = _signed(champion.scores, sign), sign * (champion.mean or 0.0)
    if champion.scores:
        if gate.test == "mean":
            return [mean_gain(scores, theirs) for scores in ours]
        return paired_gains(ours, theirs)
    if gate.test == "mean":
        return [Gain(gain=sign * (each.mean or 0.0) - mean, seeds=0) for each in ranked]
    return [unpaired_gain(scores, mean, champion.spread or 0.0, champion.n, len(ours)) for scores in ours]


def _is_passed(gate: GateSpec, gain: Gain) -> bool:
    is_enough = gain.gain >= gate.min_improvement and gain.gain > 0
    return is_enough and (gain.lower is None or gain.lower > 0)


def _too_few(gate: GateSpec, best: Confirmed, champion: Confirmed) -> str:
    needed = seeds_needed(gate)
    both = f"{trial_of(best)} and the champion{night_of(champion)} cannot be compared"
    if not champion.scores:
        return f"{both}: the trial has a score of {_count(best)}, the champion a mean of {champion.n} seeds"
    pairs = zip(best.scores, champion.scores, strict=False)
    common = sum(mine is not None and theirs is not None for mine, theirs in pairs)
    seeds = f"{needed} common seeds are required" if needed > 1 else "a common seed is required"
    return (
        f"{both}: they have {common} common {'seed' if common == 1 else 'seeds'}, {seeds}"
        f" (the trial has a score of {_count(best)}, the champion of {_count(champion)})"
    )


def _count(confirmed: Confirmed) -> str:
    return f"{confirmed.n} of {len(confirmed.scores)} seeds"


def _signed(scores: Sequence[float | None], sign: float) -> Scores:
    return [None if score is None else sign * score for score in scores]


def _sign(mode: str) -> float:
    return 1.0 if mode == "max" else -1.0
