"""Approval: a candidate that passed is promoted by one decision, and by no other."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from raysweep.errors import SpecError
from raysweep.outcome import Decision, GateOutcome
from raysweep.pipeline.candidate import find_candidate
from raysweep.runs.across_runs import approvals
from raysweep.runs.across_runs.approvals import Decided, decide_night, settle_silence
from raysweep.runs.across_runs.champions import Night, read_champion
from raysweep.runs.across_runs.events import Judged
from raysweep.runs.across_runs.evidence import read_chain
from raysweep.runs.across_runs.line_journal import LineJournal
from raysweep.runs.across_runs.pins import find_pins
from raysweep.runs.across_runs.releases import roll_back
from raysweep.runs.across_runs.verdicts import read_verdict
from raysweep.specs.approval import ApprovalSpec
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from tests.unit.pipeline.gates import night
from tests.unit.runs.across_runs.nights import LINE, Hasty, event, events

HOURS = ApprovalSpec(timeout=4 * 3600)


def champion(store: Store) -> str:
    found = read_champion(store, LINE).champion
    return found.sweep_id if found is not None else ""


def yes(by: str = "ann") -> Decision:
    return Decision(approved=True, by=by, at=time.time(), note="looked at it")


def no(by: str = "bob") -> Decision:
    return Decision(approved=False, by=by, at=time.time())


def told(store: Store, waiting: GateOutcome, name: str) -> GateOutcome:
    found = read_verdict(store, name, waiting.gate_id)
    assert found is not None
    return found


@pytest.fixture
def waiting(tmp_path: Path) -> tuple[Store, GateOutcome]:
    """A night whose better candidate waits."""
    night(tmp_path, "n1", 0.5)
    return open_store(tmp_path), night(tmp_path, "n2", 0.9, approval=HOURS)


def test_what_passes_waits_and_is_champion_once_it_is_approved(waiting: tuple[Store, GateOutcome]) -> None:
    store, verdict = waiting
    assert (verdict.promoted, verdict.is_waiting, champion(store)) == (False, True, "n1")
    assert "waits for approval until" in verdict.why
    assert decide_night(store, LINE, "n2", verdict.gate_id) is None, "to look is not to decide"
    done = decide_night(store, LINE, "n2", verdict.gate_id, yes())
    assert done is not None
    assert (done.is_new, done.decision.by) == (True, "ann")
    found = told(store, verdict, "n2")
    assert (found.promoted, found.is_waiting, champion(store)) == (True, False, "n2")
    assert "approved by ann" in found.why
    entry = read_chain(store, LINE).entries[-1]
    assert (entry.kind, entry.by, entry.decision) == ("approval", "ann", done.decision)
    assert entry.before is not None
    assert entry.before.sweep_id == "n1"
    record = read_champion(store, LINE)
    assert record.champion is not None
    assert record.champion.replaced is not None
    assert (record.champion.at, record.champion.replaced.sweep_id) == (done.decision.at, "n1")
    assert roll_back(store, LINE).champion.sweep_id == "n1"
    assert read_chain(store, LINE).flaws == ()


def test_what_is_rejected_is_no_champion(waiting: tuple[Store, GateOutcome], tmp_path: Path) -> None:
    store, verdict = waiting
    decide_night(store, LINE, "n2", verdict.gate_id, no())
    found = told(store, verdict, "n2")
    assert (found.promoted, champion(store)) == (False, "n1")
    assert "rejected by bob" in found.why
    later = night(tmp_path, "n3", 0.6)
    assert later.champion is not None
    assert (later.champion.key, later.promoted) == ("n1", True)


def test_a_second_decision_is_told_the_first(waiting: tuple[Store, GateOutcome]) -> None:
    store, verdict = waiting
    first = decide_night(store, LINE, "n2", verdict.gate_id, yes())
    before = events(store)
    second = decide_night(store, LINE, "n2", verdict.gate_id, no())
    assert first is not None
    assert second is not None
    assert (second.is_new, second.decision) == (False, first.decision)
    assert events(store) == before
    assert night(Path(store.url), "n2", 0.9, approval=HOURS).promoted, "the gate, run again, says the same"


def test_of_many_at_once_one_decides(waiting: tuple[Store, GateOutcome]) -> None:
    store, verdict = waiting
    found: list[approvals.Decided | None] = []

    def decide(number: int) -> None:
        asked = (yes if number % 2 else no)(f"p{number}")
        found.append(decide_night(open_store(store.url), LINE, "n2", verdict.gate_id, asked))

    threads = [threading.Thread(target=decide, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    decisions = [each.decision for each in found if each is not None]
    assert len(decisions) == 8
    assert len({each.by for each in decisions}) == 1
    assert [each.is_new for each in found if each].count(True) == 1
    assert champion(store) == ("n2" if decisions[0].approved else "n1")
    assert [each.kind for each in read_chain(store, LINE).entries].count("approval") == 1


@pytest.mark.parametrize(("on_silence", "wanted"), [("reject", "n1"), ("promote", "n2")])
def test_silence_means_what_the_spec_says_and_a_later_decision_is_too_late(
    on_silence: str, wanted: str, tmp_path: Path
) -> None:
    store = open_store(tmp_path)
    night(tmp_path, "n1", 0.5)
    short = ApprovalSpec.model_validate({"timeout": 0.001, "on_silence": on_silence})
    verdict = night(tmp_path, "n2", 0.9, approval=short)
    time.sleep(0.01)
    done = decide_night(store, LINE, "n2", verdict.gate_id, no() if wanted == "n2" else yes())
    assert done is not None
    assert (done.decision.by, champion(store)) == ("silence", wanted)
    assert "by silence" in told(store, verdict, "n2").why


def test_the_next_night_settles_what_silence_decided(tmp_path: Path) -> None:
    night(tmp_path, "n1", 0.5)
    night(tmp_path, "n2", 0.9, approval=ApprovalSpec(timeout=0.001, on_silence="promote"))
    time.sleep(0.01)
    later = night(tmp_path, "n3", 0.7)
    assert later.champion is not None
    assert (later.champion.key, later.promoted) == ("n2", False)


def test_a_candidate_that_another_night_overtook_is_rejected(
    waiting: tuple[Store, GateOutcome], tmp_path: Path
) -> None:
    store, verdict = waiting
    assert night(tmp_path, "n3", 0.95).promoted
    done = decide_night(store, LINE, "n2", verdict.gate_id, yes())
    assert done is not None
    assert (done.decision.approved, done.decision.by, champion(store)) == (False, "raysweep", "n3")
    assert "the champion is now of n3" in done.decision.note


def test_a_rollback_while_it_waits_rejects_it(waiting: tuple[Store, GateOutcome], tmp_path: Path) -> None:
    store, _ = waiting
    night(tmp_path, "n3", 0.95)
    verdict = night(tmp_path, "n4", 0.99, approval=HOURS)
    roll_back(store, LINE)
    done = decide_night(store, LINE, "n4", verdict.gate_id, yes())
    assert done is not None
    assert (done.decision.approved, champion(store)) == (False, "n1")


def test_a_kill_before_the_copy_of_the_decision_is_mended(
    waiting: tuple[Store, GateOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, verdict = waiting

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(approvals, "keep_decision", die)
    with pytest.raises(KeyboardInterrupt):
        decide_night(store, LINE, "n2", verdict.gate_id, yes())
    monkeypatch.undo()
    assert champion(store) == "n2"
    assert night(Path(store.url), "n2", 0.9).promoted, "the gate, run again, sees the decision"


def test_the_checkpoint_of_a_candidate_that_waits_is_pinned(waiting: tuple[Store, GateOutcome]) -> None:
    store, verdict = waiting
    record = read_champion(store, LINE)
    [proposed] = record.proposed
    assert proposed.checkpoint_uri == f"{store.url}/n2/checkpoints/00000/3"
    assert find_pins(store)["n2/checkpoints/00000/3"] == ("waits for approval as the champion of 'flights'",)
    assert str(store.url) not in (store.get(event(2)) or b"").decode()
    decide_night(store, LINE, "n2", verdict.gate_id, no())
    assert "n2/checkpoints/00000/3" not in find_pins(store)


def test_nothing_waits_without_a_gate_that_asked(tmp_path: Path) -> None:
    verdict = night(tmp_path, "n1", 0.5)
    with pytest.raises(SpecError, match="nothing of 'n1' waits for approval"):
        decide_night(open_store(tmp_path), LINE, "n1", verdict.gate_id, yes())


def test_a_gate_that_promotes_nothing_asks_for_nothing(tmp_path: Path) -> None:
    night(tmp_path, "n1", 0.9)
    verdict = night(tmp_path, "n2", 0.5, approval=HOURS)
    assert (verdict.promoted, verdict.approval) == (False, None)


MANY = 400


@pytest.mark.parametrize("by", ["ann", "silence"])
def test_what_waits_is_approvable_after_any_number_of_nights(by: str, tmp_path: Path) -> None:
    store = open_store(tmp_path)
    night(tmp_path, "n0", 0.5)
    days = ApprovalSpec(timeout=3 * 86_400 if by == "ann" else 0.001, on_silence="promote")
    verdict = night(tmp_path, "waits", 0.9, approval=days)
    pinned = {"n0/checkpoints/00000/3", "waits/checkpoints/00000/3"}
    assert set(find_pins(store)) == pinned
    refuse(store, MANY)
    assert set(find_pins(store)) == pinned
    record = read_champion(store, LINE)
    assert len(record.history) == MANY + 2
    if by == "silence":
        settle_silence(store, LINE)
        assert (champion(store), told(store, verdict, "waits").promoted) == ("waits", True)
    else:
        done = decide_night(store, LINE, "waits", verdict.gate_id, yes())
        assert done is not None
        assert (done.is_new, champion(store)) == (True, "waits")
        assert decide_night(store, LINE, "waits", verdict.gate_id, no()) == Decided(
            decision=done.decision, is_new=False
        )
    assert read_champion(store, LINE).history[-1].sweep_id == "waits", "what is decided counts as the newest"
    assert read_chain(store, LINE).flaws == ()


def test_a_decision_of_long_ago_is_told_again(waiting: tuple[Store, GateOutcome]) -> None:
    store, verdict = waiting
    first = decide_night(store, LINE, "n2", verdict.gate_id, yes())
    assert first is not None
    refuse(store, 70)
    store.delete(f"n2/gates/{verdict.gate_id}/decision.json")
    again = decide_night(store, LINE, "n2", verdict.gate_id, no())
    assert again is not None
    assert (again.is_new, again.decision) == (False, first.decision)
    assert told(store, verdict, "n2").promoted, "the copy beside the verdict is there again"
    brief = {"uri": f"{store.url}/n2", "gate": verdict.model_dump(mode="json"), "why": verdict.why}
    candidate = find_candidate(brief)
    assert candidate is not None
    assert candidate.decide() == first.decision
    assert candidate.told(brief)["promoted"] is True


def refuse(store: Store, count: int) -> None:
    """So many nights that promote nothing, appended to the line as gates do."""
    journal = LineJournal(Hasty(store), LINE.path)
    journal.read()
    for number in range(count):
        journal.append(LINE, Judged(night=Night(sweep_id=f"later{number}", at=1.0, promoted=False)))
