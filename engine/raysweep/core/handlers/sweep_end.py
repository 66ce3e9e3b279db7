"""The end of the sweep, reached in time: deadline, budgets, plateau. Values in, decisions out.

A deadline and a budget are one thing seen twice: an end in sight, at a moment (`End.at`) that is known, or
that is known while the number of open slots stays as it is. From it the sweep plans backwards:

| time | what is done |
|---|---|
| a first report would come too late | no trial begins any more (`admits`) |
| just one more checkpoint can come in time | the trial is asked for that one, and ends with it |
| no checkpoint, but just one more report can | its next report is its last (`plan_end_of`) |
| the end | what still runs is interrupted at once; the grace has been before |

What is asked to end this way (`ending`) is cut, not stopped: its reports count up to its last, and it
continues from its last checkpoint if the sweep is opened again (`reopen`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Final

from pydantic import JsonValue

from raysweep.core.handlers import transitions
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Trial
from raysweep.core.state.trial_parts import Pace
from raysweep.core.views.scores import consider_best, is_better, may_be_best
from raysweep.core.vocabulary.commands import Command, SweepStatus
from raysweep.core.vocabulary.lifecycle import Cause
from raysweep.numeric.shown import show_number
from raysweep.space.grid_points import grid_points

Out = list[Command]

ENDS_THAT_STAY: Final = frozenset({"plateau", "target"})
"""The ends of a search that are for good: trials of it can go further, and it stays ended so."""
_WINDOW: Final = 20
_CAUTIOUS: Final = 0.9
# What a report needs to get here, and what steps vary by.
_MARGIN_S: Final = 0.5
_MARGIN: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """An end in sight: when, by which field of the spec, and that field's limit."""

    at: float
    status: SweepStatus
    rule: str
    limit: JsonValue


def end_in_sight(state: SweepState) -> End | None:
    """The nearest end by a deadline or a budget, if slots stay as they are."""
    clock = state.clock
    rules = state.rules
    ends: list[End] = []
    if clock.deadline_at is not None:
        limit = clock.deadline_text or clock.deadline_at
        at = clock.deadline_at - clock.ahead_s
        ends.append(End(at=at, status="deadline", rule="stop.deadline", limit=limit))
    if rules.ends.time_budget_s is not None:
        at = state.controller.started_at + rules.ends.time_budget_s - state.controller.active_before_s
        ends.append(End(at=at, status="budget", rule="stop.time_budget_s", limit=rules.ends.time_budget_s))
    for rule, limit, limit_s in rules.ends.budgets:
        if state.meter.open_slots or state.end.has_cut or state.meter.slot_s >= limit_s:
            at = state.meter.slot_s_at + max(0.0, limit_s - state.meter.slot_s) / max(
                1, state.meter.open_slots
            )
            ends.append(End(at=at, status="budget", rule=rule, limit=limit))
    return min(ends, key=lambda end: end.at, default=None)


# -- what is seen -------------------------------------------------------------------------------------------


def meter(state: SweepState, at: float) -> None:
    """Count the time of the open slots up to now; called whenever their number may have changed."""
    count = state.tally.open_slots
    if count != state.meter.open_slots:
        count_until(state, at)
        state.meter.open_slots = count


def count_until(state: SweepState, at: float) -> None:
    """Count the time of the open slots up to `at`."""
    state.meter.slot_s += state.meter.open_slots * max(0.0, at - state.meter.slot_s_at)
    state.meter.slot_s_at = max(at, state.meter.slot_s_at)


def usage(state: SweepState, at: float) -> dict[str, float]:
    """The use of the sweep up to `at`: CPU-hours, GPU-hours, cost, and the seconds it was at work."""
    seconds = state.meter.slot_s + state.meter.open_slots * max(0.0, at - state.meter.slot_s_at)
    used = {name: amount * seconds / 3600.0 for name, amount in state.rules.ends.use_per_slot_hour}
    return used | {"active_s": state.controller.active_s(at)}


def note_report(state: SweepState, trial: Trial, rows: int, at: float) -> None:
    """Remember how long the trial took from report to report."""
    if trial.attempt_started_at is None or not rows:
        return
    pace = _pace_of(trial)
    if pace.reported_at is None:
        seconds = (at - trial.attempt_started_at) / rows
        state.meter.first_reports_s = (*state.meter.first_reports_s, seconds)[-_WINDOW:]
    else:
        seconds = (at - pace.reported_at) / rows
        pace.step_s = seconds if pace.step_s is None else max(seconds, 0.5 * (pace.step_s + seconds))
    pace.reported_at = at
    state.tally.note_pace(seconds, at)


def _pace_of(trial: Trial) -> Pace:
    """The pace of a trial's present attempt."""
    if trial.pace is None:
        trial.pace = Pace()
    return trial.pace


def note_checkpoint(state: SweepState, trial: Trial, at: float) -> None:
    """Remember how long the trial took from checkpoint to checkpoint."""
    pace = _pace_of(trial)
    since = pace.saved_at if pace.saved_at is not None else trial.attempt_started_at
    if since is not None:
        pace.save_s = at - since
        state.meter.saves_s = (*state.meter.saves_s, pace.save_s)[-_WINDOW:]
        state.tally.note_pace(pace.save_s, at)
    pace.saved_at = at


def _cautious(seconds: tuple[float, ...]) -> float | None:
    """The time within which nine in ten stayed."""
    return sorted(seconds)[ceil(_CAUTIOUS * len(seconds)) - 1] if seconds else None


def _margin(seconds: float) -> float:
    return min(_MARGIN_S, seconds) + _MARGIN * seconds


# -- what is decided ----------------------------------------------------------------------------------------


def admits(state: SweepState, at: float) -> bool:
    """True if a trial that begins now can still report in time."""
    end = end_in_sight(state)
    if end is None:
        return True
    first_s = _cautious(state.meter.first_reports_s) or 0.0
    return at + first_s + _margin(first_s) < end.at


def plan_end_of(state: SweepState, trial: Trial, at: float, out: Out) -> None:
    """After a report or checkpoint of a running trial: is the next one its last? Then ask it to end there."""
    if trial.state != "running" or state.phase != "running" or state.end.is_interrupted:
        return
    end = end_in_sight(state)
    if end is None or trial.attempt_started_at is None:
        return
    pace = trial.pace or Pace()
    save_s = pace.save_s if pace.save_s is not None else _cautious(state.meter.saves_s)
    if save_s is not None:
        saved_at = pace.saved_at if pace.saved_at is not None else trial.attempt_started_at
        next_at = max(at, saved_at + save_s)
        if next_at + _margin(save_s) <= end.at:
            if next_at + save_s + _margin(save_s) > end.at:
                _ask(state, trial, end.at - at, out, wants_checkpoint=True)
            return
    step_s, reported_at = pace.step_s, pace.reported_at
    if step_s is not None and reported_at is not None and reported_at + 2 * step_s + _margin(step_s) > end.at:
        _ask(state, trial, end.at - at, out, wants_checkpoint=False)


def take_end(state: SweepState, at: float, out: Out) -> None:
    """End the sweep if a deadline or a budget is reached."""
    end = end_in_sight(state)
    if end is None:
        return
    if at >= end.at:
        end_sweep(state, end, at, out)
    elif not state.end.is_interrupted and state.phase == "running" and _comes_soon(state, end, at):
        for trial in [state.trials[number] for slot in state.slots.values() for number in slot.queue]:
            plan_end_of(state, trial, at, out)


def _comes_soon(state: SweepState, end: End, at: float) -> bool:
    """True if the end may be so near that some trial's next report or checkpoint is its last.

    False for certain: no trial plans further ahead than twice the longest time between two of these.
    """
    longest_s, latest_at = state.tally.longest_s, max(state.tally.latest_at, at)
    return end.at <= latest_at + 2 * (longest_s + _margin(longest_s)) + 1.0


def end_if_idle(state: SweepState, at: float, out: Out) -> None:
    """End the sweep before its time where nothing runs, and nothing that begins could report in time.

    Not while the cluster is not known yet: a controller that has just begun may bring a later deadline.
    """
    if state.phase != "running" or not state.room.capacity or state.tally.busy_slots:
        return
    end = end_in_sight(state)
    if end is not None:
        end_sweep(state, end, at, out)


def end_sweep(state: SweepState, end: End, at: float, out: Out) -> None:
    """End the sweep by a limit: nothing starts any more, what runs is interrupted at once."""
    if state.phase != "running":
        return
    used = usage(state, at)
    value: JsonValue = used["active_s"] if end.rule == "stop.time_budget_s" else at + state.clock.ahead_s
    if end.rule.startswith("stop.budget."):
        value = used[end.rule.rpartition(".")[2]]
    for slot in state.slots.values():
        for number in slot.queue:
            trial = state.trials[number]
            if trial.state == "running":
                _ask(state, trial, 0.0, out, wants_checkpoint=False)
            elif trial.state == "stopping" and trial.stop_reason is not None:
                # One that was to move to another node has none to move to.
                reason = "ending" if trial.stop_reason == "preempt" else trial.stop_reason
                transitions.ask_to_end(state, trial, reason, out, grace_s=0.0)
    state.end.by = {"rule": end.rule, "limit": end.limit, "value": value}
    transitions.stop_sweep(state, end.status, _why(end, value), at, out)


def note_completed(state: SweepState, trial: Trial, score: float | None, at: float, out: Out) -> None:
    """A trial has completed: has the sweep come to a plateau?"""
    ranking = state.ranking
    plateau = state.rules.ends.plateau
    if plateau is None or score is None:
        return
    best = ranking.plateau_best
    if not may_be_best(state, trial):
        # It moves no best; where there is none yet, none has come to rest.
        if best is None:
            return
        score = best
    gain = 0.0 if best is None else (score - best if state.rules.objective.is_max else best - score)
    if best is None or (gain >= plateau.min_improvement and is_better(state, score, best)):
        ranking.plateau_best, ranking.plateau_since = score, 0
        return
    ranking.plateau_since += 1
    completed = state.line.counts["completed"]
    if ranking.plateau_since < plateau.window or completed < plateau.min_trials or state.phase != "running":
        return
    state.end.by = {
        "rule": "stop.plateau",
        "limit": plateau.min_improvement,
        "value": ranking.plateau_since,
        "best": best,
    }
    why = f"plateau: {ranking.plateau_since} completed trials without "
    why += (
        f"a gain of {plateau.min_improvement:g} over {show_number(best)}"
        if plateau.min_improvement
        else (f"anything better than {show_number(best)}")
    )
    transitions.stop_sweep(state, "plateau", why, at, out)


def note_target(state: SweepState) -> None:
    """The target is why the sweep ends: keep the numbers."""
    end = state.end
    if end.target_trial is not None and state.phase == "running":
        trial = state.trials[end.target_trial]
        end.by = {
            "rule": "stop.target",
            "limit": state.rules.ends.target,
            "value": trial.results.last_score,
            "trial": trial.number,
        }


def _why(end: End, value: JsonValue) -> str:
    match end.rule:
        case "stop.deadline" if isinstance(end.limit, str):
            moment = datetime.fromisoformat(end.limit)
            return f"deadline {moment.timetz().isoformat(timespec='minutes')}"
        case "stop.deadline":
            return "deadline"
        case "stop.time_budget_s":
            return f"time budget {end.limit:g} s, {show_number(value)} s used"
        case "stop.budget.cost":
            return f"budget: cost {value:.4g} of {end.limit:g}"
        case _:
            unit = "GPU-hours" if end.rule.endswith("gpu_hours") else "CPU-hours"
            return f"budget: {value:.4g} of {end.limit:g} {unit}"


def _ask(state: SweepState, trial: Trial, grace_s: float, out: Out, *, wants_checkpoint: bool) -> None:
    grace_s = max(0.0, grace_s)
    transitions.ask_to_end(state, trial, "ending", out, grace_s=grace_s, wants_checkpoint=wants_checkpoint)


def wanted_trials(state: SweepState) -> int | None:
    """The number of trials that the spec asks for; None where only the searcher knows."""
    spec = state.spec
    if spec.is_open_ended or not spec.search.options.is_counted or spec.num_samples is None:
        return None
    points = 1
    if state.rules.search.max_trials is None:
        points = grid_points(spec.param_space, has_lattices=spec.search.options.needs_grid)
    return spec.num_samples * points * state.rules.search.repeats


def wait_no_longer(state: SweepState, last_at: float, at: float) -> None:
    """A clock that was set back between two controllers (`last_at`, `at`) makes no trial back off longer."""
    if at >= last_at:
        return
    for number, due_at in state.line.waiting.items():
        due_at += at - last_at
        state.trials[number].due_at = state.line.waiting[number] = due_at
        state.tally.wait(number, due_at)


# -- after the end ------------------------------------------------------------------------------------------


def set_deadline(state: SweepState, text: str) -> None:
    """Take the deadline that an event names; where it names none, the spec's own stands."""
    if text:
        state.clock.deadline_text, state.clock.deadline_at = text, datetime.fromisoformat(text).timestamp()


def rest(state: SweepState) -> None:
    """The search stays as it has ended, by a plateau or a target, while some of its trials go further."""
    end = state.end
    if end.status in ENDS_THAT_STAY:
        end.of_search = {"status": end.status, "why": end.why, "ended_by": end.by}
        state.search.is_exhausted, end.has_cut, end.target_trial = True, False, None


def reopen(state: SweepState) -> None:
    """A sweep that had ended continues: what was cut is to run again, from its checkpoints.

    Not where its search is over (`rest`), and only trials go further.
    """
    end = state.end
    state.phase, end.status, state.clock.ended_at, end.by = "running", None, None, None
    end.why, end.fault, end.fault_field = "", None, ""
    end.reopened += 1
    if end.of_search is None:
        # Perhaps more samples are asked for: the searcher says so itself.
        state.search.is_exhausted = False
    bring_back(state)


def bring_back(state: SweepState) -> None:
    """Take back the trials that an end in sight had cut: they run after all."""
    state.end.has_cut = False
    for number, trial in sorted(state.trials.items()):
        if trial.state != "cancelled" or (state.end.of_search is not None and trial.continued.max_t is None):
            continue
        trial = take_back(state, trial, "brought")
        if trial.continued.max_t is None:
            state.scheduler.add(number, trial.config)
    find_best(state)


def take_back(state: SweepState, trial: Trial, cause: Cause) -> Trial:
    """A trial that had ended is to run again; the one to change."""
    trial = transitions.thaw(state, trial)
    transitions.move(state, trial, cause)
    trial.ended_at = None
    state.line.active[trial.number] = None
    if trial.is_large:
        state.line.hungry_for_memory += 1
    transitions.enqueue(state, trial.number)
    if trial.results.saved and trial.checkpoint is None:
        transitions.note(
            state, f"trial {trial.number} starts over: the checkpoint policy deleted its checkpoints"
        )
    return trial


def find_best(state: SweepState) -> None:
    """The best of those that have ended, where some have not any more."""
    state.ranking.best_ended = None
    for number, trial in state.trials.items():
        if number not in state.line.active and trial.state != "failed":
            consider_best(state, trial)
