"""What a line comes to, as properties of its events, whichever they are."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.outcome import Decision
from raysweep.runs.across_runs.champions import Champion, ChampionRecord, Night, Waiting
from raysweep.runs.across_runs.events import (
    Approved,
    Event,
    Judged,
    ModelMade,
    ModelRegistered,
    RolledBack,
    Stored,
    decode_event,
    encode_event,
)
from raysweep.runs.across_runs.folds import evidence_of, fold, last_change
from raysweep.runs.across_runs.records import Model, Registered
from tests.sampling import examples
from tests.unit.runs.across_runs.nights import LINE

Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("promoted", "refused", "waits", "approved", "rejected", "back", "model", "alias")),
        st.integers(0, 5),
    ),
    max_size=30,
)
URL = "memory://here"


def champion(sweep: int, at: float) -> Champion:
    return Champion(
        name=LINE.name, metric=LINE.metric, mode=LINE.mode, config={"x": sweep}, mean=0.5, spread=0.0, n=3,
        sweep_id=f"n{sweep}", checkpoint_uri=f"{URL}/n{sweep}/checkpoints/00000/1", at=at,
    )  # fmt: skip


def made(step: Step, at: float, record: ChampionRecord) -> Event | None:
    """The event of a step, as the writers make it; None: they would write none."""
    what, sweep = step
    night = Night(sweep_id=f"n{sweep}", gate=f"g{at}", at=at, promoted=what == "promoted")
    match what:
        case "promoted":
            return Judged(night=night, champion=champion(sweep, at))
        case "refused":
            return Judged(night=night)
        case "waits":
            waiting = Waiting(proposed=champion(sweep, at), until=1e9, on_silence="reject")
            return Judged(night=night.model_copy(update={"waiting": waiting}))
        case "approved" | "rejected":
            waits = [each for each in record.history if each.is_waiting]
            if not waits:
                return None
            about = waits[sweep % len(waits)]
            decision = Decision(approved=what == "approved", by="ann", at=at)
            kind = "approved" if decision.approved else "rejected"
            return Approved(kind=kind, sweep_id=about.sweep_id, gate=about.gate, decision=decision)
        case "back":
            known = list(record.known.values())
            return RolledBack(champion=known[sweep % len(known)], at=at, by="ann") if known else None
        case "model":
            return ModelMade(release=f"r{sweep}", model=Model(source=f"{URL}/n{sweep}/model"))
        case _:
            return ModelRegistered(registered=Registered(release=f"r{sweep}", version=str(at)))


def events_of(steps: Sequence[Step]) -> list[Stored]:
    """As they come out of a journal."""
    found: list[Stored] = []
    for at, step in enumerate(steps, start=1):
        event = made(step, float(at), fold(found))
        if event is not None:
            record = encode_event(URL, LINE, event, found[-1].digest if found else "")
            assert URL.encode() not in record
            found.append(decode_event(URL, len(found) + 1, record))
            assert found[-1].event == event
    return found


@settings(max_examples=examples(150), deadline=None)
@given(STEPS)
def test_what_a_line_comes_to(steps: list[Step]) -> None:
    events = events_of(steps)
    record, entries = fold(events), list(evidence_of(events))
    judged = [each.event for each in events if isinstance(each.event, Judged)]
    # Nothing is cut off: each gate is a night, and what was never decided waits still.
    assert {night.gate for night in record.history} == {each.night.gate for each in judged}
    decided = {each.event.gate for each in events if isinstance(each.event, Approved)}
    waiting = {each.night.gate for each in judged if each.night.waiting is not None} - decided
    assert {night.gate for night in record.history if night.is_waiting} == waiting
    # The evidence is a chain of champions, which leads to the one that there is.
    assert [each.number for each in entries] == [*range(1, len(entries) + 1)]
    befores = [None, *(each.after for each in entries)]
    assert [each.before for each in entries] == befores[:-1]
    assert befores[-1] == (record.stack[-1] if record.stack else None)
    assert last_change(events) == next((each for each in reversed(entries) if each.promoted), None)
    # No two neighbours of the stack are of one sweep, unless a rollback has put them so; all were champion.
    assert {each.identity for each in record.stack} <= set(record.known)
    if record.champion is not None:
        assert record.champion.sweep_id not in record.undone
        assert record.champion.replaced == (record.stack[-2] if len(record.stack) > 1 else None)
        beside = record.champion_beside("another")
        assert beside == record.champion


@settings(max_examples=examples(100), deadline=None)
@given(STEPS, st.integers(0, 30))
def test_a_fold_goes_on_where_another_ended(steps: list[Step], cut: int) -> None:
    """The nights of a part are those of the whole, as far as they were decided then."""
    events = events_of(steps)
    part, whole = fold(events[:cut]), fold(events)
    gates = [night.gate for night in whole.history]
    assert all(night.gate in gates for night in part.history)
    assert set(part.known) <= set(whole.known)
    assert (
        list(evidence_of(events[:cut])) == list(evidence_of(events))[: len(list(evidence_of(events[:cut])))]
    )


@settings(max_examples=examples(100), deadline=None)
@given(STEPS)
def test_a_rollback_to_the_one_before_undoes_the_newest_promotion(steps: list[Step]) -> None:
    events = events_of(steps)
    before = fold(events)
    if len(before.stack) < 2:
        return
    target = before.stack[-2]
    record = encode_event(URL, LINE, RolledBack(champion=target, at=99.0), events[-1].digest)
    after = fold([*events, decode_event(URL, len(events) + 1, record)])
    assert after.champion is not None
    assert after.champion.identity == target.identity
    assert after.is_rolled_back
    gone = before.stack[-1].sweep_id
    assert (gone in after.undone) == (gone != target.sweep_id)
