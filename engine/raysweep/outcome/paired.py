"""One config beside others, over the seeds or folds that both ran: better, worse, or undecided.

The test is the gate's (`numeric.comparison`): where no change has an effect, fewer than `level` of all
comparisons say `better`, however many configs the new side has. That holds for one look at a number of seeds
that was chosen before: more seeds until a comparison says `better` would find gains that are none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from raysweep.errors import SpecError
from raysweep.numeric.comparison import LEVEL, MIN_SEEDS, Gain, critical, paired_gains
from raysweep.numeric.means import mean_of, spread_of
from raysweep.numeric.shown import show_number
from raysweep.outcome.record import Record
from raysweep.outcome.trial import TrialOutcome

MAX_SEEDS: Final = 10_000
_MUCH: Final = 60
"""Degrees of freedom beyond which the factor hardly changes."""
POWER: Final = 0.84
"""The quantile of the normal distribution at which a real gain of this size is found 4 times of 5."""


class Side(Record):
    """One config of a comparison."""

    config: dict[str, Any]
    """Without the parameters that pair."""
    configs: int
    """The number of configs of its sweep that had a score."""
    scores: int
    mean: float
    failed: int = 0
    """Trials of this config that gave no score: they failed, or did not run to their end."""


class Comparison(Record):
    """The new side beside the base."""

    verdict: Literal["better", "worse", "undecided"]
    why: str
    test: Literal["paired", "unpaired"]
    improvement: float
    """Of the mean; positive is better."""
    low: float | None = None
    """The improvement is above this with a confidence of 1 - `level`; None for too few scores."""
    high: float | None = None
    """It is below this, with the same confidence."""
    level: float
    common: int
    """Seeds or folds that both have a score of; 0 where the scores are not paired."""
    more_seeds: int | None = None
    """Further seeds that decide it 4 times of 5, if the gain is real; None: it is decided, or no number of
    seeds up to 10,000 does."""
    base: Side
    new: Side


class Config:
    """The trials of one config: its scores by seed or fold."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = dict(config)
        self.by_seed: dict[str, list[float]] = {}
        self.failed: set[str] = set()
        self.num_failed = 0

    def add(self, trial: TrialOutcome, seed: str) -> None:
        """Take note of a trial; only one that ran to its end has a score that can be compared."""
        score = trial.score if trial.state == "completed" and trial.is_feasible else None
        if score is None or not math.isfinite(score):
            self.failed.add(seed)
            self.num_failed += 1
        else:
            self.by_seed.setdefault(seed, []).append(score)

    @property
    def scores(self) -> list[float]:
        """All of them."""
        return [score for scores in self.by_seed.values() for score in scores]

    def at(self, seeds: Sequence[str]) -> list[float | None]:
        """By seed the mean of its scores."""
        return [mean_of(self.by_seed[seed]) if seed in self.by_seed else None for seed in seeds]

    def side(self, configs: int) -> Side:
        """For the comparison."""
        scores = self.scores
        return Side(
            config=self.config,
            configs=configs,
            scores=len(scores),
            mean=mean_of(scores),
            failed=self.num_failed,
        )


def configs_of(trials: Sequence[TrialOutcome], by: Sequence[str], number: int | None = None) -> list[Config]:
    """The configs of a sweep that have a score.

    Args:
        trials: Of the sweep.
        by: The parameters that are a seed or a fold.
        number: Only the config of this trial.

    Raises:
        SpecError: There is none.
    """
    found: dict[str, Config] = {}
    wanted = None
    for trial in trials:
        config = {name: value for name, value in trial.config.items() if name not in by}
        text = json.dumps(config, sort_keys=True, default=str)
        if trial.number == number:
            wanted = text
        seed = json.dumps([trial.config.get(name) for name in by], default=str)
        found.setdefault(text, Config(config)).add(trial, seed)
    scored = [each for text, each in found.items() if each.by_seed and (number is None or text == wanted)]
    if not scored:
        which = "" if number is None else f" of the config of trial {number}"
        raise SpecError("compare", f"no trial{which} ran to its end with a score", "compare others")
    return scored


def compare(
    base: Sequence[Config], new: Sequence[Config], mode: str, *, is_paired: bool, level: float = LEVEL
) -> Comparison:
    """The best config of the new side beside the best of the base.

    Args:
        base: As `configs_of` gives them.
        new: The same.
        mode: "min" or "max".
        is_paired: Whether scores of the same seed belong together.
        level: How often `better` may be said of what is none.
    """
    sign = -1.0 if mode == "min" else 1.0
    against = max(base, key=lambda each: sign * mean_of(each.scores))
    found = _paired(against, new, sign, level) if is_paired else _unpaired(against, new, sign, level)
    chosen, gain, factor = found
    low = high = None
    if gain.error is not None:
        low, high = gain.gain - factor * gain.error, gain.gain + factor * gain.error
    verdict, why = _verdict(gain, low, high, _lost(against, chosen) if is_paired else chosen.num_failed)
    return Comparison(
        verdict=verdict,
        why=why,
        test="paired" if is_paired else "unpaired",
        improvement=gain.gain,
        low=low,
        high=high,
        level=level,
        common=gain.seeds,
        more_seeds=_more(gain, len(new), level, chosen) if verdict == "undecided" else None,
        base=against.side(len(base)),
        new=chosen.side(len(new)),
    )


def _paired(base: Config, new: Sequence[Config], sign: float, level: float) -> tuple[Config, Gain, float]:
    seeds = [seed for seed in base.by_seed if any(seed in each.by_seed for each in new)]
    rows = [[None if score is None else sign * score for score in each.at(seeds)] for each in (*new, base)]
    gains = paired_gains(rows[:-1], rows[-1])
    tested = [(each, gain) for each, gain in zip(new, gains, strict=True) if gain is not None]
    if not tested:
        return _untested(base, new, sign, len(seeds))
    chosen, gain = max(tested, key=lambda pair: pair[1].gain)
    return chosen, gain, critical(len(tested), gain.freedom or 1, level)


def _unpaired(base: Config, new: Sequence[Config], sign: float, level: float) -> tuple[Config, Gain, float]:
    """Welch's test."""
    chosen, untested, _ = _untested(base, new, sign, 0)
    sides = [each.scores for each in (chosen, base)]
    if min(map(len, sides)) < MIN_SEEDS:
        return chosen, untested, 0.0
    parts = [(spread_of(scores) ** 2 / len(scores), len(scores) - 1) for scores in sides]
    error = math.sqrt(sum(part for part, _ in parts))
    below = sum(part**2 / free for part, free in parts)
    freedom = max(1, int(error**4 / below)) if below > 0 else 1
    gain = Gain(gain=untested.gain, seeds=0, error=error, freedom=freedom)
    return chosen, gain, critical(len(new), freedom, level)


def _untested(base: Config, new: Sequence[Config], sign: float, seeds: int) -> tuple[Config, Gain, float]:
    chosen = max(new, key=lambda each: sign * mean_of(each.scores))
    gain = sign * (mean_of(chosen.scores) - mean_of(base.scores))
    return chosen, Gain(gain=gain, seeds=seeds), 0.0


def _lost(base: Config, new: Config) -> int:
    """Under how many seeds of the base the new config has failed: leaving these out would flatter it."""
    return len(new.failed & base.by_seed.keys() - new.by_seed.keys())


def _verdict(
    gain: Gain, low: float | None, high: float | None, lost: int
) -> tuple[Literal["better", "worse", "undecided"], str]:
    if low is None or high is None:
        return "undecided", f"fewer than {MIN_SEEDS} scores of both to compare"
    span = f"{show_number(gain.gain)} ({show_number(low)} to {show_number(high)})"
    if low > 0.0 and lost:
        return "undecided", f"better by {span}, but {lost} of its trials gave no score"
    if low > 0.0:
        return "better", f"better by {span}"
    return ("worse", f"worse: {span}") if high < 0.0 else ("undecided", f"not told from chance: {span}")


def _more(gain: Gain, count: int, level: float, new: Config) -> int | None:
    """The seeds that each side still needs; see `Comparison.more_seeds`."""
    now = gain.seeds or len(new.scores)
    if gain.error is None or gain.freedom is None or gain.gain == 0.0 or now < MIN_SEEDS:
        return None
    spread, per_seed = gain.error * math.sqrt(now), gain.freedom / (now - 1)
    freedom, needed = gain.freedom, MAX_SEEDS
    for _ in range(2):  # the factor depends on the number, and hardly so where that is large
        factor = critical(count, max(1, min(_MUCH, freedom)), level)
        needed = min(MAX_SEEDS, math.ceil(((factor + POWER) * spread / abs(gain.gain)) ** 2))
        freedom = int(per_seed * (needed - 1))
    return None if needed >= MAX_SEEDS else max(1, needed - now)
