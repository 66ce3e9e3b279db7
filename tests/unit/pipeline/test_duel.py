"""Gates with a budget of false promotions: a challenger is found, tested, promoted or given up."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from statistics import fmean
from typing import Any

import orjson
import pytest

from raysweep.outcome import GateOutcome, SweepOutcome
from raysweep.outcome.false_promotions import Account
from raysweep.pages.evidence import evidence_page, show_budget
from raysweep.pipeline import handed_on, prepare_gate, with_gate
from raysweep.pipeline.gate import GateRun
from raysweep.runs.across_runs import releases
from raysweep.runs.across_runs.champions import Line
from raysweep.runs.across_runs.evidence import read_chain
from raysweep.specs.approval import ApprovalSpec
from raysweep.specs.pipeline import GateSpec
from raysweep.storage.objects.opening import open_store
from tests.unit.pipeline.gates import champions, configs, gave, make_spec, swept

GATE = GateSpec(confirm_top_k=2, seeds=3, false_promotions_per_year=2)
DAY_S = 86400.0
NOISE = (0.0, 0.01, -0.004, 0.007, -0.011, 0.003, 0.002, -0.006)


def begin(storage: Path, name: str, *scores: float, gate: GateSpec = GATE, **more: Any) -> GateRun:
    return prepare_gate(make_spec(storage), swept(name, *scores), gate, **more)


def settle(prepared: GateRun, shift: float = 0.0) -> GateOutcome:
    """Each config scores its x, the level of the seed, and a little noise of its own."""
    assert prepared.plan is not None
    ran = configs(prepared)
    scores = [
        config["x"] + shift + seed / 10 + NOISE[(3 * seed + 5 * place) % len(NOISE)]
        for seed in range(prepared.plan.seeds)
        for place, config in enumerate(ran)
    ]
    return prepared.settle(gave(prepared, *scores))


def night(storage: Path, name: str, *scores: float, **more: Any) -> GateOutcome:
    return settle(begin(storage, name, *scores, **more))


@pytest.fixture
def days(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The time of the gates: each is a day after the one before."""
    clock = {"now": 1_790_000_000.0}

    def time() -> float:
        clock["now"] += DAY_S
        return clock["now"]

    monkeypatch.setattr("raysweep.pipeline.gate.time.time", time)
    return clock


def uses(verdicts: list[GateOutcome]) -> list[str]:
    found = []
    for each in verdicts:
        assert each.budget is not None
        found.append(each.budget.ended or ("found" if each.budget.found is not None else ""))
    return found


def test_a_better_config_is_found_then_tested_alone_then_promoted(tmp_path: Path, days: Any) -> None:
    first = night(tmp_path, "n1", 0.5)
    assert (first.promoted, first.budget) == (True, None), "there was nothing to beat"
    found = night(tmp_path, "n2", 0.52, 0.4)
    assert not found.promoted
    assert "the next gate tests it as the challenger; 0 of 2 false promotions a year are spent; " in found.why
    assert found.why.endswith("promotes it in the next gate")

    prepared = begin(tmp_path, "n3", 0.9, 0.3)
    assert configs(prepared) == [{"x": 0.52}, {"x": 0.5}], "tonight's candidates wait"
    assert prepared.plan is not None
    assert prepared.plan.seeds == 4, "as many runs as with two candidates: 3 configs, 3 seeds"
    verdicts = [settle(prepared)]
    while not verdicts[-1].promoted:
        assert verdicts[-1].budget is not None
        assert verdicts[-1].budget.ended == "kept"
        verdicts.append(night(tmp_path, f"m{len(verdicts)}", 0.9, 0.3))
    assert len(verdicts) <= 4
    last = verdicts[-1]
    assert last.budget is not None
    assert last.budget.level * last.budget.e_value >= 1
    assert last.common_seeds == 4 * len(verdicts)
    assert "promoted: the challenger (trial 00000, night of n2) is 0.02" in last.why
    kept = [each.why for each in verdicts[:-1]]
    assert all(re.search(r"; a gain of 0\.\d+ promotes it in the next gate$", why) for why in kept)
    record = champions(tmp_path)
    assert record.champion is not None
    assert (record.champion.config, record.champion.trial_id) == ({"x": 0.52}, "n2/00000")
    assert record.account.spent == pytest.approx(last.budget.spent)
    assert record.account.challenger is None


def test_the_challenger_is_what_is_handed_on_to_the_training(tmp_path: Path, days: Any) -> None:
    night(tmp_path, "n1", 0.5)
    night(tmp_path, "n2", 0.55, 0.4)
    for number in range(4):
        outcome: SweepOutcome = swept(f"n{number + 3}", 0.9, 0.3)
        verdict = settle(prepare_gate(make_spec(tmp_path), outcome, GATE))
        if verdict.promoted:
            break
    best = handed_on(with_gate(outcome, verdict)).best
    assert best is not None
    assert (best.trial_id, best.config) == ("n2/00000", {"x": 0.55}), "not tonight's trial of that number"


def test_a_challenger_that_was_luck_is_given_up_and_costs_a_part_of_its_stake(
    tmp_path: Path, days: Any
) -> None:
    night(tmp_path, "n1", 0.5)
    night(tmp_path, "n2", 0.52, 0.4)
    prepared = begin(tmp_path, "n3", 0.4)
    ran = configs(prepared)
    scores = [
        (0.5 if config["x"] == 0.5 else 0.495) + seed / 10 + NOISE[(3 * seed + 5 * place) % len(NOISE)]
        for seed in range(4)
        for place, config in enumerate(ran)
    ]
    verdict = prepared.settle(gave(prepared, *scores))
    assert uses([verdict]) == ["dropped"]
    assert "it is given up" in verdict.why
    account = champions(tmp_path).account
    assert 0 < account.spent < 0.2
    assert configs(begin(tmp_path, "n4", 0.4)) == [{"x": 0.4}, {"x": 0.5}]


def test_a_challenger_that_fails_or_scores_nothing_is_given_up(tmp_path: Path, days: Any) -> None:
    night(tmp_path, "n1", 0.5)
    night(tmp_path, "n2", 0.52, 0.4)
    prepared = begin(tmp_path, "n3", 0.4)
    scores = [None if config["x"] == 0.52 else 0.5 for _ in range(4) for config in configs(prepared)]
    verdict = prepared.settle(gave(prepared, *scores))
    assert uses([verdict]) == ["dropped"]
    assert "have no common seed; it is given up" in verdict.why


def test_two_gates_at_once_use_one_account(tmp_path: Path, days: Any) -> None:
    night(tmp_path, "n1", 0.5)
    night(tmp_path, "n2", 0.506, 0.4)
    slow, fast = begin(tmp_path, "n3", 0.4), begin(tmp_path, "n4", 0.4)
    both = [settle(fast), settle(slow)]
    assert [each.common_seeds for each in both] == [4, 8], "the second knows the seeds of the first"
    first, second = (each.budget for each in both)
    assert first is not None
    assert second is not None
    assert second.level > first.level * first.e_value, "the stake of the first, and what is put on top"
    assert both[1].improvement == pytest.approx(fmean(first.differences + second.differences))


def test_of_two_gates_that_look_at_once_the_first_challenger_is_tested(tmp_path: Path, days: Any) -> None:
    night(tmp_path, "n1", 0.5)
    slow, fast = begin(tmp_path, "n2", 0.53, 0.3), begin(tmp_path, "n3", 0.52, 0.4)
    assert uses([settle(fast), settle(slow)]) == ["found", ""]
    challenger = champions(tmp_path).account.challenger
    assert challenger is not None
    assert challenger.sweep_id == "n3"


def test_a_gate_whose_champion_was_replaced_meanwhile_promotes_nothing(tmp_path: Path, days: Any) -> None:
    night(tmp_path, "n1", 0.5)
    late = begin(tmp_path, "n2", 0.8)
    assert night(tmp_path, "n3", 0.6, gate=GateSpec(confirm_top_k=1)).promoted
    verdict = settle(late)
    assert not verdict.promoted
    assert "the champion was replaced meanwhile" in verdict.why
    assert uses([verdict]) == [""]


def test_a_rollback_ends_the_test_and_refunds_nothing_that_was_lost(tmp_path: Path, days: Any) -> None:
    store, line = open_store(str(tmp_path)), Line(name="flights", metric="auc", mode="max")
    night(tmp_path, "n1", 0.5)
    night(tmp_path, "n2", 0.55, 0.4)
    number = 3
    while not night(tmp_path, f"n{number}", 0.3).promoted:
        number += 1
    spent = champions(tmp_path).account.spent
    night(tmp_path, "r1", 0.6, 0.3)
    assert champions(tmp_path).account.challenger is not None
    releases.roll_back(store, line, by="ann", why="bad on Mondays")
    prepared = begin(tmp_path, "r2", 0.4)
    assert configs(prepared) == [{"x": 0.4}, {"x": 0.5}], "the challenger was another champion's"
    settle(prepared)
    account = champions(tmp_path).account
    assert account.challenger is None
    assert account.spent == pytest.approx(spent)


def test_a_removed_sweep_takes_nothing_from_the_account(tmp_path: Path, days: Any) -> None:
    night(tmp_path, "n1", 0.5)
    night(tmp_path, "n2", 0.52, 0.4)
    before = champions(tmp_path).account
    shutil.rmtree(tmp_path / "n2")
    assert champions(tmp_path).account == before
    assert configs(begin(tmp_path, "n3", 0.4))[0] == {"x": 0.52}


def test_approval_waits_for_what_the_budget_has_promoted(tmp_path: Path, days: Any) -> None:
    approval = ApprovalSpec(timeout=10 * 365 * DAY_S)
    night(tmp_path, "n1", 0.5)
    night(tmp_path, "n2", 0.55, 0.4)
    verdicts = [night(tmp_path, f"n{number}", 0.3, approval=approval) for number in (3, 4, 5)]
    waiting = [each for each in verdicts if each.is_waiting]
    assert uses(waiting) == ["promoted"]
    account = champions(tmp_path).account
    assert account.spent > 0


def test_the_evidence_has_what_a_decision_follows_from(tmp_path: Path, days: Any) -> None:
    night(tmp_path, "n1", 0.5)
    night(tmp_path, "n2", 0.506, 0.4)
    night(tmp_path, "n3", 0.4)
    store, line = open_store(str(tmp_path)), Line(name="flights", metric="auc", mode="max")
    assert read_chain(store, line).flaws == ()
    entries = read_chain(store, line).entries
    use = entries[2].facts.verdict.budget if entries[2].facts is not None else None
    assert use is not None
    assert (use.ended, len(use.differences)) == ("kept", 4)


def test_of_a_use_that_does_not_follow_the_chain_says_what(
    tmp_path: Path, days: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    night(tmp_path, "n1", 0.5)
    night(tmp_path, "n2", 0.52, 0.4)
    tested = Account.tested

    def generous(self: Account, differences: Any) -> tuple[Account, float]:
        account, e_value = tested(self, differences)
        return account, 100 * e_value

    with monkeypatch.context() as patch:  # a gate whose program counts its evidence a hundredfold
        patch.setattr(Account, "tested", generous)
        night(tmp_path, "n3", 0.4)
    store, line = open_store(str(tmp_path)), Line(name="flights", metric="auc", mode="max")
    [flaw] = read_chain(store, line).flaws
    assert "e-value" in flaw.problem
    assert "follow" in flaw.problem


def test_what_is_spent_and_which_gain_would_do_are_shown(tmp_path: Path, days: Any) -> None:
    store, line = open_store(str(tmp_path)), Line(name="flights", metric="auc", mode="max")
    night(tmp_path, "n1", 0.5)
    night(tmp_path, "n2", 0.506, 0.4)
    verdict = night(tmp_path, "n3", 0.4)
    account = champions(tmp_path).account
    gain = account.needed_gain()
    assert gain is not None
    shown = show_budget(account, account.at)
    assert shown.startswith("0 of 2 false promotions a year are spent; a gain of 0.0")
    assert "promotes the challenger, x=0.506 (night of n2)" in shown
    chain = read_chain(store, line)
    page = evidence_page(line, chain, chain.entries[-1:])
    assert "The budget: 0 of 2 false promotions a year" in page
    assert verdict.budget is not None
    assert f"level {verdict.budget.level:.6g}, e-value {verdict.budget.e_value:.6g}" in page


def test_without_a_budget_a_gate_is_as_it_was(tmp_path: Path) -> None:
    gate = GateSpec(confirm_top_k=1)
    assert night(tmp_path, "n1", 0.5, gate=gate).promoted
    verdict = night(tmp_path, "n2", 0.6, gate=gate)
    assert (verdict.promoted, verdict.budget) == (True, None)
    assert champions(tmp_path).account == Account()


def test_a_stored_verdict_keeps_what_was_used(tmp_path: Path, days: Any) -> None:
    night(tmp_path, "n1", 0.5)
    verdict = night(tmp_path, "n2", 0.52, 0.4)
    assert GateOutcome.from_json(verdict.to_json()) == verdict
    assert orjson.loads(verdict.to_json())["budget"]["per_year"] == 2
