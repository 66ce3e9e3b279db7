"""The state of a line of champions, from its events. Pure functions: events in, the line as it stands out.

| event | champion | nights | models |
|---|---|---|---|
| `judged` | put on the one before, if it has one | added, with the account of false promotions | |
| `approved` | the candidate, at the time of the decision | decided | that of its judgement |
| `rejected` | | decided | |
| `model judged` | the candidate, where it passed and waits for no approval | judged | the judged one |
| `trained` | | has the score and its prediction | |
| `rolled back` | back to it, where it is in the stack; else put on top | those above it are undone | |
| `model` | | | added |
| `registered` | | | what the registry has |

A candidate that is to be judged is champion only then: what is champion is released.
A sweep's champion takes the place of an earlier one of the same sweep. Nothing is cut off: a candidate waits
until it is decided on, however many nights follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from raysweep.outcome import Decision, GateOutcome, Undone
from raysweep.outcome.false_promotions import Account, BudgetUse, differences_of
from raysweep.runs.across_runs.events import (
    Approved,
    Event,
    Judged,
    ModelJudged,
    ModelMade,
    ModelRegistered,
    RolledBack,
    Stored,
    Trained,
    facts_of,
)
from raysweep.runs.across_runs.records import (
    Champion,
    ChampionRecord,
    Evidence,
    Line,
    Model,
    Night,
    Registered,
    identity_of,
    release_id,
)


def fold(stored: Iterable[Stored]) -> ChampionRecord:
    """The line after these events."""
    standing = _Standing()
    for each in stored:
        standing.add(each)
    return standing.record()


def evidence_of(stored: Iterable[Stored]) -> Iterator[Evidence]:
    """Each decision, with the champion before and after it; events about models and registries are none."""
    return map(_entry, _steps(stored))


def budget_flaws(stored: Iterable[Stored]) -> Iterator[tuple[Stored, str]]:
    """Each gate whose use of the budget does not follow from the gates before it and its own scores."""
    standing = _Standing()
    for each in stored:
        problem = standing.budget_flaw(each)
        if problem:
            yield each, problem
        standing.add(each)


def _is_measured(use: BudgetUse, verdict: GateOutcome, mode: str) -> bool:
    if use.challenger is None or verdict.best is None or verdict.champion is None:
        return not use.differences
    return use.differences == differences_of(verdict.best.scores, verdict.champion.scores, mode)


def last_change(stored: Iterable[Stored]) -> Evidence | None:
    """The newest decision that changed the champion."""
    newest = None
    for step in _steps(stored):
        newest = step if step.before != step.after else newest
    return _entry(newest) if newest is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A decision. `previous`: the stem of the one before it; `key`: of its night."""

    number: int
    stored: Stored
    previous: str
    before: Champion | None
    after: Champion | None
    key: str


def _steps(stored: Iterable[Stored]) -> Iterator[_Step]:
    standing, number, previous = _Standing(), 0, ""
    for each in stored:
        before = standing.top
        standing.add(each)
        if isinstance(each.event, Judged | Approved | ModelJudged | Trained | RolledBack):
            number += 1
            key = standing.key_of(each.event)
            yield _Step(
                number=number, stored=each, previous=previous, before=before, after=standing.top, key=key
            )
            previous = each.stem


class _Standing:
    """Champions, nights and models while the events are gone through."""

    def __init__(self) -> None:
        self._line: Line | None = None
        self._stack: list[Champion] = []
        self._is_rolled_back = False
        self._known: dict[tuple[str, float], Champion] = {}
        self._nights: dict[tuple[str, str], Night] = {}
        self._undone: dict[str, Undone] = {}
        self._models: dict[str, Model] = {}
        self._registered: Registered | None = None
        self._account = Account()

    @property
    def top(self) -> Champion | None:
        """The champion, without the one before it."""
        return self._stack[-1] if self._stack else None

    def key_of(self, event: Judged | Approved | ModelJudged | Trained | RolledBack) -> str:
        """The key of the night that a decision is about."""
        if isinstance(event, Approved | ModelJudged | Trained):
            night = self._nights.get((event.sweep_id, event.gate))
            return night.key if night is not None else ""
        return event.night.key if isinstance(event, Judged) else event.champion.key

    def add(self, stored: Stored) -> None:
        """Take the next event in."""
        self._line, event = stored.line, stored.event
        match event:
            case Judged():
                self._use_budget(event.night)
                self._add_night(event.night)
                if event.champion is not None:
                    self._promote(event.champion)
            case Approved():
                self._decide(event)
            case ModelJudged():
                self._judge(event)
            case Trained():
                self._train(event)
            case RolledBack():
                self._roll_back(event)
            case ModelMade():
                self._models[event.release] = event.model
            case ModelRegistered():
                self._registered = event.registered

    def record(self) -> ChampionRecord:
        """The present state of the line."""
        return ChampionRecord(
            line=self._line,
            stack=tuple(self._stack),
            is_rolled_back=self._is_rolled_back,
            known=MappingProxyType(dict(self._known)),
            history=tuple(self._nights.values()),
            undone=MappingProxyType(dict(self._undone)),
            models=MappingProxyType(dict(self._models)),
            registered=self._registered,
            account=self._account,
        )

    def budget_flaw(self, stored: Stored) -> str:
        """The flaw in the next event's use of the budget; empty: there is none."""
        event = stored.event
        if not isinstance(event, Judged) or event.night.budget is None:
            return ""
        night, use, facts = event.night, event.night.budget, facts_of(event)
        if facts is not None and facts.verdict.budget != use:
            return "has another use of the budget than its verdict"
        if facts is not None and not _is_measured(use, facts.verdict, stored.line.mode):
            return "has differences that are not those of its scores"
        return self._account.flaw_of(use, night.at, identity_of(self._beside(night.sweep_id)))

    def _beside(self, sweep_id: str) -> Champion | None:
        return next((each for each in reversed(self._stack) if each.sweep_id != sweep_id), None)

    def _use_budget(self, night: Night) -> None:
        """A gate without a budget leaves the account as it is; a new champion is noticed by the next."""
        if night.budget is not None:
            champion = identity_of(self._beside(night.sweep_id))
            self._account = self._account.after(night.budget, night.at, champion)

    def _add_night(self, night: Night) -> None:
        place = (night.sweep_id, night.gate)
        self._nights.pop(place, None)
        self._nights[place] = night

    def _decide(self, event: Approved) -> None:
        night, decision = self._nights.get((event.sweep_id, event.gate)), event.decision
        if night is None or night.waiting is None:
            return  # its verdict is damaged: the evidence names it
        if night.judgement is not None:  # of the model, which passed
            self._add_night(night.model_copy(update={"decision": decision}))
            if decision.approved:
                self._release(night, decision.at)
            return
        self._add_night(night.model_copy(update={"decision": decision, "promoted": decision.approved}))
        if decision.approved and night.to_judge is None:
            self._promote(proposed_at(night.waiting.proposed, decision))

    def _judge(self, event: ModelJudged) -> None:
        night, judgement = self._nights.get((event.sweep_id, event.gate)), event.judgement
        if night is None or night.to_judge is None:
            return  # its verdict is damaged: the evidence names it
        update: dict[str, Any] = {"judgement": judgement}
        if event.waiting is not None:
            update |= {"waiting": event.waiting, "decision": None}
        night = night.model_copy(update=update)
        self._add_night(night)
        if judgement.is_passed and event.waiting is None:
            self._release(night, judgement.at)

    def _train(self, event: Trained) -> None:
        """In its place: it decides nothing."""
        place = (event.sweep_id, event.gate)
        if place in self._nights:  # else its verdict is damaged: the evidence names it
            update = {"predicted": event.predicted, "trained": event.run_id}
            self._nights[place] = self._nights[place].model_copy(update=update)

    def _release(self, night: Night, at: float) -> None:
        """Make the candidate of a night champion, with the model that was judged."""
        assert night.to_judge is not None
        assert night.judgement is not None
        self._add_night(self._nights[night.sweep_id, night.gate].model_copy(update={"has_released": True}))
        champion, judged = night.to_judge.model_copy(update={"at": at}), night.judgement.model
        release = release_id(champion.line, champion.sweep_id, at)
        self._models[release] = Model(
            source=judged.uri,
            run_id=judged.run_id,
            carried=judged.carried,
            predicted=judged.predicted,
            digest=judged.digest,
        )
        self._promote(champion)

    def _promote(self, champion: Champion) -> None:
        if self._stack and self._stack[-1].sweep_id == champion.sweep_id:
            # A sweep's own champion does not stand under its next one.
            self._stack.pop()
        self._is_rolled_back = False
        self._put(champion)

    def _roll_back(self, event: RolledBack) -> None:
        undone = Undone(by=event.by, at=event.at, why=event.why)
        places = [place for place, each in enumerate(self._stack) if each.identity == event.champion.identity]
        if places:
            gone = self._stack[places[-1] :]
            del self._stack[places[-1] :]
            self._undone |= {each.sweep_id: undone for each in gone}
        self._is_rolled_back = True
        self._put(event.champion)

    def _put(self, champion: Champion) -> None:
        self._stack.append(champion)
        self._known.setdefault(champion.identity, champion)
        self._undone.pop(champion.sweep_id, None)


def proposed_at(proposed: Champion, decision: Decision) -> Champion:
    """A candidate as champion: from the moment of the decision."""
    return proposed.model_copy(update={"at": decision.at})


def _entry(step: _Step) -> Evidence:
    event, line = step.stored.event, step.stored.line
    decision = event.decision if isinstance(event, Approved) else None
    return Evidence(
        **_told(event),
        number=step.number,
        entry=step.stored.stem,
        previous=step.previous,
        key=step.key,
        name=line.name,
        metric=line.metric,
        mode=line.mode,
        data=line.data,
        promoted=step.before != step.after,
        before=step.before,
        after=step.after,
        facts=facts_of(event),
        decision=decision,
        judgement=event.judgement if isinstance(event, ModelJudged) else None,
        predicted=event.predicted if isinstance(event, Trained) else None,
    )


def _told(event: Event) -> dict[str, Any]:
    """The fields of the evidence that an event has itself."""
    match event:
        case Judged(night=night):
            where = {"sweep_id": night.sweep_id, "gate": night.gate}
            return {"kind": "gate", "at": night.at, "by": event.by, "why": night.why, **where}
        case Approved(decision=decision):
            where = {"sweep_id": event.sweep_id, "gate": event.gate}
            return {"kind": "approval", "at": decision.at, "by": decision.by, "why": str(decision), **where}
        case ModelJudged(judgement=judged):
            where = {"sweep_id": event.sweep_id, "gate": event.gate}
            return {"kind": "judgement", "at": judged.at, "by": event.by, "why": judged.why, **where}
        case Trained():
            where = {"sweep_id": event.sweep_id, "gate": event.gate}
            return {"kind": "training", "at": event.at, "by": event.by, "why": str(event.predicted), **where}
        case RolledBack():
            told = {"kind": "rollback", "at": event.at, "by": event.by, "why": event.why}
            return {**told, "sweep_id": event.champion.sweep_id}
    raise TypeError(f"{event.kind} is no decision")
