"""The small JSON of an outcome that goes downstream (an XCom, a flow's result, an event), and its readers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from raysweep.documents.tuples import with_tuples
from raysweep.errors import SpecError, SweepNotFoundError, one_line
from raysweep.outcome import GateOutcome, SweepOutcome, TrainOutcome, TrialOutcome
from raysweep.runs.reading.view import RunView
from raysweep.specs.scheduled_config import ScheduledConfig

MAX_BYTES: Final = 16_384
_TEXT: Final = 400
_PARETO: Final = 50
"""The number of trials of the Pareto front that a brief names."""
_FIX: Final = "give what a sweep step handed on, or an entry of its top_k"


def brief(
    outcome: SweepOutcome | TrainOutcome, *, top_k: int = 5, max_bytes: int = MAX_BYTES
) -> dict[str, Any]:
    """The outcome as plain JSON data that is never larger than `max_bytes`.

    What does not fit is left out, in this order: metrics beside the one that ranks, schedules, places in
    `top_k`, long texts, configs; `cut` says what.

    Args:
        outcome: How a sweep, or a training run, ended.
        top_k: How many of the best trials are listed, each in the form of `best`.
        max_bytes: The limit, of the JSON in ASCII with spaces: the longest form in use.

    Returns:
        Of a sweep: kind, status, why, counts, metric, mode, best (trial_id, config, metrics, score,
        checkpoint_uri; None where there is none), own_why (with a gate: why without its verdict), top_k (as
        `best`, and `violated`, the constraints that one does not satisfy, where there are such; `schedule`,
        the configs that a population's trial had, None where it was left out), promoted, gate, sweep_id,
        name, key, uri, outcome_uri, cut; with several metrics others (those after the first, with their
        modes) and pareto (the ids of the trials on the front, at most 50). Of a training run: kind, status,
        why, metrics, config, model_uri, checkpoint_uri, run_id, name, key, uri, outcome_uri, cut;
        where it was carried from another scale, carried.
    """
    fields = _sweep(outcome, top_k) if isinstance(outcome, SweepOutcome) else _training(outcome)
    cut: list[str] = []
    for name, step in _steps(fields):
        if size_bytes(fields | {"cut": cut}) <= max_bytes:
            break
        if step():
            cut = [each for each in cut if each.split(":")[0] != name.split(":")[0]] + [name]
    return fields | {"cut": cut}


def best_config(brief: Any) -> Mapping[str, Any]:
    """The config that a sweep's brief hands on; one that was too large for it is read where it is stored.

    Args:
        brief: What `brief` made of a sweep's outcome, or an entry of its `top_k`.

    Raises:
        SpecError: It holds no config.
        SweepNotFoundError: Its storage holds no outcome.
        StorageError: The storage does not answer.
    """
    best = _best_of(brief)
    config = best["config"]
    if not isinstance(config, Mapping):
        return _stored_trial(brief, best).config
    return with_tuples(dict(config), best.get("tuples", ()))


def best_schedule(brief: Any) -> tuple[ScheduledConfig, ...]:
    """The schedule of configs that a sweep's brief hands on; empty where one config made the trial.

    Args:
        brief: As for `best_config`.

    Raises: As `best_config`.
    """
    best = _best_of(brief)
    if "schedule" not in best:
        return ()
    given = best["schedule"]
    if given is None:
        return _stored_trial(brief, best).schedule
    return tuple(ScheduledConfig.model_validate(each) for each in given)


def _best_of(brief: Any) -> Mapping[str, Any]:
    if not isinstance(brief, Mapping):
        raise SpecError("outcome", f"is a {type(brief).__name__}", _FIX)
    best = brief.get("best", brief)
    if not isinstance(best, Mapping) or "config" not in best:
        raise SpecError("outcome", "has no best trial", _FIX)
    return best


def _stored_trial(brief: Mapping[str, Any], best: Mapping[str, Any]) -> TrialOutcome:
    return named_trial(best, stored_outcome(brief))


def named_trial(brief: Mapping[str, Any], outcome: SweepOutcome) -> TrialOutcome:
    """The trial that a brief, or an entry of its `top_k`, hands on. Raises SpecError: there is none."""
    best = _best_of(brief)
    trial_id, config = best.get("trial_id"), best["config"]
    trial = next((each for each in outcome.trials if each.trial_id == trial_id), None)
    if trial is None and "/" in str(trial_id) and isinstance(config, Mapping):
        # A gate's challenger, which another sweep found: the brief is all that there is of it here.
        config = with_tuples(dict(config), best.get("tuples", ()))
        return TrialOutcome(
            trial_id=str(trial_id), number=len(outcome.trials), state="completed", config=config
        )
    if trial is None:
        raise SpecError("outcome", f"has no trial {trial_id!r}", "check the storage")
    return trial


def best_trials(brief: Any, k: int | None = None) -> list[dict[str, Any]]:
    """The best trials that a sweep's brief lists, each with the gate's verdict: what trains several of them.

    Args:
        brief: What `brief` made of a sweep's outcome.
        k: How many; default: all.

    Raises: SpecError where it lists none.
    """
    if not isinstance(brief, Mapping) or not isinstance(brief.get("top_k"), list):
        raise SpecError("outcome", "lists no trials (top_k)", "give what a sweep or gate step handed on")
    verdict = {name: brief.get(name) for name in ("promoted", "gate", "uri")}
    return [{**trial, **verdict} for trial in brief["top_k"][:k]]


def stored_outcome(given: Any) -> SweepOutcome:
    """The whole outcome of a sweep, from where it is stored, by its brief or by an outcome with less in it.

    An outcome of which the storage holds nothing (any more) comes back as it is.

    Raises: SpecError, SweepNotFoundError, StorageError.
    """
    if isinstance(given, SweepOutcome):
        storage, _, sweep_id = given.uri.rpartition("/")
        found = RunView("sweep", storage, sweep_id).outcome() if storage else None
        return found if isinstance(found, SweepOutcome) else given
    if not isinstance(given, Mapping) or not given.get("uri"):
        raise SpecError("outcome", "does not say where the sweep is stored", _FIX)
    storage, _, sweep_id = str(given["uri"]).rpartition("/")
    found = RunView("sweep", storage, sweep_id).outcome()
    if not isinstance(found, SweepOutcome):
        raise SweepNotFoundError(sweep_id, storage, "see whether this machine can read the storage")
    return found


def why_not_trained(given: Any) -> str:
    """The reason why a training that gets this outcome, or its brief, is skipped; empty where it is not."""
    if isinstance(given, SweepOutcome):
        is_refused, why = given.promoted is False, given.gate.why if given.gate is not None else None
    else:
        fields = given if isinstance(given, Mapping) else {}
        is_refused, why = fields.get("promoted") is False, (fields.get("gate") or {}).get("why")
    return f"training skipped: {why or 'the gate did not promote the best config'}" if is_refused else ""


def size_bytes(value: Any) -> int:
    """The size of a value as JSON, at most."""
    return len(json.dumps(value))


def _sweep(outcome: SweepOutcome, top_k: int) -> dict[str, Any]:
    return {
        "kind": "sweep",
        "status": outcome.status,
        "why": one_line(outcome.why, 4 * _TEXT),
        **({"own_why": one_line(outcome.own_why, 4 * _TEXT)} if outcome.own_why else {}),
        "counts": dict(outcome.counts),
        "metric": outcome.metric,
        "mode": outcome.mode,
        **({"others": dict(outcome.others), "pareto": _pareto(outcome)} if outcome.others else {}),
        "best": _trial(outcome.found_best, outcome) if outcome.found_best is not None else None,
        "top_k": [_trial(trial, outcome) for trial in outcome.top(top_k)],
        "promoted": outcome.promoted,
        "gate": _gate(outcome.gate) if outcome.gate is not None else None,
        "sweep_id": outcome.sweep_id,
        "name": outcome.name,
        "key": outcome.key,
        "uri": outcome.uri,
        "outcome_uri": f"{outcome.uri}/outcome.json" if outcome.uri else "",
    }


def _pareto(outcome: SweepOutcome) -> list[str]:
    return [trial.trial_id for trial in outcome.pareto[:_PARETO]]


def _training(outcome: TrainOutcome) -> dict[str, Any]:
    fields = outcome.model_dump(mode="json")
    error = outcome.error
    return {
        "kind": "train",
        "status": outcome.status,
        "why": one_line(str(error), 4 * _TEXT) if error is not None else outcome.ended_by,
        "metrics": fields["metrics"],
        "config": fields["config"],
        **({"carried": fields["carried"]} if outcome.carried is not None else {}),
        **({"predicted": fields["predicted"]} if outcome.predicted is not None else {}),
        "model_uri": outcome.model_uri,
        "checkpoint_uri": outcome.checkpoint_uri,
        "run_id": outcome.run_id,
        "name": outcome.name,
        "key": outcome.key,
        "uri": outcome.uri,
        "outcome_uri": f"{outcome.uri}/train_outcome.json" if outcome.uri else "",
    }


def _trial(trial: TrialOutcome, outcome: SweepOutcome) -> dict[str, Any]:
    """With the report that gave the score: the last one, or with `score: best` the best one."""
    fields = trial.model_dump(mode="json")
    is_last = trial.metrics.get(outcome.metric) == trial.score or not trial.best_metrics
    return {
        "trial_id": trial.trial_id,
        "config": fields["config"],
        **({"tuples": outcome.tuples} if outcome.tuples else {}),
        "metrics": fields["metrics"] if is_last else fields["best_metrics"],
        "score": fields["score"],
        "checkpoint_uri": trial.checkpoint_uri,
        **({"violated": list(trial.violated)} if trial.violated else {}),
        **({"schedule": fields["schedule"]} if trial.schedule else {}),
    }


def _gate(gate: GateOutcome) -> dict[str, Any]:
    fields = gate.model_dump(mode="json")
    kept = ("promoted", "improvement", "min_improvement", "lower_bound", "sweep_id", "gate_id")
    approval = {} if gate.approval is None else {"approval": fields["approval"]}
    return {name: fields[name] for name in kept} | {"why": one_line(gate.why, _TEXT), **approval}


def _steps(fields: dict[str, Any]) -> Iterator[tuple[str, Callable[[], bool]]]:
    """The parts that can be left out, one after the other; each call is true if it changed anything."""
    kept = (fields.get("metric", ""), *fields.get("others", ()))
    top: list[dict[str, Any]] = fields.get("top_k", [])
    asked = len(top)
    best = fields.get("best")
    yield "top_k.metrics", lambda: sum(_only(trial, kept) for trial in top) > 0
    yield "best.metrics" if best else "metrics", lambda: _only(best if best else fields, kept)
    yield "top_k.schedule", lambda: sum(_without_schedule(trial) for trial in top) > 0
    if best:
        yield "best.schedule", lambda: _without_schedule(best)
    while len(top) > 1:
        yield f"top_k: {len(top) - 1} of {asked}", lambda: top.pop() is not None
    yield "top_k: 0 of " + str(asked), lambda: bool(top) and top.pop() is not None
    yield "carried", lambda: fields.pop("carried", None) is not None
    yield "why", lambda: sum(_shorten(fields, name) for name in ("why", "own_why") if name in fields) > 0
    yield "best.config" if best else "config", lambda: _without_config(best if best else fields)
    yield "key", lambda: _shorten(fields, "key")
    yield "name", lambda: _shorten(fields, "name")


def _only(trial: dict[str, Any], kept: Sequence[str]) -> bool:
    metrics = trial["metrics"]
    trial["metrics"] = {name: metrics[name] for name in kept if name in metrics}
    return len(metrics) > len(trial["metrics"])


def _without_schedule(trial: dict[str, Any]) -> bool:
    had = bool(trial.get("schedule"))
    if had:
        trial["schedule"] = None
    return had


def _shorten(fields: dict[str, Any], name: str) -> bool:
    before = fields[name]
    fields[name] = one_line(before, _TEXT // 4)
    return bool(fields[name] != before)


def _without_config(fields: dict[str, Any]) -> bool:
    had = bool(fields.get("config"))
    fields["config"] = None
    return had
