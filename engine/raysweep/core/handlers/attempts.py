"""Beginnings and ends of attempts, and effects of an end on trial, slot, scheduler, searcher and sweep."""

from __future__ import annotations

from dataclasses import replace

from raysweep.core.handlers import (
    continuations,
    missing_metrics,
    repeats,
    sequential,
    sizes,
    sweep_end,
    transitions,
    trial_rules,
    unreported,
)
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.sweep_parts import Fault
from raysweep.core.state.trial import Trial
from raysweep.core.state.trial_parts import Attempt
from raysweep.core.views.lineage import inherit, up_to
from raysweep.core.views.scores import (
    as_number,
    consider_best,
    other_values,
    score_of,
    tell_search,
    told,
    told_at,
    trial_time,
)
from raysweep.core.vocabulary.commands import Command, ExcludeNode
from raysweep.core.vocabulary.failures import (
    Failure,
    FailureKind,
    backoff_s,
    classify,
    is_retried,
    more_memory,
    same_budget,
)
from raysweep.core.vocabulary.lifecycle import FINAL, Cause
from raysweep.schedulers import Decisions, tell_end

Out = list[Command]

# Failures of these classes are the cluster's, not the user's.
_INFRASTRUCTURE = frozenset({"worker_died", "hung", "oom", "preempted", "no_room"})
# What a bad node can do to a trial. Memory is used up by trials, not by nodes.
_BLAMED = frozenset({"user_error", "worker_died", "hung"})
# The share of failed trials says little before this many have ended.
_MIN_ENDED = 4
_VERDICTS = frozenset({"scheduler", "pause", "resume", "exploit", "non_finite", "damage"})


def return_attempt(state: SweepState, trial: Trial, at: float, out: Out) -> None:
    """User code came to its own end."""
    reason = trial.stop_reason
    # A verdict stands, also where the return crossed it on the wire; and a sweep's end that left reports out
    # of account leaves no result to complete with.
    if reason in _VERDICTS or (reason == "sweep" and trial.results.overrun):
        stop_attempt(state, trial, at, out)
    else:
        _conclude(state, trial, "returned", at, out)


def stop_attempt(state: SweepState, trial: Trial, at: float, out: Out, where: str = "") -> None:
    """User code ended as the core had asked; `where` is its traceback, if that is known."""
    match trial.stop_reason:
        case "limit":
            _conclude(state, trial, "reached", at, out)
        case "non_finite":
            _give_up(state, trial, missing_metrics.non_finite(state.spec.metric), at, out)
        case "sweep":
            _close(state, trial, at, "cut", out)
        case "ending":
            state.end.has_cut = True
            _close(state, trial, at, "cut", out)
        case "interrupt":
            _close(state, trial, at, "kept", out)
        case "preempt":
            _close(state, trial, at, "moved", out)
        case "pause":
            _close(state, trial, at, "paused", out)
        case "resume":
            _close(state, trial, at, "resumed", out)
        case "exploit":
            _close(state, trial, at, "exploited", out)
        case "damage":
            _close(state, trial, at, "went_back", out)
        case "hung":
            _fail(state, trial, _hung(state, where), at, out)
        case _:
            _close(state, trial, at, "halted", out)


def fail_attempt(state: SweepState, trial: Trial, failure: Failure, at: float, out: Out) -> None:
    """The attempt failed: retry, requeue or give up, as class and budget say."""
    if trial.state == "stopping":
        # It was to end anyway; how it went is not held against it.
        stop_attempt(state, trial, at, out)
    else:
        _fail(state, trial, failure, at, out)


def lose_attempt(state: SweepState, trial: Trial, at: float, out: Out) -> None:
    """The trial's worker is gone by no fault of the trial's: it runs again, and is not charged."""
    if trial.state == "stopping" and not _may_be_donor(state, trial):
        # It was to end anyway; how it went is not held against it.
        stop_attempt(state, trial, at, out)
    elif trial.state in ("running", "stopping"):
        _close(state, trial, at, "lost", out)
    else:
        transitions.requeue(state, trial, "lost")


def _may_be_donor(state: SweepState, trial: Trial) -> bool:
    """True if others may continue from what a trial was about to store as it paused, and that is lost now.

    It makes that step again, and pauses again. Under a scheduler without donors it may have been the trial's
    last step.
    """
    if trial.stop_reason != "pause" or not state.scheduler.pauses_again:
        return False
    return trial.checkpoint is None or trial.checkpoint.iteration < trial.results.iteration


def halt(state: SweepState, trial: Trial, at: float, out: Out) -> None:
    """The scheduler stops a trial that no slot has."""
    transitions.move(state, trial, "halted")
    _finish(state, trial, at, None, out)


def fail_config(state: SweepState, trial: Trial, failure: Failure, at: float, out: Out) -> None:
    """The trial's config could not be made: it has failed before any slot had it."""
    trial.attempt += 1
    trial.is_unmade = True
    _give_up(state, trial, failure, at, out)


def _fail(state: SweepState, trial: Trial, failure: Failure, at: float, out: Out) -> None:
    kind = classify(failure)
    if state.phase != "running":
        _close(state, trial, at, "cut", out, failure, kind)
        return
    if kind in _BLAMED:
        blame_node(state, trial.number, trial.node, out)
    policy = state.spec.failure
    earlier = trial.count_failures(*same_budget(kind), but_on=state.room.excluded)
    is_again = is_retried(failure, kind, earlier, trial.results.reports, policy)
    if kind == "gpu_oom" and sizes.take_whole_gpu(state, trial):
        is_again = True
        transitions.note(
            state,
            f"trial {trial.number} ran out of the memory of a GPU that it shared: retried with a whole one",
        )
    if not is_again:
        _give_up(state, trial, failure, at, out)
    elif kind == "oom" and not _gets_memory(state, trial, failure):
        _give_up(state, trial, _too_large(state, failure), at, out)
    elif kind == "preempted":
        _close(state, trial, at, "lost", out, failure, kind)
    else:
        retries = sum(attempt.end == "retried" for attempt in trial.attempts[trial.continued.pardoned :])
        trial.due_at = at + backoff_s(policy, state.seed, trial.number, retries + 1)
        _close(state, trial, at, "retried", out, failure, kind)


def give_up_pending(state: SweepState, trial: Trial, failure: Failure, at: float, out: Out) -> None:
    """A trial that no slot can be had for fails: in an attempt of its own, that never began."""
    state.line.pending.remove(trial.number)
    trial.attempt += 1
    trial.node = ""
    _give_up(state, trial, failure, at, out)


def blame_node(state: SweepState, trial: int, node: str, out: Out) -> None:
    """Note a failure on a node; one that fails several trials, while none fail elsewhere, gets no more."""
    room = state.room
    limit = state.spec.failure.bad_node_failures
    if not limit or not node:
        return
    failed = room.node_failures.setdefault(node, [])
    if trial not in failed:
        failed.append(trial)
    if len(failed) >= limit and node not in room.excluded and _may_be_the_node(state):
        room.excluded.append(node)
        text = f"node {node} gets no more trials: {len(failed)} failed there, none elsewhere"
        transitions.note(state, text)
        out.append(ExcludeNode(node=node))
        for slot in state.slots.values():
            if slot.is_on((node,)):
                transitions.leave(state, slot, out)


def _may_be_the_node(state: SweepState) -> bool:
    """True if all failures were on one node, and other nodes are there to show that it is not the code."""
    room = state.room
    if len(room.node_failures) != 1:
        return False
    tally = state.tally
    if room.nodes > 1 and tally.open_slots < len(state.slots):
        return True
    return any(tally.nodes[node] for node in tally.nodes if node not in room.node_failures)


def _gets_memory(state: SweepState, trial: Trial, failure: Failure) -> bool:
    """See to it that the next attempt has more memory; False: there is no more."""
    asked = state.spec.shape.bundles[0].get("memory")
    base = trial.needs.memory_bytes or (int(asked) if asked else failure.memory_bytes)
    wanted = more_memory(base, state.spec.failure.oom_memory_factor, state.room.largest_memory)
    if wanted is None:
        return False
    if wanted > (asked or 0):
        state.line.hungry_for_memory += not trial.is_large
        trial.needs = replace(trial.needs, memory_bytes=wanted)
        state.tally.large.add(trial.number)
    return True


def _too_large(state: SweepState, failure: Failure) -> Failure:
    most = state.room.largest_memory / 2**30
    message = f"{failure.message}; the largest node has {most:.3g} GiB for a trial, which was not enough"
    return replace(failure, message=message)


def _hung(state: SweepState, where: str) -> Failure:
    limit = state.rules.limits.report_timeout_s or 0.0
    message = f"no report for {limit:g} s (failure.report_timeout_s)"
    return Failure(origin="hang", type="TrialHung", message=message, traceback=where)


def end_orphan(state: SweepState, trial: Trial, at: float, out: Out) -> None:
    """The trial was on a worker of a controller that is gone."""
    if trial.state == "stopping" and trial.stop_reason == "ending":
        # It was to end in time with its controller, and there may be time again.
        _close(state, trial, at, "kept", out)
    else:
        lose_attempt(state, trial, at, out)


def fault_of(state: SweepState) -> Fault:
    """The side that has to look into a sweep whose trials failed."""
    kinds = {kind for kind, number in state.line.failed_kinds.items() if number}
    return "infrastructure" if kinds and kinds <= _INFRASTRUCTURE else "user"


def _conclude(state: SweepState, trial: Trial, cause: Cause, at: float, out: Out) -> None:
    """The trial has done all its work; that counts as completed if there is a score to show for it.

    One that continued from where there was nothing left to do has none of its own, and has not failed: what
    was reported with the checkpoint that it continued from is its result.
    """
    results = trial.results
    rules = state.rules
    ran = trial.config
    if trial.has_gone_on_anew and not _inherit(state, trial):
        _close(state, trial, at, cause, out)
        return
    if results.last_score is None and state.spec.is_ranked:
        # It may have returned by itself, once the report that came too late was made.
        is_cut_short = cause == "reached" or trial.stop_reason == "limit"
        failure = missing_metrics.missing_score(state, trial, is_cut_short=is_cut_short)
        _give_up(state, trial, failure, at, out)
        return
    lacking = None
    if rules.objective.constraints or rules.objective.others:
        lacking = missing_metrics.missing_other(state, trial)
    if lacking is not None:
        _give_up(state, trial, lacking, at, out)
        return
    _close(state, trial, at, cause, out)
    if trial.config != ran:
        trial.attempts = (*trial.attempts[:-1], replace(trial.attempts[-1], config=ran))
    if state.spec.is_ranked and rules.objective.time_attr not in results.last:
        _note_missing(state, trial, rules.objective.time_attr, "time_attr", at, out)
    if rules.objective.compared and rules.objective.compared not in results.last:
        _note_missing(state, trial, rules.objective.compared, "metric", at, out)
    if rules.named:
        unreported.note_missing(state, f"trial {trial.number}")


def _inherit(state: SweepState, trial: Trial) -> bool:
    """Give a trial the result of its checkpoint; False: it is not known, or lacks what a result must have.

    The report that came with a checkpoint need not have all that the last one of a trial has.
    """
    results, ancestry = trial.results, trial.ancestry
    rules = state.rules
    if not ancestry.inherited or not up_to(ancestry.lineage, results.attempt_iteration):
        return False
    score = as_number(ancestry.inherited.get(rules.objective.metric))
    own = (results.last, results.best)
    results.last = results.best = ancestry.inherited
    lacks = missing_metrics.missing_other(state, trial)
    results.last, results.best = own
    looked_at = (
        rules.objective.time_attr,
        rules.objective.compared or rules.objective.time_attr,
    )
    if score is None or lacks is not None or any(name not in ancestry.inherited for name in looked_at):
        return False
    inherit(trial)
    sizes.note(state, trial)
    results.last_score = results.best_score = score
    owner = ancestry.origin.owner if ancestry.origin is not None else None
    what = "with another config" if owner is None else f"from a checkpoint of trial {owner}"
    text = f"trial {trial.number} continued {what} and reported nothing more"
    transitions.note(state, f"{text}: its result, and its config, are those of that checkpoint")
    return True


def _note_missing(state: SweepState, trial: Trial, name: str, option: str, at: float, out: Out) -> None:
    """A completed trial has not reported what the scheduler looks at: the spec may be wrong, or this one."""
    field = f"scheduler.{state.spec.scheduler.kind}.{option}"
    if option == "metric" and state.spec.scheduler.comparing is not None:
        field = f"scheduler.{state.spec.scheduler.comparing[0]}.metric"
    is_first = state.line.counts.get("completed", 0) == 1
    is_known = (
        state.reports.has_timed
        if option == "time_attr"
        else any(name in t.results.last for t in state.trials.values())
    )
    if is_first and not is_known and state.spec.evaluate is None:
        seen = ", ".join(map(repr, state.reports.keys))
        problem = f"{name!r} was never reported by trial {trial.number}; the trainable reports {seen}"
        transitions.stop_sweep(state, "failed", problem, at, out, fault="spec", fault_field=field)
    else:
        # Others have reported it: the spec is right, and this trial's score is as good as theirs.
        transitions.note(state, f"the last report of trial {trial.number} has no {name!r} ({field})")


def _give_up(state: SweepState, trial: Trial, failure: Failure, at: float, out: Out) -> None:
    """The trial failed for good; and with it perhaps the sweep, before it burns hours on a typo."""
    line = state.line
    kind = classify(failure)
    if trial.continued.max_t is not None and trial.results.last_score is not None:
        transitions.note(
            state, f"trial {trial.number} failed where it was to go further: what it had before stands"
        )
        _close(state, trial, at, "fell_back", out, failure, kind)
        return
    _close(state, trial, at, "gave_up", out, failure, kind)
    line.failed_kinds[kind] = line.failed_kinds.get(kind, 0) + 1
    # Where checkpoints are evaluated apart, one trial's evaluations may all have failed: that says nothing.
    is_known = state.reports.has_scored or state.spec.evaluate is not None
    if failure.type == missing_metrics.NO_METRIC and not is_known:
        transitions.stop_sweep(state, "failed", failure.message, at, out, fault="spec", fault_field="metric")
    elif failure.type in missing_metrics.NOT_BESIDE and not (
        line.counts.get("completed") or state.spec.evaluate is not None
    ):
        field = missing_metrics.NOT_BESIDE[failure.type]
        transitions.stop_sweep(state, "failed", failure.message, at, out, fault="spec", fault_field=field)
    else:
        why = _breaker(state, trial, failure)
        if why:
            transitions.stop_sweep(state, "failed", why, at, out, fault=fault_of(state))


def _close(
    state: SweepState,
    trial: Trial,
    at: float,
    cause: Cause,
    out: Out,
    failure: Failure | None = None,
    kind: FailureKind | None = None,
) -> None:
    started_at, number = trial.attempt_started_at, trial.number
    ended = Attempt(
        attempt=trial.attempt,
        started_at=started_at,
        ended_at=at,
        end=cause,
        node=trial.node,
        kind=kind,
        failure=failure,
    )
    trial.attempts = (*trial.attempts, ended)
    was_asked = trial.state == "stopping"
    transitions.move(state, trial, cause)
    slot = state.slots.get(trial.slot) if trial.slot is not None else None
    if slot is not None:
        if slot.queue and slot.queue[0] == number:
            slot.queue.popleft()
        else:
            slot.queue.remove(number)
        transitions.mark_hungry(state, slot)
    trial.slot = trial.stop_reason = trial.attempt_started_at = None
    if state.rules.search.tells_pauses and cause in ("paused", "resumed"):
        _tell_pause(state, trial, out)
    if cause in ("resumed", "exploited") and trial.turn is not None:
        continuations.follow(state, trial, trial.turn, out)
    if was_asked:
        continuations.drop(state, trial, out)
    if trial.state in FINAL:
        _finish(state, trial, at, started_at, out)
    elif trial.state == "waiting":
        state.line.waiting[number] = trial.due_at if trial.due_at is not None else at
        state.tally.wait(number, state.line.waiting[number])
    elif trial.state == "pending":
        transitions.enqueue(state, number)


def _tell_pause(state: SweepState, trial: Trial, out: Out) -> None:
    """It may never continue: until it has ended, what it had reached counts."""
    known = told_at(state, trial, "paused")
    if known.value is not None:
        state.search.paused[trial.number] = known
        out.append(tell_search(trial.number, known))


def _finish(state: SweepState, trial: Trial, at: float, started_at: float | None, out: Out) -> None:
    rules = state.rules
    trial.ended_at = at
    transitions.forget_active(state, trial)
    continued = trial.continued
    known = told(state, trial) if continued.max_t is None and continued.told is None else None
    if known is not None and known.end != "paused":
        state.search.paused.pop(trial.number, None)
        out.append(tell_search(trial.number, known))
        if rules.search.is_logged:
            state.search.log.append(trial.number)
    if trial.state != "failed":
        consider_best(state, trial)
    if started_at is not None and trial.state in ("completed", "stopped"):
        seconds, mean = max(0.0, at - started_at), state.meter.mean_duration_s
        state.meter.mean_duration_s = seconds if mean is None else mean + 0.2 * (seconds - mean)
    if rules.checkpoints.keep_top is not None:
        state.work.unranked.append(trial.number)
    if continued.max_t is not None:
        return  # neither scheduler nor searcher has a say in it any more
    if rules.stoppers.remember_reports or state.reports.histories or state.reports.curves:
        trial_rules.conclude(state, trial)
    if rules.search.repeats > 1 and trial.state == "completed":
        repeats.note_completed(state, trial)
    if trial.state == "completed":
        decisions = _tell_end(state, trial)
        sweep_end.note_completed(state, trial, score_of(state, trial), at, out)
    else:
        decisions = state.scheduler.remove(trial.number)
    state.work.undecided.extend(decisions)


def _tell_end(state: SweepState, trial: Trial) -> Decisions:
    time, compared = trial_time(state, trial), state.rules.objective.compared
    if compared:
        return state.scheduler.end(trial.number, time, as_number(trial.results.last.get(compared)))
    return tell_end(state.scheduler, trial.number, time, trial.results.last_score, other_values(state, trial))


def _are_too_many(state: SweepState, fraction: float, failed: int, ended: int) -> bool:
    """True if more than this part has failed: of enough trials, or whatever the others come to."""
    if failed <= fraction * ended:
        return False
    if ended >= _MIN_ENDED or not fraction:
        return True
    wanted = sweep_end.wanted_trials(state)
    return wanted is not None and failed > fraction * wanted


def _breaker(state: SweepState, trial: Trial, failure: Failure) -> str:
    """The reason why the sweep is failing as a whole; empty if it is not."""
    last = f"trial {trial.number}: {failure}"
    policy, counts = state.spec.failure, state.line.counts
    if classify(failure) == "infeasible":
        return ""
    failed = counts.get("failed", 0) - state.line.failed_kinds.get("infeasible", 0)
    ended = failed + counts.get("completed", 0) + counts.get("stopped", 0)
    are_all_users = state.line.failed_kinds.get("user_error") == failed == ended
    # The node may be to blame, and others about to show. One trial at a time, no other is; and where a worker
    # has just been opened anew, after a restart, says nothing.
    if policy.bad_node_failures and not sequential.is_kept(state) and _may_be_the_node(state):
        are_all_users = False
    if policy.breaker_trials and are_all_users and ended >= policy.breaker_trials:
        limit = f"failure.breaker_trials={policy.breaker_trials}"
        return f"the first {ended} trials all failed in user code ({limit}); {last}"
    fraction = policy.max_failed_fraction
    if fraction is not None and _are_too_many(state, fraction, failed, ended):
        return f"{failed} of {ended} trials failed (failure.max_failed_fraction={fraction}); {last}"
    return ""
