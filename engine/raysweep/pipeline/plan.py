"""Which gate this is, what it runs again, and where that and its verdict are kept.

A gate is named by what it judges and how: the best trials of the sweep's outcome, and its own settings with
the champion's name. The same gate of the same outcome, tried again, is the same; where the sweep has gone on
and found more, or something else is asked of its best, it is another one, beside the first.

    <sweep_id>/gates/<gate>/plan.json       what is run again, written once: the champion may change meanwhile
    <sweep_id>/gates/<gate>/verdict.json    what came out, written once

Sweeps of earlier versions had one gate: `gate-plan.json` and `gate.json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from raysweep.errors import SpecError, StorageError, SweepFailedError
from raysweep.outcome import Confirmed, GateOutcome, SweepOutcome, TrialOutcome
from raysweep.runs.champions import Champion, ChampionRecord, read_champion
from raysweep.search.warm import at_constants
from raysweep.spec import SweepSpec
from raysweep.spec.identity import digest_of
from raysweep.spec.pipeline import GateSpec
from raysweep.storage.segment import RESTORE_FIX
from raysweep.storage.store import Store
from raysweep.tuples import as_lists

FOLDER: Final = "gates"
PLAN: Final = "plan.json"
VERDICT: Final = "verdict.json"
_EARLIER_PLAN: Final = "gate-plan.json"
_EARLIER_VERDICT: Final = "gate.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePlan:
    """What a gate runs again."""

    gate_id: str
    candidates: tuple[Confirmed, ...]
    champion: Confirmed | None
    """As it runs tonight: with tonight's constants."""
    champion_at: float | None = None
    """When it became champion: says later whether it still is."""

    @property
    def ran(self) -> tuple[Confirmed, ...]:
        """All that run, in the order in which they do under each seed."""
        return (*self.candidates, *([self.champion] if self.champion is not None else []))


def gate_id(spec: SweepSpec, outcome: SweepOutcome, gate: GateSpec) -> str:
    """The gate of this outcome with these settings: 12 hex digits."""
    best = [
        (trial.trial_id, trial.config, trial.score, trial.checkpoint_uri)
        for trial in distinct(outcome, gate.confirm_top_k + 1)
    ]
    asked = gate.model_dump(mode="json") | {"champion": gate.champion or spec.name}
    judged = {"constraints": list(spec.constraints)} if spec.constraints else {}
    return digest_of({"best": best, "gate": asked, "metric": spec.metric, "mode": spec.mode, **judged})[:12]


def distinct(outcome: SweepOutcome, count: int) -> list[TrialOutcome]:
    """The best `count` trials of different configs, of those that satisfy the constraints."""
    found: list[TrialOutcome] = []
    for trial in outcome.top(len(outcome.trials)):
        if len(found) == count or not trial.is_feasible:
            break
        if all(trial.config != other.config for other in found):
            found.append(trial)
    return found


def make_plan(store: Store, spec: SweepSpec, outcome: SweepOutcome, gate: GateSpec) -> GatePlan:
    """What is run again: written down once.

    Raises:
        SweepFailedError: The sweep has no best trial.
        StorageError: The plan, or the champion, cannot be read or written.
    """
    name = gate_id(spec, outcome, gate)
    key = f"{outcome.sweep_id}/{FOLDER}/{name}/{PLAN}"
    found = store.get(key)
    if found is None:
        if outcome.found_best is None:
            raise SweepFailedError(outcome)
        fields = _fields(store, spec, outcome, gate)
        store.put_if_absent(key, orjson.dumps(fields, option=orjson.OPT_INDENT_2), durable=True)
        found = store.get(key)
    try:
        fields = orjson.loads(found or b"")
        beside = fields["champion"]
        return GatePlan(
            gate_id=name,
            candidates=tuple(Confirmed.model_validate(each) for each in fields["candidates"]),
            champion=Confirmed.model_validate(beside) if beside else None,
            champion_at=fields["champion_at"],
        )
    except (ValueError, KeyError) as error:
        raise StorageError(f"{store.url}/{key}", f"is damaged ({error})", RESTORE_FIX) from error


def _fields(store: Store, spec: SweepSpec, outcome: SweepOutcome, gate: GateSpec) -> dict[str, Any]:
    record = read_champion(store, gate.champion or spec.name)
    to_beat = champion_to_beat(record, spec, outcome.sweep_id)
    champion = as_confirmed(to_beat)
    if champion is not None:
        fitted = as_lists(at_constants(spec.param_space, champion.config))
        champion = champion.model_copy(update={"config": fitted})
    known = champion.config if champion is not None else None
    top = [trial for trial in distinct(outcome, gate.confirm_top_k + 1) if as_lists(trial.config) != known]
    candidates = [
        Confirmed(
            config=as_lists(trial.config),
            trial_id=trial.trial_id,
            sweep_id=outcome.sweep_id,
            checkpoint_uri=trial.checkpoint_uri,
        )
        for trial in top[: gate.confirm_top_k]
    ]
    return {
        "format": 2,
        "gate": gate.model_dump(mode="json") | {"champion": gate.champion or spec.name},
        "candidates": [each.model_dump(mode="json") for each in candidates],
        "champion": champion.model_dump(mode="json") if champion is not None else None,
        "champion_at": to_beat.at if to_beat is not None else None,
    }


def champion_to_beat(record: ChampionRecord, spec: SweepSpec, sweep_id: str) -> Champion | None:
    """The champion of other nights: a sweep that goes on does not have to beat itself.

    One of another metric or mode is none.
    """
    champion = record.champion_beside(sweep_id)
    if champion is None or (champion.metric, champion.mode) != (spec.metric, spec.mode):
        return None
    return champion


def as_confirmed(champion: Champion | None) -> Confirmed | None:
    """A champion by what is stored of it."""
    if champion is None:
        return None
    return Confirmed(
        config=champion.config,
        sweep_id=champion.sweep_id,
        mean=champion.mean,
        spread=champion.spread,
        n=champion.n,
        checkpoint_uri=champion.checkpoint_uri,
    )


def find_verdict(store: Store, spec: SweepSpec, outcome: SweepOutcome, gate: GateSpec) -> GateOutcome | None:
    """What this gate has decided; None before that. Raises: StorageError."""
    key = verdict_key(outcome.sweep_id, gate_id(spec, outcome, gate))
    found = _read(store, key)
    return found if found is not None else _earlier_verdict(store, spec, outcome, gate)


def keep_verdict(store: Store, sweep_id: str, name: str, verdict: GateOutcome) -> GateOutcome:
    """Write a verdict down, once; returns the one that is there."""
    key = verdict_key(sweep_id, name)
    store.put_if_absent(key, verdict.to_json().encode(), durable=True)
    return _read(store, key) or verdict


def newest_verdict(store: Store, sweep_id: str) -> GateOutcome | None:
    """What the last of the sweep's gates decided. Raises: StorageError."""
    names = [name for name in store.list_folders(f"{sweep_id}/{FOLDER}") if name]
    keys = [f"{sweep_id}/{_EARLIER_VERDICT}", *(verdict_key(sweep_id, name) for name in names)]
    found = [verdict for verdict in (_read(store, key) for key in keys) if verdict is not None]
    return max(found, key=lambda verdict: verdict.at, default=None)


def verdict_key(sweep_id: str, name: str) -> str:
    """Where a gate's verdict lies in the store."""
    return f"{sweep_id}/{FOLDER}/{name}/{VERDICT}"


def _earlier_verdict(
    store: Store, spec: SweepSpec, outcome: SweepOutcome, gate: GateSpec
) -> GateOutcome | None:
    """That of the one gate which a sweep once had, if it was this gate, of this outcome."""
    verdict = _read(store, f"{outcome.sweep_id}/{_EARLIER_VERDICT}")
    if verdict is None or (verdict.test, verdict.min_improvement) != (gate.test, gate.min_improvement):
        return None
    planned = orjson.loads(store.get(f"{outcome.sweep_id}/{_EARLIER_PLAN}") or b"{}")
    known = (planned.get("champion") or {}).get("config")
    best = [
        trial.trial_id for trial in outcome.top(gate.confirm_top_k + 1) if as_lists(trial.config) != known
    ]
    is_same = [each["trial_id"] for each in planned.get("candidates", [])] == best[: gate.confirm_top_k]
    if not is_same or any(len(each.scores) != gate.seeds for each in verdict.candidates):
        return None
    # The files name no champion; its history says whether it was this one.
    record = read_champion(store, gate.champion or spec.name)
    return verdict if record.night(outcome.sweep_id) is not None else None


def _read(store: Store, key: str) -> GateOutcome | None:
    found = store.get(key)
    if found is None:
        return None
    try:
        return GateOutcome.from_json(found)
    except SpecError as error:
        raise StorageError(f"{store.url}/{key}", f"is damaged ({error})", RESTORE_FIX) from error
