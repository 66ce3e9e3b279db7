"""The account of false promotions of a line of champions, and what one gate used of it. Pure, without I/O.

A test that is wrong in 7 % of the nights promotes 26 configs a year that are no better than the champion.
Here a number of false promotions a year is a budget that tests bet with:

- **Income.** The budget accrues with time, however unequal the nights. What is not used is kept, up to a
  twelfth of a year's: of any 365 days no more than the budget can be lost.
- **A challenger** is the night's best config that looks better than the champion. From the next gate on, the
  two alone run again, with as many runs as a gate has. The night that found it does not count: it was chosen
  by its luck.
- **The stake.** Part of the balance is put on the challenger each night, the more the better it looks. It is
  multiplied by the night's e-value (`numeric/t_ratio.py`), and where it reaches 1 the challenger is promoted:
  that costs the whole stake. One that is given up brings back what is left, never more than was put on it.

An e-value is 1 on average where nothing is better, so the stakes that reach 1 without reason are at most what
was lost: on average no more false promotions than the budget, at every horizon, however the nights depend on
one another. It is alpha-spending (K. K. G. Lan, D. L. DeMets, Biometrika 70, 1983) for an unknown number of
tests (D. P. Foster, R. A. Stine, JRSS B 70, 2008), with the wealth of a betting game as the level (G. Shafer,
JRSS A 184, 2021; A. Ramdas, P. Grünwald, V. Vovk, G. Shafer, Statistical Science 38, 2023).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Final, Literal

from raysweep.documents.json_numbers import Number
from raysweep.numeric.means import spread_of
from raysweep.numeric.t_ratio import log_evidence
from raysweep.outcome.record import Record

YEAR_S: Final = 365 * 86400.0
KEPT: Final = 1 / 12
"""The part of a year's budget that is kept at most, and is there on the first night."""
PRIOR: Final = 0.1
"""The odds, before any evidence, that a challenger is better: how much is put on it."""
SHARE: Final = 1 / 30
"""Of the balance, what a test by p-values spends a night."""
_FINEST: Final = 1.05
_TRIED: Final = 150

Ended = Literal["", "promoted", "kept", "dropped"]


class Challenger(Record):
    """A config that a gate found better than the champion, until more nights have told."""

    config: dict[str, Any]
    sweep_id: str
    """The sweep that found it."""
    key: str = ""
    trial_id: str = ""
    evidence: Number = 0.0
    """The logarithm of the likelihood ratio of the night that found it."""
    noise: Number = 0.0
    """The standard deviation of its differences from the champion in that night."""

    @property
    def identity(self) -> tuple[str, str]:
        """Its sweep and its trial."""
        return self.sweep_id, self.trial_id


class BudgetUse(Record):
    """A gate's use of the budget of false promotions, and the facts of its decision."""

    per_year: Number
    """The budget."""
    challenger: Challenger | None = None
    """Tested in this gate; None: the gate looked for one."""
    differences: tuple[Number, ...] = ()
    """Its scores less the champion's in this gate, by seed; positive is better."""
    level: Number = 0.0
    """The stake: false promotions that the gate risked."""
    e_value: Number = 1.0
    """The evidence of this gate; the challenger is promoted where level times e_value is at least 1."""
    seeds: int = 0
    """The number of seeds with which a challenger is tested in a gate."""
    ended: Ended = ""
    """Of the challenger: `kept` is tested again in the next gate."""
    found: Challenger | None = None
    """Tested from the next gate on."""
    spent: Number = 0.0
    """False promotions that were risked and lost in the 365 days up to this gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A champion line's account of its budget, after some of its gates."""

    per_year: float = 0.0
    """0 before the first gate with a budget."""
    at: float = 0.0
    """Of the newest night, in UTC seconds."""
    balance: float = 0.0
    losses: tuple[tuple[float, float], ...] = ()
    """Of the last 365 days: when, and how much."""
    challenger: Challenger | None = None
    against: tuple[str, float] | None = None
    """The champion that it is tested against, by its `identity`."""
    differences: tuple[float, ...] = ()
    """Of all gates that have tested it."""
    staked: float = 0.0
    """The stake on it."""
    value: float = 0.0
    """The present value of that stake."""
    seeds: int = 0
    """The number of seeds with which the next gate tests it."""

    @property
    def spent(self) -> float:
        """The losses of the last 365 days."""
        return math.fsum(lost for _, lost in self.losses)

    @property
    def evidence(self) -> float:
        """The logarithm of the challenger's evidence, that of the night that found it included."""
        found = self.challenger.evidence if self.challenger is not None else 0.0
        return found + log_evidence(self.differences)

    @property
    def error(self) -> float | None:
        """The standard error of the challenger's gain."""
        count = len(self.differences)
        return spread_of(self.differences) / math.sqrt(count) if count > 1 else None

    def opened(self, at: float, per_year: float, champion: tuple[str, float] | None) -> Account:
        """Before a gate: with the income since the last one; a challenger of another champion is given up.

        Args:
            at: When, in UTC seconds; a clock that went back brings no income.
            per_year: The budget tonight.
            champion: Against which the gate compares, by its `identity`.
        """
        most = per_year * KEPT
        now, income = max(at, self.at), per_year * (1 - KEPT) * max(0.0, at - self.at) / YEAR_S
        if not self.per_year:
            income = most
        room = max(0.0, most - self.balance - self.staked)
        account = replace(
            self,
            per_year=per_year,
            at=now,
            balance=self.balance + min(income, room),
            losses=tuple(each for each in self.losses if each[0] > now - YEAR_S),
        )
        return account.ended() if account.against != champion else account

    def staking(self) -> Account:
        """With tonight's stake on the challenger: its `value` is the level of the gate."""
        if self.challenger is None:
            return self
        more = self.balance / (1 + math.exp(min(700.0, -self.evidence)) / PRIOR)
        return replace(self, balance=self.balance - more, staked=self.staked + more, value=self.value + more)

    def tested(self, differences: Sequence[float]) -> tuple[Account, float]:
        """After a gate gave these differences from the champion; and the e-value of the gate."""
        known = (*self.differences, *differences)
        e_value = math.exp(min(700.0, log_evidence(known) - log_evidence(self.differences)))
        return replace(self, differences=known, value=self.value * e_value), e_value

    def ended(self, *, is_promoted: bool = False) -> Account:
        """Without the challenger: a promotion costs its stake, else what is left of it comes back."""
        back = 0.0 if is_promoted else min(self.value, self.staked)
        account = self._losing(self.staked - back)
        return replace(
            account,
            balance=self.balance + back,
            challenger=None,
            against=None,
            differences=(),
            staked=0.0,
            value=0.0,
        )

    def finding(self, challenger: Challenger, champion: tuple[str, float] | None) -> Account:
        """With this challenger, which the next gate tests."""
        return replace(self.ended(), challenger=challenger, against=champion)

    def after(self, use: BudgetUse, at: float, champion: tuple[str, float] | None) -> Account:
        """After a gate that used the budget so: how the account is a fold of the line's gates.

        Args:
            use: As it is stored.
            at: When the gate decided.
            champion: Before the gate.
        """
        account = replace(self.opened(at, use.per_year, champion), seeds=use.seeds)
        if use.challenger is not None:
            account = account.staking().tested(use.differences)[0]
            if use.ended != "kept":
                account = account.ended(is_promoted=use.ended == "promoted")
        return account.finding(use.found, champion) if use.found is not None else account

    def flaw_of(self, use: BudgetUse, at: float, champion: tuple[str, float] | None) -> str:
        """The flaw of a stored use against what follows from this account, before it; empty: none."""
        account = self.opened(at, use.per_year, champion)
        if use.challenger is not None:
            if account.challenger is None or account.challenger != use.challenger:
                return "tests another challenger than the line has"
            account = account.staking()
            level = account.value
            account, e_value = account.tested(use.differences)
            if not _are_close((level, use.level), (e_value, use.e_value)):
                return (
                    f"has level {use.level:g} and e-value {use.e_value:g}: {level:g} and {e_value:g} follow"
                )
            if use.ended == "promoted" and account.value < 1:
                return "promotes a challenger whose level times e-value is below 1"
        spent = self.after(use, at, champion).spent
        return "" if _are_close((spent, use.spent)) else f"has spent {use.spent:g}: {spent:g} follows"

    def level(self) -> float:
        """Of a test by a p-value that has no challenger: a share of the balance, to be paid by `paying`."""
        return self.balance * SHARE

    def paying(self, level: float) -> Account:
        """After such a test, whatever came out."""
        return replace(self._losing(level), balance=self.balance - level)

    def needed_gain(self) -> float | None:
        """The gain, in the metric's unit, with which the challenger would be promoted by the next gate.

        By the noise that its differences had so far. None: no gain would do, or there is no challenger.
        """
        if self.challenger is None or self.seeds < 2:
            return None
        account = self.staking()
        noise = _spread(self.differences) or self.challenger.noise
        pattern = _centred(self.seeds)
        gain = noise / 100 or max(abs(fmean(self.differences or (0.0,))) / 100, 1e-9)
        for _ in range(_TRIED):
            tonight = tuple(gain + noise * each for each in pattern)
            if account.tested(tonight)[0].value >= 1:
                return gain
            gain *= _FINEST
        return None

    def _losing(self, lost: float) -> Account:
        return replace(self, losses=(*self.losses, (self.at, lost))) if lost > 0 else self


def level_tonight(earlier: Iterable[float], per_year: float, at: float) -> float:
    """The level of a test by a p-value, with earlier tests of the same kind: together they keep the budget.

    Args:
        earlier: When these tests were made, in UTC seconds, in their order, whatever came out.
        per_year: The budget of false promotions.
        at: Tonight.
    """
    account = Account()
    for when in earlier:
        account = account.opened(when, per_year, None)
        account = account.paying(account.level())
    return account.opened(at, per_year, None).level()


def differences_of(
    challenger: Sequence[float | None], champion: Sequence[float | None], mode: str
) -> tuple[float, ...]:
    """By seed, of those that both have a score of; positive where the challenger is better."""
    sign = 1.0 if mode == "max" else -1.0
    pairs = zip(challenger, champion, strict=False)
    gains = (sign * (mine - theirs) for mine, theirs in pairs if mine is not None and theirs is not None)
    return tuple(each for each in gains if math.isfinite(each))


def _are_close(*pairs: tuple[float, float]) -> bool:
    return all(math.isclose(*pair, rel_tol=1e-6, abs_tol=1e-9) for pair in pairs)


def _spread(values: Sequence[float]) -> float:
    return spread_of(values) if len(values) > 1 else 0.0


def _centred(count: int) -> list[float]:
    """Evenly spaced numbers with mean 0 and standard deviation 1."""
    places = [place - (count - 1) / 2 for place in range(count)]
    return [place / _spread(places) for place in places]
