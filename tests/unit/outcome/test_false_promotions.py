"""The account of false promotions: it never risks more than the budget, and follows the evidence."""

from __future__ import annotations

from statistics import stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.outcome.false_promotions import (
    KEPT,
    YEAR_S,
    Account,
    BudgetUse,
    Challenger,
    level_tonight,
)

DAY_S = 86400.0
CHAMPION = ("n0", 0.0)


def challenger(name: str = "n1", evidence: float = 1.0) -> Challenger:
    return Challenger(config={"x": 1}, sweep_id=name, trial_id="00000", evidence=evidence, noise=1.0)


def account_with(evidence: float = 1.0, nights: int = 1) -> Account:
    """An account with a challenger, some days after the first night."""
    account = Account(seeds=6).opened(0.0, 2.0, CHAMPION).finding(challenger(evidence=evidence), CHAMPION)
    for night in range(nights):
        account = account.opened(night * DAY_S, 2.0, CHAMPION)
    return account


# --- the budget


pauses = st.floats(min_value=0.0, max_value=90 * DAY_S)
differences = st.lists(st.floats(min_value=-3, max_value=3), min_size=2, max_size=6).map(tuple)
what = st.sampled_from(["promoted", "kept", "dropped", "look", "other champion"])
nights = st.lists(st.tuples(pauses, differences, what), max_size=60)


@given(nights, st.floats(min_value=0.1, max_value=20))
def test_what_is_lost_and_at_stake_never_exceeds_the_budget_at_any_horizon(
    found: list[tuple[float, tuple[float, ...], Any]], per_year: float
) -> None:
    account, at, champion, lost = Account(), 0.0, CHAMPION, []
    for number, (pause, values, ended) in enumerate(found):
        at += pause
        before = account
        if ended == "other champion":
            champion = (f"n{number}", at)
        opened = account.opened(at, per_year, champion)
        use = BudgetUse(per_year=per_year, seeds=6)
        if opened.challenger is None:
            if ended != "look":
                use = use.model_copy(update={"found": challenger(f"n{number}")})
        elif ended not in ("look", "other champion"):
            use = use.model_copy(
                update={"challenger": opened.challenger, "differences": values, "ended": ended}
            )
        account = account.after(use, at, champion)
        known = [loss for loss in account.losses if loss not in before.losses]
        lost += known
        total = sum(each for _, each in lost) + account.staked
        assert total <= per_year * (KEPT + (1 - KEPT) * at / YEAR_S) * (1 + 1e-9)
        assert account.spent + account.staked <= per_year * (1 + 1e-9), "nor in any 365 days"
        assert min(account.balance, account.staked, account.value) >= 0


@given(st.lists(pauses, max_size=80))
def test_levels_of_tests_by_p_values_keep_the_budget(found: list[float]) -> None:
    at, times, total = 0.0, [], 0.0
    for pause in found:
        at += pause
        level = level_tonight(times, 2.0, at)
        total += level
        times.append(at)
        assert level > 0
        assert total <= 2.0 * (KEPT + (1 - KEPT) * at / YEAR_S)


def test_nights_of_one_evening_share_the_income_of_a_day() -> None:
    one = Account().opened(0.0, 2.0, None).opened(DAY_S, 2.0, None)
    two = Account().opened(0.0, 2.0, None)
    for hour in range(24):
        two = two.opened(DAY_S * (hour + 1) / 24, 2.0, None)
    assert one.balance == pytest.approx(two.balance)
    assert one.opened(DAY_S / 2, 2.0, None).balance == one.balance, "a clock that goes back brings none"


def test_no_more_than_a_month_is_kept() -> None:
    account = Account().opened(0.0, 2.0, None)
    assert account.balance == pytest.approx(2.0 / 12)
    assert account.opened(5 * YEAR_S, 2.0, None).balance == pytest.approx(2.0 / 12)


# --- the evidence


@given(differences, st.floats(min_value=0, max_value=3))
def test_a_challenger_that_is_better_by_a_constant_has_no_less_evidence(
    values: tuple[float, ...], more: float
) -> None:
    account = account_with().staking()
    _, plain = account.tested(values)
    _, better = account.tested(tuple(each + more for each in values))
    assert better >= plain * (1 - 1e-6)


@given(st.floats(min_value=-5, max_value=5), st.floats(min_value=0, max_value=5))
def test_the_better_it_looked_the_more_is_put_on_it(evidence: float, more: float) -> None:
    assert account_with(evidence + more).staking().staked >= account_with(evidence).staking().staked


def test_a_promotion_costs_the_stake_and_a_challenger_given_up_what_it_has_lost() -> None:
    staked = account_with().staking()
    good, _ = staked.tested((1.0, 1.2, 0.9, 1.1))
    bad, _ = staked.tested((-1.0, 1.2, -0.9, 0.1))
    assert good.ended(is_promoted=True).spent == pytest.approx(staked.staked)
    assert good.ended().spent == 0.0
    assert good.ended().balance == pytest.approx(staked.balance + staked.staked), "no more than was put on it"
    assert bad.ended().spent == pytest.approx(staked.staked - bad.value)


def test_another_champion_ends_the_test_of_the_challenger() -> None:
    account = account_with().staking().tested((1.0, 1.1, 0.9))[0]
    after = account.opened(DAY_S, 2.0, ("n5", 7.0))
    assert after.challenger is None
    assert after.spent == 0.0
    assert after.differences == ()


def test_the_needed_gain_promotes_and_a_smaller_one_does_not() -> None:
    account = (
        account_with(evidence=3.0)
        .staking()
        .tested((0.3, -0.2, 0.5, 0.1, 0.4, -0.1))[0]
        .opened(DAY_S, 2.0, CHAMPION)
    )
    gain = account.needed_gain()
    assert gain is not None
    spread = [-1.336, -0.802, -0.267, 0.267, 0.802, 1.336]
    noise = stdev((0.3, -0.2, 0.5, 0.1, 0.4, -0.1))

    def value(mean: float) -> float:
        return account.staking().tested(tuple(mean + noise * each for each in spread))[0].value

    assert value(gain * 1.02) >= 1
    assert value(gain * 0.9) < 1
    assert Account().needed_gain() is None
    assert account_with(evidence=0.1).needed_gain() is None, "one gate alone is not enough"


# --- a stored use


def test_a_stored_use_follows_from_the_account_before_it() -> None:
    account = account_with()
    values = (1.0, 1.2, 0.9, 1.1)
    staked = account.opened(DAY_S, 2.0, CHAMPION).staking()
    after, e_value = staked.tested(values)
    use = BudgetUse(
        per_year=2.0,
        challenger=account.challenger,
        differences=values,
        level=staked.value,
        e_value=e_value,
        ended="kept",
        spent=after.spent,
    )
    assert account.flaw_of(use, DAY_S, CHAMPION) == ""
    for update, problem in (
        ({"level": 0.5}, "has level 0.5"),
        ({"e_value": 90.0}, "e-value 90: "),
        ({"ended": "promoted", "spent": staked.staked}, "below 1"),
        ({"spent": 1.0}, "has spent 1: 0 follows"),
        ({"challenger": challenger("n7")}, "another challenger"),
    ):
        assert problem in account.flaw_of(use.model_copy(update=update), DAY_S, CHAMPION)
