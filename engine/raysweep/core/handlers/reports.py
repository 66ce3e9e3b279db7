"""Reports and checkpoints of running trials."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pydantic import JsonValue

from raysweep.core.handlers import continuations, retention, transitions, trial_rules, unreported
from raysweep.core.state.compiled_parts import Limit
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Trial
from raysweep.core.state.trial_parts import NO_METRICS, Checkpoint, Metrics
from raysweep.core.views.scores import as_number, is_better, is_better_report, violation
from raysweep.core.vocabulary.commands import AnswerReport, Command, TellRung
from raysweep.core.vocabulary.events import CheckpointCommitted, CheckpointDamaged, Row, TrialReported
from raysweep.core.vocabulary.lifecycle import Cause
from raysweep.core.vocabulary.stop_reasons import STOPS, StopReason
from raysweep.schedulers import NOTHING, TRAINING_ITERATION, Decisions, Resume, tell_report

Out = list[Command]
# JSON has no such numbers: reports carry them as these strings.
# The ends of attempts after which a trial makes anew what lies past them, and why it was asked to end so.
_GOES_ON: Final[dict[Cause, StopReason]] = {"paused": "pause", "resumed": "resume", "exploited": "exploit"}
NON_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})


def take_reports(state: SweepState, trial: Trial, event: TrialReported, out: Out) -> None:
    """Take a batch of reports.

    Those past the point where the trial was told to end are counted as overrun and used for nothing. That is
    not so for an interrupt (the trial continues later, from a checkpoint that may lie behind these reports)
    and for the end of the sweep, before which each trial has a last report.
    """
    results = trial.results
    doubled = results.attempt_reports - event.first
    rows = event.rows[doubled:] if doubled > 0 else event.rows
    if event.keys != state.reports.keys and event.keys:
        state.reports.keys = event.keys
        if state.rules.named:
            unreported.see(state, event.keys)
    results.attempt_reports += len(rows)
    results.reports += len(rows)
    if state.rules.named:
        unreported.note_unlimited(state, trial, results.reports - len(rows))
    transitions.hear(state, trial, event.at)
    if trial.stop_reason is not None and not STOPS[trial.stop_reason].counts:
        results.overrun += len(rows)
    else:
        is_plain = state.rules.is_plain and trial.continued.max_t is None
        if not (is_plain and _take_plainly(state, trial, event.keys, rows)):
            _take_each(state, trial, event.keys, rows, out)
    if event.is_waiting and trial.slot is not None:
        report = event.first + len(event.rows) - 1
        out.append(AnswerReport(slot=trial.slot, trial=trial.number, attempt=trial.attempt, report=report))


def _take_plainly(state: SweepState, trial: Trial, keys: tuple[str, ...], rows: tuple[Row, ...]) -> bool:
    """The fast way for finite numbers where no report can end the trial; False: take each by itself."""
    results = trial.results
    objective = state.rules.objective
    metric = objective.metric
    if not rows or metric not in keys:
        return False
    column = keys.index(metric)
    values = [row[column] for row in rows]
    for value in values:
        if type(value) is not float and type(value) is not int:
            return False
    best = max(values) if objective.is_max else min(values)  # type: ignore[type-var]
    start = results.iteration
    results.iteration += len(rows)
    state.reports.has_scored = True
    results.last_score = float(values[-1])  # type: ignore[arg-type]
    results.last = _metrics(keys, rows[-1], results.iteration)
    if is_better(state, float(best), results.best_score):  # type: ignore[arg-type]
        index = values.index(best)
        results.best_score = float(best)  # type: ignore[arg-type]
        is_last = index == len(rows) - 1
        results.best = results.last if is_last else _metrics(keys, rows[index], start + index + 1)
    return True


def _take_each(
    state: SweepState, trial: Trial, keys: tuple[str, ...], rows: tuple[Row, ...], out: Out
) -> None:
    results = trial.results
    for taken, row in enumerate(rows, start=1):
        results.iteration += 1
        reason = _take_one(state, trial, _metrics(keys, row, results.iteration), out)
        if reason is not None:
            results.overrun += len(rows) - taken
            if trial.stop_reason in ("interrupt", "hung"):
                trial.stop_reason = reason  # it is on its way out anyway
            else:
                transitions.ask_to_end(state, trial, reason, out)
            return


def _take_one(state: SweepState, trial: Trial, metrics: Metrics, out: Out) -> StopReason | None:
    results = trial.results
    rules, objective = state.rules, state.rules.objective
    raw = metrics.get(objective.metric)
    value = as_number(raw)
    if rules.limits.fails_on_non_finite and (
        _is_non_finite(raw) or _is_non_finite(metrics.get(objective.compared))
    ):
        return "non_finite"
    results.last = metrics
    if rules.stoppers.remember_reports:
        trial_rules.record(state, trial, metrics, value)
    if value is not None:
        state.reports.has_scored = True
        results.last_score = value
        if is_better_report(state, trial, value, metrics):
            results.best_score, results.best = value, metrics
    return _verdict(state, trial, metrics, value, out)


def _is_non_finite(value: JsonValue) -> bool:
    return isinstance(value, str) and value in NON_FINITE


def _verdict(
    state: SweepState, trial: Trial, metrics: Metrics, value: float | None, out: Out
) -> StopReason | None:
    rules, objective, extended_to = state.rules, state.rules.objective, trial.continued.max_t
    time = as_number(metrics.get(objective.time_attr))
    decisions = NOTHING
    if time is not None:
        state.reports.has_timed = True
        if objective.compared:
            decisions = _compare(state, trial, time, metrics)
        elif value is not None and extended_to is None:
            if objective.others:
                others = tuple(as_number(metrics.get(name)) for name, _ in objective.others)
                decisions = tell_report(state.scheduler, trial.number, time, value, others)
            else:
                decisions = state.scheduler.report(trial.number, time, value)
            if rules.search.tells_rungs:
                _tell_rung(state, trial, decisions, time, value, out)
        if decisions:
            state.work.undecided.extend(each for each in decisions if each[0] != trial.number)
    # What ends the whole sweep counts before what would only end the trial.
    if rules.ends.target is not None and _reaches_target(state, trial, metrics, value):
        return "limit"
    max_t = rules.limits.max_t if extended_to is None else extended_to
    if max_t is not None and time is not None and time >= max_t:
        return "limit"
    # Where a trial is extended, no other limit on its time counts.
    for limit in rules.limits.values:
        if extended_to is not None and limit[0] == objective.time_attr:
            continue
        if _is_beyond(metrics.get(limit[0]), limit):
            return "limit"
    if rules.stoppers.are_any and extended_to is None:
        ended = trial_rules.judge(state, trial, metrics)
        if ended is not None:
            return ended
    return _own_verdict(state, trial, decisions, out) if decisions else None


def _compare(state: SweepState, trial: Trial, time: float, metrics: Metrics) -> Decisions:
    """The decisions of a scheduler that compares trials by a metric of its own."""
    value = as_number(metrics.get(state.rules.objective.compared))
    if value is None or trial.continued.max_t is not None:
        return NOTHING
    return state.scheduler.report(trial.number, time, value)


def _tell_rung(
    state: SweepState, trial: Trial, decisions: Decisions, time: float, value: float, out: Out
) -> None:
    """Tell the search if the scheduler has compared the trial by this report, or it has done all its work."""
    is_done = state.rules.limits.max_t is not None and time >= state.rules.limits.max_t
    if is_done or any(number == trial.number for number, _ in decisions):
        state.search.rungs.append((trial.number, time, value))
        out.append(TellRung(trial=trial.number, time=time, value=value))


def _own_verdict(state: SweepState, trial: Trial, decisions: Decisions, out: Out) -> StopReason | None:
    """The decision of the scheduler about the trial that reported: the last word counts."""
    own = [verdict for number, verdict in decisions if number == trial.number]
    if not own or isinstance(own[-1], Resume):
        return None
    turn = continuations.turn_of(state, trial, own[-1])
    continuations.give(state, trial, turn, out)
    return turn.reason


def _reaches_target(state: SweepState, trial: Trial, metrics: Metrics, value: float | None) -> bool:
    rules = state.rules
    # A search that has ended by its target has trials go further than that.
    if state.end.of_search is not None or value is None or rules.ends.target is None:
        return False
    if not _hits(value, rules.ends.target, rules.objective.is_max):
        return False
    if violation(state, metrics):
        return False
    state.end.target_trial = trial.number
    return True


def take_checkpoint(state: SweepState, trial: Trial, event: CheckpointCommitted, out: Out) -> None:
    """Remember a committed checkpoint, and release those that the policy does not keep."""
    results = trial.results
    iteration = results.attempt_iteration + event.report + 1
    is_latest = iteration == results.iteration
    score = event.score
    if score is None and is_latest:
        score = as_number(results.last.get(state.rules.objective.metric))
    checkpoint = _checkpoint(event, iteration, score)
    trial.results.next_checkpoint = event.number + 1
    transitions.hear(state, trial, event.at)
    if _is_past_verdict(trial, iteration) or _is_past_end(state, trial, iteration):
        continuations.discard(state, trial.number, checkpoint, out)
        return
    continuations.let_origin_go(state, trial, out)
    retention.add(state, trial, checkpoint, out)


def _is_past_verdict(trial: Trial, iteration: int) -> bool:
    """True if the trial continues from before a checkpoint, or from elsewhere: it does not count then."""
    last = trial.attempts[-1] if trial.attempts and trial.attempts[-1].attempt == trial.attempt else None
    if last is not None and last.donor is not None:
        return True
    goes_on = last.end in _GOES_ON if last is not None else trial.stop_reason in _GOES_ON.values()
    return goes_on and iteration > trial.results.iteration


def _is_past_end(state: SweepState, trial: Trial, iteration: int) -> bool:
    """True if a trial that ends for good was to end before a checkpoint, as an older one of it shows.

    Its metrics are those of its end: from past them it would begin where it is not known
    what it had reached. Where it has no other, that is still better than none.
    """
    if iteration <= trial.results.iteration or not trial.results.overrun or not trial.checkpoints:
        return False
    return trial.stop_reason in ("scheduler", "limit") or trial.state in retention.RANKED


def drop_damaged(state: SweepState, trial: Trial, event: CheckpointDamaged, out: Out) -> None:
    """The trial goes back to the checkpoint before its newest one.

    That goes: a manifest that cannot be read would keep anything else of the trial from being deleted.
    """
    if len(trial.checkpoints) < 2 or trial.checkpoints[-1].uri != event.uri:
        return
    *older, damaged = trial.checkpoints
    trial.checkpoints = tuple(older)
    trial.ancestry = replace(trial.ancestry, inherited=NO_METRICS)
    text = (
        f"trial {trial.number}: checkpoint {damaged.number} is damaged ({event.problem}); it resumed from"
        f" checkpoint {older[-1].number}, {damaged.iteration - older[-1].iteration} reports earlier"
    )
    transitions.note(state, text)
    continuations.discard(state, trial.number, damaged, out)


def let_go(state: SweepState, trial: Trial, event: CheckpointCommitted, out: Out) -> None:
    """Delete what an attempt committed and nothing waits for any more, unless the trial has it already."""
    if all(checkpoint.number != event.number for checkpoint in trial.checkpoints):
        continuations.discard(state, trial.number, _checkpoint(event, 0, None), out)


def _checkpoint(event: CheckpointCommitted, iteration: int, score: float | None) -> Checkpoint:
    return Checkpoint(
        number=event.number,
        iteration=iteration,
        uri=event.uri,
        score=score,
        size_bytes=event.size_bytes,
        rank=event.rank,
    )


def _metrics(keys: tuple[str, ...], row: Row, iteration: int) -> Metrics:
    metrics: Metrics = dict(zip(keys, row, strict=False))
    metrics.setdefault(TRAINING_ITERATION, iteration)
    return metrics


def _is_beyond(value: JsonValue, limit: Limit) -> bool:
    number = as_number(value)
    if number is None:
        return False
    _, at_least, above, below = limit
    return (
        (at_least is not None and number >= at_least)
        or (above is not None and number > above)
        or (below is not None and number < below)
    )


def _hits(value: float, target: float, is_max: bool) -> bool:
    return value >= target if is_max else value <= target
