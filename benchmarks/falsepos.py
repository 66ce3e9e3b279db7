"""falsepos: how often the gate promotes what is no better than the champion, and what is.

Gates are simulated, their scores drawn: a level for each seed, which all configs share, and noise of
standard deviation 1 for each run. What decides is the product's own `decide`; beside it, by the same scores,
stands the rule that it replaced: the best mean of the candidates, tested as if it were the only one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from statistics import fmean, stdev
from typing import Any, Final

from benchmarks import falseyears
from benchmarks.falseyears import YEARS
from benchmarks.measure import Json, target
from raysweep.outcome import Confirmed
from raysweep.pipeline import decide
from raysweep.specs.pipeline import GateSpec

GATES: Final = 20_000
"""At 10 %, the share of so many is known to 0.2 points."""
CANDIDATES: Final = (1, 3, 5)
SEEDS: Final = 3
ALLOWED: Final = 0.10
DIFFERENCES: Final = (0.0, 1.0, 2.0)
"""Of the one better candidate, in standard deviations of a score's noise."""
NONE: Final = "no difference"
MORE: Final[dict[str, dict[str, Any]]] = {
    "1 run in 10 fails": {"failing": 0.1},
    "a candidate 3 times as noisy": {"noisy": 0},
    "the champion 3 times as noisy": {"noisy": 3},
}
_T90: Final = {1: 3.078, 2: 1.886, 3: 1.638, 4: 1.533}
_SEED_SPREAD: Final = 2.0

Scores = tuple[float | None, ...]
Rule = Callable[[Sequence[Scores], Scores], bool]
"""Whether one of the candidates is promoted, from its scores by seed and the champion's."""


def run(rounds: int, *, gates: int = GATES, years: int = YEARS) -> Json:
    """Once, whatever `rounds` is: each figure comes from thousands of gates, drawn from a seed of its own.

    Args:
        rounds: Passed over.
        gates: How many without a difference; a fifth of it of each other kind.
        years: How many of each kind: see `falseyears`.
    """
    plain = [f"better by {by:g} sd" if by else NONE for by in DIFFERENCES]
    asked = [(count, SEEDS, case) for count in CANDIDATES for case in plain]
    asked += [(3, seeds, case) for seeds in (2, 5) for case in plain]
    asked += [(3, SEEDS, f"{NONE}, {more}") for more in MORE]
    rules: dict[str, Rule] = {"raysweep": promotes, "before": promoted_before}
    table: list[Json] = []
    for count, seeds, case in asked:
        by = float(case.split()[2]) if case.startswith("better") else 0.0
        more = MORE.get(case.removeprefix(f"{NONE}, "), {})
        number = gates if case == NONE else gates // 5
        row = {"candidates": count, "seeds": seeds, "case": case, "gates": number}
        table.append({**row, **rates(rules, count, seeds, number, by, **more)})
    simulated_years = falseyears.run(rounds, years=years)
    return {
        "what": "the share of simulated gates that promote; 'before': the best mean, tested as the only one",
        "table": table,
        "years": simulated_years["table"],
        "targets": [
            *simulated_years["targets"],
            *(
                target(
                    f"false promotions, {row['candidates']} candidates, {row['seeds']} seeds",
                    row["raysweep"],
                    at_most=ALLOWED,
                )
                for row in table
                if row["case"] == NONE
            ),
        ],
    }


def rates(
    rules: dict[str, Rule], count: int, seeds: int, gates: int, by: float = 0.0, **more: Any
) -> dict[str, float]:
    """The share of simulated gates in which each rule promotes a candidate."""
    draw = Random(f"{count} {seeds} {by}")
    promoted = dict.fromkeys(rules, 0)
    for _ in range(gates):
        candidates, champion = simulated(draw, count, seeds, by, **more)
        for name, rule in rules.items():
            promoted[name] += rule(candidates, champion)
    return {name: round(number / gates, 4) for name, number in promoted.items()}


def simulated(
    draw: Random, count: int, seeds: int, by: float, *, failing: float = 0.0, noisy: int | None = None
) -> tuple[list[Scores], Scores]:
    """The scores of one gate, by seed: of the candidates, and of the champion.

    Args:
        draw: Where they come from.
        count: How many candidates.
        seeds: How many seeds.
        by: How much better than the champion the first candidate is.
        failing: How likely a run is to fail.
        noisy: Whose noise is three times the others'; the champion comes after the candidates.
    """
    levels = [draw.gauss(0.0, _SEED_SPREAD) for _ in range(seeds)]
    rows: list[Scores] = []
    for config in range(count + 1):
        spread, better = (3.0 if config == noisy else 1.0), (by if config == 0 else 0.0)
        row = [level + better + draw.gauss(0.0, spread) for level in levels]
        rows.append(tuple(None if failing and draw.random() < failing else score for score in row))
    return rows[:-1], rows[-1]


def promotes(candidates: Sequence[Scores], champion: Scores) -> bool:
    """What the gate decides."""
    gate = GateSpec(confirm_top_k=len(candidates), seeds=len(champion))
    return decide(gate, "max", [_confirmed(scores) for scores in candidates], _confirmed(champion)).promoted


def _confirmed(scores: Scores) -> Confirmed:
    known = [score for score in scores if score is not None]
    mean = fmean(known) if known else None
    return Confirmed(config={}, scores=scores, mean=mean, n=len(known))


def promoted_before(candidates: Sequence[Scores], champion: Scores) -> bool:
    """What it decided before: by the best mean, whatever seeds it had, as if it were the only one."""
    known = [[score for score in scores if score is not None] for scores in candidates]
    theirs = [score for score in champion if score is not None]
    if not any(known) or not theirs:
        return bool(any(known))
    best = max((index for index, scores in enumerate(known) if scores), key=lambda index: fmean(known[index]))
    pairs = zip(candidates[best], champion, strict=True)
    gains = [mine - other for mine, other in pairs if mine is not None and other is not None]
    if len(gains) < 2:
        return fmean(known[best]) > fmean(theirs)
    gain, error = fmean(gains), stdev(gains) / math.sqrt(len(gains))
    return gain - _T90[len(gains) - 1] * error > 0
