"""A gate with a budget of false promotions: it looks for a challenger, or tests one. Scores in, verdict out.

The account decides how much is risked (`outcome/false_promotions.py`). A gate without a challenger takes the
best of tonight's candidates as the next one, if it looks better than the champion; a gate with one runs it
and the champion alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from raysweep.numeric.comparison import Gain
from raysweep.numeric.means import mean_of
from raysweep.numeric.shown import show_number
from raysweep.numeric.t_ratio import EFFECT, log_t_ratio
from raysweep.outcome import Confirmed, GateOutcome
from raysweep.outcome.false_promotions import Account, BudgetUse, Challenger, Ended, differences_of
from raysweep.pipeline.decision import decide, gains_of
from raysweep.pipeline.sentences import explain, explain_duel
from raysweep.specs.pipeline import GateSpec

RUNS: Final = 2
"""Challenger and champion."""


def duel_seeds(gate: GateSpec) -> int:
    """With how many seeds the two run: as many runs as a gate of `confirm_top_k` and the champion has."""
    return max(2, gate.seeds * (gate.confirm_top_k + 1) // RUNS)


def decide_within(
    gate: GateSpec,
    mode: str,
    ran: Sequence[Confirmed],
    champion: Confirmed | None,
    account: Account,
    tested: Challenger | None,
    *,
    metric: str = "score",
) -> GateOutcome:
    """The verdict of a gate with a budget, where there is a champion to compare with.

    Args:
        gate: Its settings.
        mode: "min" or "max".
        ran: Tonight's candidates; or the challenger.
        champion: With scores of the same seeds.
        account: Opened for tonight.
        tested: The challenger that ran; None: the gate looks for one.
        metric: For the sentences.
    """
    if champion is None or not champion.scores:
        why = "the champion was replaced meanwhile; the next gate compares with the new one"
        return _verdict(gate, ran, champion, account, why)
    if tested is None:
        return _look(gate, mode, ran, champion, account, metric)
    if account.challenger is None or account.challenger.identity != tested.identity:
        why = "another gate has decided about the challenger meanwhile"
        return _verdict(gate, ran, champion, account, why)
    return _test(gate, mode, ran[0], champion, account.staking(), metric)


def with_outlook(verdict: GateOutcome, account: Account) -> GateOutcome:
    """With the gain that would promote the challenger in the next gate, where there is one.

    Args:
        verdict: Of this gate.
        account: Before it, opened.
    """
    use = verdict.budget
    if use is None or not (use.found is not None or use.ended == "kept"):
        return verdict
    gain = account.after(use, account.at, account.against).needed_gain()
    told = (
        "no gain promotes it"
        if gain is None
        else f"a gain of {show_number(float(f'{gain:.2g}'))} promotes it"
    )
    more = f"{verdict.finding}; {told} in the next gate"
    return verdict.model_copy(update={"finding": more, "why": f"not promoted: {more}"})


def _test(
    gate: GateSpec, mode: str, ran: Confirmed, champion: Confirmed, account: Account, metric: str
) -> GateOutcome:
    challenger = account.challenger
    assert challenger is not None
    differences = differences_of(ran.scores, champion.scores, mode)
    after, e_value = account.tested(differences)
    gain = mean_of(after.differences) if after.differences else 0.0
    ended = _ended(gate, ran, after, gain, has_scores=bool(differences))
    use = BudgetUse(
        per_year=account.per_year,
        challenger=challenger,
        differences=differences,
        level=account.value,
        e_value=e_value,
        seeds=duel_seeds(gate),
        ended=ended,
        spent=(after if ended == "kept" else after.ended(is_promoted=ended == "promoted")).spent,
    )
    count = len(after.differences)
    finding = explain_duel(gate, use, ran, champion, gain, count, metric)
    verdict = _verdict(gate, (ran,), champion, account, finding, use=use)
    if not count:
        return verdict
    update = {"improvement": gain, "standard_error": after.error, "common_seeds": count}
    return verdict.model_copy(update=update)


def _ended(gate: GateSpec, ran: Confirmed, after: Account, gain: float, *, has_scores: bool) -> Ended:
    if ran.violated or not has_scores:
        return "dropped"
    if after.value >= 1 and gain > 0:
        return "promoted" if gain >= gate.min_improvement else "dropped"
    return "kept" if after.evidence > 0 else "dropped"


def _look(
    gate: GateSpec,
    mode: str,
    candidates: Sequence[Confirmed],
    champion: Confirmed,
    account: Account,
    metric: str,
) -> GateOutcome:
    """Find the best challenger among tonight's candidates."""
    plain = decide(gate, mode, candidates, champion, metric=metric)
    ranked = [each for each in plain.candidates if not each.violated]
    gains = gains_of(gate, mode, ranked, champion)
    looked = [
        (evidence_of(gain), place)
        for place, gain in enumerate(gains)
        if gain is not None and gain.gain > 0 and gain.gain >= gate.min_improvement
    ]
    evidence, place = max(looked, default=(0.0, 0))
    if evidence <= 0:
        return _verdict(gate, plain.candidates, champion, account, plain.finding, plain)
    best, gain = ranked[place], gains[place]
    assert gain is not None
    ordered = (best, *(each for each in plain.candidates if each is not best))
    finding = explain(gate, gain, best, champion, metric, is_passed=True)
    if account.challenger is not None:
        finding = f"{finding}; another challenger, which was found meanwhile, is tested first"
        return _verdict(gate, ordered, champion, account, finding, plain)
    found = Challenger(
        config=best.config,
        sweep_id=best.sweep_id,
        key=best.key,
        trial_id=best.trial_id,
        evidence=evidence,
        noise=(gain.error or 0.0) * math.sqrt(gain.seeds),
    )
    finding = f"{finding}; the next gate tests it as the challenger"
    return _verdict(gate, ordered, champion, account, finding, plain, found=found)


def evidence_of(gain: Gain) -> float:
    """The logarithm of the likelihood ratio of a gain that was tested seed by seed."""
    if gain.error is None or not gain.freedom:
        return 0.0
    return log_t_ratio(gain.gain, gain.error, gain.freedom, EFFECT * math.sqrt(gain.seeds))


def _verdict(
    gate: GateSpec,
    ran: Sequence[Confirmed],
    champion: Confirmed | None,
    account: Account,
    finding: str,
    plain: GateOutcome | None = None,
    *,
    found: Challenger | None = None,
    use: BudgetUse | None = None,
) -> GateOutcome:
    """By `use`, which promotes or does not; without one nothing is promoted. `plain`: the improvement."""
    if use is None:
        use = BudgetUse(per_year=account.per_year, seeds=duel_seeds(gate), found=found, spent=account.spent)
    is_promoted = use.ended == "promoted"
    spent = f"{show_number(round(use.spent, 3))} of {show_number(use.per_year)}"
    told = f"{finding}; {spent} false promotions a year are spent"
    update = {
        "promoted": is_promoted,
        "finding": told,
        "why": f"{'promoted' if is_promoted else 'not promoted'}: {told}",
        "candidates": tuple(ran),
        "champion": champion,
        "min_improvement": gate.min_improvement,
        "test": gate.test,
        "budget": use,
        "lower_bound": None,
    }
    return (plain or GateOutcome(promoted=False, why="")).model_copy(update=update)
