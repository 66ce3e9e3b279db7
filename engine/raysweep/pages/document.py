"""The data of a report: one document of JSON, made of everything that is stored of a sweep."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, Final, get_args

import orjson

from raysweep.documents.json_values import leaves
from raysweep.outcome import GateOutcome, RunningTrial, TrialOutcome, TrialState
from raysweep.outcome.ranking import best_first, is_allowed, is_standing
from raysweep.outcome.record import ErrorInfo
from raysweep.outcome.standing import MAX_PARETO
from raysweep.pages.columns import Column, are_numbers, is_number, numbers, show_label, texts, whole
from raysweep.pages.compare import Other, compared
from raysweep.pages.curves import curve_columns
from raysweep.pages.failures import config_pairs, failure_groups
from raysweep.pages.importances import MIN_TRIALS, importances, too_few
from raysweep.pages.law import law_panel
from raysweep.pages.timeline import timeline_columns
from raysweep.pages.words import certainty, sentence, verdict
from raysweep.runs.reading.whole_sweep import WholeSweep, number_of
from raysweep.space.domains import Float, Integer
from raysweep.space.perturbation import mutable_leaves
from raysweep.version import __version__

STATES: Final[tuple[str, ...]] = get_args(TrialState)
MANY: Final = 20_000
"""With more trials than that, only the columns that the page cannot do without are kept."""
MAX_PARAMS: Final = 60
MAX_METRICS: Final = 12
TOP: Final = 12
COUNTERS: Final = frozenset({"training_iteration", "time_total_s", "time_this_iter_s", "timestamp"})
"""Metrics that say how far a trial is, and not how good."""
_WIDE: Final = 100.0


def make_document(
    sweep: WholeSweep, others: Sequence[Other] = (), *, has_logs: bool = True
) -> dict[str, Any]:
    """All that the page shows of a sweep.

    Args:
        sweep: What is stored of it.
        others: Sweeps to compare it with.
        has_logs: Read the logs of failed trials from the storage.
    """
    params = _params(sweep)
    metrics = _metrics(sweep)
    status = sweep.status
    order = rank(sweep)
    ranked = [sweep.trials[place] for place in order]
    main = status.metric or next(iter(metrics), "")
    is_max = status.mode == "max" if status.metric else True
    return {
        "version": __version__,
        "made_at": time.time(),
        "sweep": _facts(sweep),
        "verdict": verdict(sweep),
        "certainty": certainty(sweep, ranked),
        "error": _error(status.error),
        "best": _trial(status.best),
        "ahead": _trial(status.ahead),
        "no_best": sentence(status.no_best),
        "ranked_by": sentence(status.ranked_by),
        "top": [_trial(trial) for trial in ranked[:TOP]],
        "configs": [
            {
                "number": each.number,
                "state": each.state,
                "mean": each.mean,
                "std": each.std,
                "completed": each.completed,
                "best": each.best,
            }
            for each in (sweep.outcome.configs[:TOP] if sweep.outcome is not None else ())
        ],
        "running": [_running(trial) for trial in status.running],
        "gate": _gate(status.gate, status.run_id),
        "trials": _trials(sweep, order),
        "params": [_param_column(name, values, is_log) for name, (values, is_log) in params.items()],
        "metrics": [_metric_column(sweep, name, values) for name, values in metrics.items()],
        "metric": main,
        "pareto": [int(name) for name in status.pareto[:MAX_PARETO]],
        "curves": curve_columns(sweep, ranked, list(metrics)),
        "importances": importances(
            {name: values for name, (values, _) in params.items()},
            {name: is_log for name, (_, is_log) in params.items()},
            metrics[main],
            is_max=is_max,
        )
        if status.metric and main in metrics and params
        else {"problem": _why_no_importances(status.metric, metrics.get(main, ()))},
        "law": law_panel(sweep),
        "failures": failure_groups(sweep, has_logs=has_logs),
        "timeline": timeline_columns(sweep.runs, status.started_at, status.read_at),
        "checkpoints": _checkpoints(sweep),
        "compare": compared(sweep, others),
        "spec": orjson.dumps(dict(sweep.record.spec), option=orjson.OPT_INDENT_2, default=str).decode(),
        "problem": sweep.problem,
    }


def rank(sweep: WholeSweep) -> list[int]:
    """The numbers of the trials that have a finite score and did not fail, as an outcome ranks them.

    With `repeat` the best trial of each config comes first.
    """
    status, configs = sweep.status, sweep.outcome.configs if sweep.outcome is not None else ()
    found = best_first(sweep.trials, {status.metric: status.mode, **status.others}, status.status)
    return list(dict.fromkeys([*(each.best for each in configs), *found]))


def _why_no_importances(metric: str, scores: Sequence[float | None]) -> str:
    if not metric:
        return "Without a metric there is nothing that a parameter could matter for."
    if not scores:
        return "No trial has a score."
    scored = sum(score is not None for score in scores)
    return "Every trial has the same parameters." if scored >= MIN_TRIALS else too_few(scored)


def _facts(sweep: WholeSweep) -> dict[str, Any]:
    status, outcome = sweep.status, sweep.outcome
    return {
        "id": status.run_id,
        "name": status.name or sweep.spec.name,
        "key": sweep.record.key,
        "uri": sweep.folder.uri,
        "storage": status.storage,
        "status": status.status,
        "has_ended": status.has_ended,
        "is_running": status.is_running,
        "metric": status.metric,
        "mode": status.mode,
        "others": status.others,
        "constraints": status.constraints,
        "counts": status.counts.shown,
        "ended": status.counts.ended,
        "num_trials": status.num_trials,
        "is_open": sweep.spec.num_samples is None,
        "started_at": status.started_at,
        "ended_at": status.ended_at,
        "elapsed_s": status.elapsed_s,
        "deadline": status.deadline,
        "expected_end_at": status.expected_end_at,
        "estimate": status.estimate.model_dump() if status.estimate is not None else None,
        "slow": status.slow,
        "read_at": status.read_at,
        "seen_at": status.seen_at,
        "slots": status.slots,
        "generation": status.generation,
        "usage": status.usage.model_dump() if status.usage is not None else None,
        "seed": sweep.record.seed,
        "trainable": sweep.spec.what_runs,
        "scheduler": sweep.spec.scheduler.kind,
        "search": sweep.spec.search.kind,
        "code_digest": outcome.code_digest if outcome is not None else "",
        "spec_digest": sweep.record.digest,
        "ran_by": outcome.raysweep_version if outcome is not None else "",
        "tags": dict(sweep.spec.tags),
        "notes": status.notes,
    }


def _running(trial: RunningTrial) -> dict[str, Any]:
    return {
        "number": int(trial.trial_id) if trial.trial_id.isdigit() else None,
        "score": trial.score,
        "reports": trial.iteration,
        "started_at": trial.started_at,
        "config": config_pairs(trial.config),
    }


def _gate(gate: GateOutcome | None, sweep_id: str) -> dict[str, Any] | None:
    if gate is None:
        return None
    return {
        "promoted": gate.promoted,
        "why": gate.why,
        "rows": [
            {
                "who": "champion" if each is gate.champion else f"trial {each.trial_in(sweep_id)}",
                "mean": each.mean,
                "spread": each.spread,
                "n": each.n,
                "config": config_pairs(each.config),
            }
            for each in (*([gate.champion] if gate.champion is not None else []), *gate.candidates)
        ],
    }


def _trial(trial: TrialOutcome | None) -> dict[str, Any] | None:
    if trial is None:
        return None
    return {
        "number": trial.number,
        "score": trial.score,
        "metrics": config_pairs(trial.metrics),
        "config": config_pairs(trial.config),
        "config_json": orjson.dumps(trial.config, default=str).decode(),
        "checkpoint_uri": trial.checkpoint_uri,
        "violated": trial.violated,
    }


def _error(error: ErrorInfo | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {"kind": error.kind, "line": error.line, "where": error.where, "traceback": error.traceback or ""}


def _trials(sweep: WholeSweep, order: Sequence[int]) -> dict[str, Any]:
    """The columns that every trial has; a row is the trial of that number."""
    trials = sweep.trials
    start = sweep.status.started_at or 0.0
    places = {state: place for place, state in enumerate(STATES)}
    found: dict[str, Any] = {
        "count": len(trials),
        "states": STATES,
        "state": whole((places[trial.state] for trial in trials), len(STATES)),
        "ended": numbers(
            round(trial.ended_at - start, 3) if trial.ended_at is not None else None for trial in trials
        ),
    }
    status = sweep.status
    if status.metric:
        modes = {status.metric: status.mode, **status.others}
        found["order"] = whole(order, len(trials))
        found["standing"] = whole(
            (int(is_standing(t.state, status.status) and is_allowed(t, modes)) for t in trials), 1
        )
    if status.constraints:
        found["feasible"] = whole((int(trial.is_feasible) for trial in trials), 1)
    if len(trials) <= MANY:
        found["kept"] = whole((int(trial.checkpoint_uri is not None) for trial in trials), 1)
        found["took"] = numbers(trial.took_s for trial in trials)
        found["reports"] = whole(
            (min(t.reports, 2**32 - 1) for t in trials), _most(t.reports for t in trials)
        )
        found["attempts"] = whole(
            (trial.num_attempts for trial in trials), _most(trial.num_attempts for trial in trials)
        )
    return found


def _most(values: Any) -> int:
    return max(values, default=0)


def _params(sweep: WholeSweep) -> dict[str, tuple[list[Any], bool]]:
    """By name the values of a parameter, and whether it is on a logarithmic scale; constants are left out."""
    count = len(sweep.trials)
    columns: dict[str, list[Any]] = {}
    for trial in sweep.trials:
        for name, value in leaves(trial.config):
            column = columns.get(name)
            if column is None:
                if len(columns) >= 4 * MAX_PARAMS:
                    continue
                column = columns[name] = [None] * count
            column[trial.number] = value
    logs = _log_domains(sweep)
    found = {}
    for name, values in columns.items():
        if not _varies(values) and sweep.status.kind == "sweep":  # a training has one trial
            continue
        is_log = logs.get(name)
        if is_log is None:
            is_log = are_numbers(values) and _is_wide(values)
        found[name] = (values, is_log)
        if len(found) >= MAX_PARAMS:
            break
    return found


def _varies(values: Sequence[Any]) -> bool:
    first = next((value for value in values if value is not None), None)
    return any(value is not None and value != first for value in values)


def _is_wide(values: Sequence[Any]) -> bool:
    there = [value for value in values if value is not None]
    low, high = float(min(there)), float(max(there))
    return low > 0 and high / low >= _WIDE


def _log_domains(sweep: WholeSweep) -> dict[str, bool]:
    try:
        found = mutable_leaves(sweep.spec.param_space)
    except (KeyError, ValueError):
        return {}
    return {".".join(path): domain.log for path, domain in found if isinstance(domain, Float | Integer)}


def _metrics(sweep: WholeSweep) -> dict[str, list[float | None]]:
    """By name a number of each trial: the score, the other metrics that rank, then what else was reported."""
    status, trials = sweep.status, sweep.trials
    names = dict.fromkeys(name for name in (status.metric, *status.others) if name)
    most = MAX_METRICS if len(trials) <= MANY else len(names) or 1
    for trial in trials:
        if len(names) >= most:
            break
        shown = (name for name, value in trial.metrics.items() if number_of(value) == number_of(value))
        names.update(dict.fromkeys(name for name in shown if name not in COUNTERS))
    found: dict[str, list[float | None]] = {}
    for name in list(names)[:most]:
        if name == status.metric:
            values = [trial.score for trial in trials]
        else:
            values = [_finite(trial.metrics.get(name)) for trial in trials]
        if any(value is not None for value in values):
            found[name] = values
    return found


def _finite(value: Any) -> float | None:
    """A finite number as it is, whole or not."""
    if not math.isfinite(number_of(value)):
        return None
    return value if is_number(value) else number_of(value)


def _param_column(name: str, values: Sequence[Any], is_log: bool) -> dict[str, Any]:
    if are_numbers(values):
        is_whole = all(value is None or isinstance(value, int) for value in values)
        return {"name": name, "kind": "number", "log": is_log, "whole": is_whole, "column": numbers(values)}
    return {"name": name, "kind": "text", "log": False, "column": _sorted_texts(values)}


def _sorted_texts(values: Sequence[Any]) -> Column:
    """As `texts`, the labels in their order where they are few; numbers among them by size."""
    column = texts(values)
    labels = column["labels"]
    if len(labels) > 1000:
        return column
    known = {show_label(value): value for value in values if value is not None}
    order = sorted(labels, key=lambda label: _order(known.get(label)))
    if order == labels:
        return column
    place = {label: number for number, label in enumerate(order)}
    count = len(order)
    codes = (count if value is None else place[show_label(value)] for value in values)
    return {**whole(codes, count), "labels": order}


def _order(value: Any) -> tuple[int, float, str]:
    if isinstance(value, int | float):
        return 0, float(value), ""
    return 1, 0.0, show_label(value)


def _metric_column(sweep: WholeSweep, name: str, values: Sequence[float | None]) -> dict[str, Any]:
    status = sweep.status
    mode = status.mode if name == status.metric else status.others.get(name, "")
    there = [value for value in values if value is not None and math.isfinite(value)]
    return {
        "name": name,
        "mode": mode,
        "log": len(there) > 2 and min(there) > 0 and max(there) / min(there) >= _WIDE,
        "whole": all(value is None or isinstance(value, int) for value in values),
        "column": numbers(values),
    }


def _checkpoints(sweep: WholeSweep) -> dict[str, Any]:
    counts = sweep.checkpoints
    return {
        "stored": counts.stored,
        "failed": counts.failed,
        "size_bytes": counts.size_bytes,
        "trials": len(counts.trials),
        "kept": sum(trial.checkpoint_uri is not None for trial in sweep.trials),
    }
