"""The identity of a gate, the configs that it runs again, and the place of these and of its verdict.

A gate is named by what it judges and how: the best trials of the sweep's outcome, and its own settings with
the champion's name. The same gate of the same outcome, tried again, is the same; where the sweep has
continued and found more, or something else is asked of its best, it is another one, beside the first.

    <sweep_id>/gates/<gate>/plan.json       what is run again, written once: the champion may change meanwhile
    <sweep_id>/gates/<gate>/verdict.json    what came out, written once: final

A verdict of a gate that was cut short is not written down: the next run of the gate continues and decides.
Checkpoints are named relative to the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from raysweep.documents.digest import digest_of
from raysweep.documents.stored_paths import to_reference, to_uri
from raysweep.documents.tuples import as_lists
from raysweep.errors import StorageError, SweepFailedError
from raysweep.outcome import Confirmed, GateOutcome, SweepOutcome, TrialOutcome
from raysweep.outcome.false_promotions import Challenger
from raysweep.outcome.places import confirmed_with
from raysweep.pipeline.duel import duel_seeds
from raysweep.runs.across_runs.champions import (
    Champion,
    ChampionRecord,
    Line,
    list_champions,
    read_champion,
)
from raysweep.runs.across_runs.releases import as_it_stands
from raysweep.runs.across_runs.verdicts import FOLDER, read_verdict
from raysweep.search.machinery.warm_start import at_constants
from raysweep.specs import SweepSpec
from raysweep.specs.pipeline import GateSpec
from raysweep.storage.formats import OTHER_FIX, other_format
from raysweep.storage.journal.segment import RESTORE_FIX
from raysweep.storage.objects.store import Store

PLAN: Final = "plan.json"
FORMAT: Final = 4
"""Of plan.json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePlan:
    """The plan of a gate: the configs that it runs again."""

    gate_id: str
    candidates: tuple[Confirmed, ...]
    champion: Confirmed | None
    """As it runs tonight: with tonight's constants."""
    champion_at: float | None = None
    """The time at which it became champion: shows later if it still is."""
    seeds: int = 0
    """With how many seeds each runs."""
    challenger: Challenger | None = None
    """With a budget of false promotions: the only candidate, which earlier gates have found."""
    notes: tuple[str, ...] = ()
    """Facts that a person should know about the champions of this name."""

    @property
    def ran(self) -> tuple[Confirmed, ...]:
        """All that run, in the order in which they do under each seed."""
        return (*self.candidates, *([self.champion] if self.champion is not None else []))


def line_of(spec: SweepSpec, gate: GateSpec) -> Line:
    """With which champions a gate compares; the spec's metric is the one that the gate compares by."""
    return Line(name=gate.champion or spec.name, metric=spec.metric, mode=spec.mode, data=gate.data or "")


def gate_id(spec: SweepSpec, outcome: SweepOutcome, gate: GateSpec) -> str:
    """The gate of this outcome with these settings: 12 hex digits."""
    storage = outcome.uri.rpartition("/")[0]
    best = [
        (trial.trial_id, trial.config, trial.score, uri and to_reference(storage, uri))
        for trial in distinct(outcome, gate.confirm_top_k + 1)
        for uri in [trial.checkpoint_uri]
    ]
    asked = gate.model_dump(mode="json") | {"champion": gate.champion or spec.name}
    judged = {"metric": spec.metric, "mode": spec.mode, "constraints": list(spec.constraints)}
    return digest_of({"best": best, "gate": asked, **judged})[:12]


def distinct(outcome: SweepOutcome, count: int) -> list[TrialOutcome]:
    """The best `count` trials of different configs and one scale, of those that satisfy the constraints."""
    found: list[TrialOutcome] = []
    for trial in outcome.top(len(outcome.trials)):
        is_smaller = bool(found) and trial.larger_scales > found[0].larger_scales
        if len(found) == count or not trial.is_feasible or is_smaller:
            break
        if all(trial.config != other.config for other in found):
            found.append(trial)
    return found


def make_plan(store: Store, spec: SweepSpec, outcome: SweepOutcome, gate: GateSpec) -> GatePlan:
    """The plan of what is run again: written down once.

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
        if fields["format"] != FORMAT:
            raise StorageError(f"{store.url}/{key}", other_format(fields["format"], FORMAT), OTHER_FIX)
        beside, challenger = fields["champion"], fields["challenger"]
        return GatePlan(
            gate_id=name,
            candidates=tuple(_located(store, each) for each in fields["candidates"]),
            champion=_located(store, beside) if beside else None,
            champion_at=fields["champion_at"],
            seeds=fields["seeds"],
            challenger=Challenger.model_validate(challenger) if challenger else None,
            notes=tuple(fields["notes"]),
        )
    except (ValueError, KeyError) as error:
        raise StorageError(f"{store.url}/{key}", f"is damaged ({error})", RESTORE_FIX) from error


def _located(store: Store, fields: Any) -> Confirmed:
    return confirmed_with(Confirmed.model_validate(fields), lambda name: to_uri(store.url, name))


def _fields(store: Store, spec: SweepSpec, outcome: SweepOutcome, gate: GateSpec) -> dict[str, Any]:
    line = line_of(spec, gate)
    record = read_champion(store, line)
    to_beat = record.champion_beside(outcome.sweep_id)
    champion = as_confirmed(to_beat)
    best = distinct(outcome, gate.confirm_top_k + 1)
    scale = best[0].scale if best else spec.largest_scale

    def tonight(config: dict[str, Any]) -> dict[str, Any]:
        fitted: dict[str, Any] = as_lists(at_constants(spec.space_at(scale), config))
        return fitted

    if champion is not None:
        champion = champion.model_copy(update={"config": tonight(champion.config)})
    known = champion.config if champion is not None else None
    challenger = _challenger(record, outcome, gate)
    if challenger is not None and tonight(challenger.config) == known:
        challenger = None  # nothing but a constant told them apart
    top = [trial for trial in best if as_lists(trial.config) != known]
    candidates = [
        Confirmed(
            config=as_lists(trial.config),
            trial_id=trial.trial_id,
            sweep_id=outcome.sweep_id,
            key=outcome.key,
            checkpoint_uri=trial.checkpoint_uri,
        )
        for trial in top[: gate.confirm_top_k]
    ]
    if challenger is not None:
        candidates = [
            Confirmed(
                config=tonight(challenger.config),
                trial_id=challenger.trial_id,
                sweep_id=challenger.sweep_id,
                key=challenger.key,
            )
        ]

    def stored(each: Confirmed) -> dict[str, Any]:
        relative = confirmed_with(each, lambda uri: to_reference(store.url, uri))
        return relative.model_dump(mode="json")

    return {
        "format": FORMAT,
        "gate": gate.model_dump(mode="json") | {"champion": gate.champion or spec.name},
        "candidates": [stored(each) for each in candidates],
        "champion": stored(champion) if champion is not None else None,
        "champion_at": to_beat.at if to_beat is not None else None,
        "seeds": duel_seeds(gate) if challenger is not None else gate.seeds,
        "challenger": challenger.model_dump(mode="json") if challenger is not None else None,
        "notes": _notes(store, line, record),
    }


def _challenger(record: ChampionRecord, outcome: SweepOutcome, gate: GateSpec) -> Challenger | None:
    """The one that is tested instead of tonight's candidates; None: there is none, or no budget."""
    if gate.false_promotions_per_year is None:
        return None
    # No time passes: what matters is whether its champion still is champion.
    account = record.account_at(record.account.at, gate.false_promotions_per_year, outcome.sweep_id)
    return account.challenger


def _notes(store: Store, line: Line, record: ChampionRecord) -> list[str]:
    """Note if the name has champions already, and none of this line: the metric may have been renamed."""
    if record.history:
        return []
    lines = list_champions(store, line.name)
    unread = [f"another line of champion {line.name!r} cannot be read: {error}" for error in lines.damaged]
    others = [each.line for each in lines if each.line != line]
    if not others:
        return unread
    known = " and ".join(map(str, others))
    text = f"champion {line.name!r} has {known}; this gate compares {line} and begins a new line"
    return [text, *unread]


def as_confirmed(champion: Champion | None) -> Confirmed | None:
    """A champion by what is stored of it."""
    if champion is None:
        return None
    return Confirmed(
        config=champion.config,
        sweep_id=champion.sweep_id,
        key=champion.key,
        mean=champion.mean,
        spread=champion.spread,
        n=champion.n,
        checkpoint_uri=champion.checkpoint_uri,
    )


def find_verdict(store: Store, spec: SweepSpec, outcome: SweepOutcome, gate: GateSpec) -> GateOutcome | None:
    """The verdict of this gate, as it stands after rollbacks; None before that. Raises: StorageError."""
    verdict = read_verdict(store, outcome.sweep_id, gate_id(spec, outcome, gate))
    return verdict and as_it_stands(store, line_of(spec, gate), outcome.sweep_id, verdict)
