"""The verdict of a gate as a sentence: both scores, the difference, what is required."""

from __future__ import annotations

import math
from typing import Final

from raysweep.numeric.comparison import Gain
from raysweep.numeric.shown import show_number
from raysweep.outcome import Confirmed
from raysweep.outcome.false_promotions import BudgetUse
from raysweep.specs.pipeline import GateSpec

_PLACES: Final = 10
"""Beyond so many digits behind the point, numbers are written with an exponent."""
_LARGE: Final = 1e9


def explain(
    gate: GateSpec, gain: Gain, best: Confirmed, champion: Confirmed, metric: str, *, is_passed: bool
) -> str:
    """`auc 0.7389 (trial 00003) is 0.0003 better than the champion's 0.7386 (night of …); …`.

    Args:
        gate: What was required.
        gain: Of the candidate over the champion.
        best: The candidate.
        champion: The champion, as it ran beside it or as it is stored.
        metric: What was compared.
        is_passed: Whether the candidate passed.
    """
    places = _places(gain.gain, gate.min_improvement)
    ours, theirs = _show(best.mean, places), _show(champion.mean, places)
    is_unsure = not is_passed and gain.gain > 0 and gain.gain >= gate.min_improvement
    text = f"{metric} {ours} ({trial_of(best)}) is {_than(gain.gain, places)} the champion's"
    text = f"{text} {theirs}{night_of(champion)}{_over(gain, best, champion)}"
    if is_unsure:
        return f"{text}, which is not surely above 0: its 90 % lower bound is {_show(gain.lower, places)}"
    if gate.min_improvement > 0:
        return f"{text}; {_show(gate.min_improvement, places)} is required"
    return text if is_passed else f"{text}; a better one is required"


def explain_duel(
    gate: GateSpec,
    use: BudgetUse,
    ran: Confirmed,
    champion: Confirmed,
    gain: float,
    count: int,
    metric: str,
) -> str:
    """`the challenger (trial 00002, night of …) is 0.0045 better than the champion over 12 seeds; …`.

    Args:
        gate: What was required.
        use: What the test was decided by.
        ran: The challenger, as it ran tonight.
        champion: As it ran beside it.
        gain: Over all gates that tested it.
        count: Of how many seeds that is.
        metric: What was compared.
    """
    who = f"the challenger ({trial_of(ran)}{f', night of {ran.key}' if ran.key else ''})"
    if ran.violated:
        return f"{who} does not satisfy {' and '.join(ran.violated)} and is given up"
    if not use.differences:
        return f"{who} and the champion{night_of(champion)} have no common seed; it is given up"
    places = _places(gain, gate.min_improvement)
    text = f"{who} is {_than(gain, places)} the champion{night_of(champion)} in {metric} over {count} seeds"
    needed = 1 / use.level if use.level > 0 else math.inf
    proof = f"evidence {show_number(use.e_value)} tonight, {show_number(needed)} is required"
    if use.ended == "kept":
        return f"{text}; {proof}: the next gate tests it again"
    if use.ended == "promoted":
        return f"{text}; {proof}"
    is_sure = use.level * use.e_value >= 1
    why = f"{_show(gate.min_improvement, places)} is required" if is_sure else proof
    return f"{text}; {why}: it is given up"


def trial_of(confirmed: Confirmed) -> str:
    """`trial 00003`."""
    return f"trial {confirmed.trial_id}" if confirmed.trial_id else "the best config"


def night_of(champion: Confirmed) -> str:
    """` (night of 2026-11-24)`; empty where its night is not known."""
    return f" (night of {champion.key})" if champion.key else ""


def _than(gain: float, places: int | None) -> str:
    if gain == 0:
        return "as good as"
    return f"{_show(abs(gain), places)} {'better' if gain > 0 else 'worse'} than"


def _over(gain: Gain, best: Confirmed, champion: Confirmed) -> str:
    """The number of seeds of the difference, where one of the two has a score of more."""
    seeds = max(best.n, champion.n)
    return f" over {gain.seeds} common seeds" if 0 < gain.seeds < seeds else ""


def _places(gain: float, required: float) -> int | None:
    """Digits behind the point that show the difference and what is required apart; None: use an exponent."""
    numbers = [abs(number) for number in (gain, required) if number]
    if not numbers:
        return 4
    if not all(10.0**-_PLACES <= number < _LARGE for number in numbers):
        return None
    places = max(0, -math.floor(math.log10(min(numbers))))
    while places < _PLACES and f"{gain:.{places}f}" == f"{required:.{places}f}" and gain != required:
        places += 1
    return max(places, 4) if max(numbers) < 1 else places


def _show(number: float | None, places: int | None) -> str:
    if number is None:
        return "none"
    if places is None or not math.isfinite(number) or abs(number) >= _LARGE:
        return show_number(number)
    return f"{number:.{places}f}"
