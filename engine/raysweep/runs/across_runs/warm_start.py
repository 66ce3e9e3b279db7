"""The warm start of a sweep from the nights before it: `warm_start`, looked up at its first start."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Final

from raysweep.core.state.compiled_parts import cost_rule
from raysweep.core.views.scores import cost_of
from raysweep.errors import StorageError
from raysweep.outcome import SweepOutcome, TrialOutcome
from raysweep.runs.across_runs.champions import Champion, Line, list_champions
from raysweep.runs.folder import SweepFolder
from raysweep.schedulers import make_scheduler
from raysweep.search import WarmStart
from raysweep.search.base import Result
from raysweep.search.machinery.agreement import Entry
from raysweep.search.machinery.anchors import Anchors, choose_anchors
from raysweep.search.machinery.warm_start import refit
from raysweep.specs import SweepSpec, slug
from raysweep.specs.sweep_parts import Memory
from raysweep.storage.objects.parallel import run_folders
from raysweep.storage.objects.store import Store

MAX_TOLD: Final = 1000
"""A model of more trials than this is slower, not better; the newest count."""
_LEFT_OUT_SHOWN: Final = 20
log = logging.getLogger("raysweep")


def recall(store: Store, spec: SweepSpec, own_id: str) -> WarmStart | None:
    """The warm start of the sweep; None where its spec asks for none.

    Raises:
        StorageError: What earlier nights left cannot be read.
    """
    if spec.warm_start is None:
        return None
    champion = _champion(store, spec)
    nights = _nights(store, spec, own_id)
    space, left_out = spec.space, []
    first: dict[str, Any] | None = None
    if champion is not None:
        try:
            first = refit(space, champion.config)
        except ValueError as error:
            left_out.append(f"champion of {champion.sweep_id}: {error}")
    elif nights and nights[0].found_best is not None:
        with suppress(ValueError):  # it is among the trials below, which name it
            first = refit(space, nights[0].found_best.config)
    entries, completed = _known(spec, nights, left_out)
    if left_out:
        more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
        log.warning("warm start leaves out what does not fit the space: %s%s", "; ".join(left_out[:3]), more)
    return WarmStart(
        first=first,
        told=tuple((entry.config, entry.result.value) for entry in entries),
        violations=tuple(entry.result.violations for entry in entries) if spec.constraints else (),
        others=tuple(entry.result.others for entry in entries) if spec.others else (),
        costs=tuple(entry.result.cost for entry in entries) if spec.search.options.costs_by else (),
        sources=tuple(outcome.sweep_id for outcome in nights),
        left_out=tuple(left_out[:_LEFT_OUT_SHOWN]),
        anchors=_anchors(spec, entries, completed, first),
    )


def _champion(store: Store, spec: SweepSpec) -> Champion | None:
    """The newest of the sweep's goal, on any data set: tonight's scores are measured anew."""
    line = Line(name=spec.name, metric=spec.metric, mode=spec.mode)
    lines = list_champions(store, spec.name)
    of_goal = f"{store.url}/{line.key}"
    for error in lines.damaged:
        if error.path.startswith(of_goal):
            raise error
    return next((each for each in lines if replace(each.line, data="") == line), None)


def _nights(store: Store, spec: SweepSpec, own_id: str) -> list[SweepOutcome]:
    asked = spec.warm_start
    if asked is None or asked == "champion":
        return []
    if isinstance(asked, Memory):
        return earlier(store, spec, own_id, asked.nights)
    return earlier(store, spec, own_id, asked if isinstance(asked, int) else 1)


def _known(
    spec: SweepSpec, nights: Sequence[SweepOutcome], left_out: list[str]
) -> tuple[list[Entry], list[Entry]]:
    """The trials that fit tonight's space, and those of them that have completed; names the rest."""
    found: list[Entry] = []
    completed: list[Entry] = []
    space = spec.space
    rule = cost_rule(spec, make_scheduler(spec))
    for run, outcome in enumerate(nights):
        for trial in outcome.trials:
            if trial.score is None or not math.isfinite(trial.score) or len(found) >= MAX_TOLD:
                continue
            try:
                config = refit(space, trial.config)
                cost = cost_of(trial.metrics, trial.attempts, rule) if rule is not None else None
                result = Result(float(trial.score), _judged(spec, trial), _beside(spec, trial), cost)
            except ValueError as error:
                left_out.append(f"{outcome.sweep_id} trial {trial.trial_id}: {error}")
                continue
            entry = Entry(config, result, run)
            found.append(entry)
            if trial.state == "completed":
                completed.append(entry)
    return found, completed


def _anchors(
    spec: SweepSpec, entries: Sequence[Entry], completed: Sequence[Entry], first: dict[str, Any] | None
) -> Anchors | None:
    memory = spec.warm_start
    if not isinstance(memory, Memory):
        return None
    configs = choose_anchors(completed, first, memory.anchors)
    return Anchors(configs=configs, runs=tuple(entry.run for entry in entries), half_life=memory.half_life)


def _judged(spec: SweepSpec, trial: TrialOutcome) -> tuple[float, ...]:
    """An earlier trial's distance from satisfying tonight's constraints. Raises ValueError: unknown."""
    report = trial.best_metrics if spec.score == "best" else trial.metrics
    found = []
    for constraint in spec.parsed_constraints:
        distance = constraint.violation(report)
        if distance is None:
            raise ValueError(f"has not reported what {constraint.text!r} names")
        found.append(distance)
    return tuple(found)


def _beside(spec: SweepSpec, trial: TrialOutcome) -> tuple[float, ...]:
    """An earlier trial's values of the metrics after the first. Raises ValueError: its report lacks one."""
    if not spec.others:
        return ()
    found: list[float] = []
    for name in spec.objectives:
        value = trial.metrics.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"has not reported {name!r}")
        found.append(float(value))
    return tuple(found[1:])


def earlier(store: Store, spec: SweepSpec, own_id: str, count: int) -> list[SweepOutcome]:
    """The newest `count` sweeps of this name, metric and mode that have ended, the newest first."""
    stem = slug(spec.name)
    ended = []
    for name in run_folders(store):
        # After the slug come the ten hex digits of the key.
        if name == own_id or name[:-11] != stem or name[-11:-10] != "-":
            continue
        info = store.head(f"{name}/outcome.json")
        if info is not None:
            ended.append((info.modified_at, name))
    found: list[SweepOutcome] = []
    for _, name in sorted(ended, reverse=True):
        if len(found) == count:
            break
        try:
            outcome = SweepFolder(store, name).read_outcome()
        except StorageError as error:
            log.warning("warm start passes over %s: %s", name, error)
            continue
        if outcome is not None and _is_like(outcome, spec):
            found.append(outcome)
    return found


def _is_like(outcome: SweepOutcome, spec: SweepSpec) -> bool:
    """Of this very name, as two may have one slug, metric and mode."""
    same = (outcome.name, outcome.metric, outcome.mode) == (spec.name, spec.metric, spec.mode)
    return same and list(outcome.others.items()) == list(spec.others.items())


def warm_to_json(warm: WarmStart) -> dict[str, Any]:
    """For the sweep's record."""
    judged = {"violations": [list(each) for each in warm.violations]} if warm.violations else {}
    if warm.others:
        judged["others"] = [list(each) for each in warm.others]
    costs = {"costs": list(warm.costs)} if warm.costs else {}
    anchors = {} if warm.anchors is None else {"anchors": asdict(warm.anchors)}
    return {
        "first": warm.first,
        **judged,
        **costs,
        **anchors,
        "told": [[config, value] for config, value in warm.told],
        "sources": list(warm.sources),
        "left_out": list(warm.left_out),
    }


def warm_from_json(fields: Mapping[str, Any] | None) -> WarmStart | None:
    """The warm start that `warm_to_json` wrote."""
    if fields is None:
        return None
    return WarmStart(
        first=fields["first"],
        told=tuple((config, float(value)) for config, value in fields["told"]),
        violations=tuple(tuple(map(float, each)) for each in fields.get("violations", ())),
        others=tuple(tuple(map(float, each)) for each in fields.get("others", ())),
        costs=tuple(None if each is None else float(each) for each in fields.get("costs", ())),
        sources=tuple(fields["sources"]),
        left_out=tuple(fields["left_out"]),
        anchors=_anchors_from_json(fields.get("anchors")),
    )


def _anchors_from_json(fields: Mapping[str, Any] | None) -> Anchors | None:
    if fields is None:
        return None
    return Anchors(
        configs=tuple(fields["configs"]), runs=tuple(fields["runs"]), half_life=fields["half_life"]
    )
