"""The gate: the best configs of a sweep run again with new seeds, beside the champion of earlier nights.

They run as a sweep of their own, whose key follows from the night's and the gate (`plan.py`): one that was
cut short decides nothing, and its next run continues it. What is run is written down first, what came out
last, each once; in between the champion is replaced by compare-and-set. The same gate of the same outcome,
run again, says the same.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from raysweep.documents.json_numbers import Counts
from raysweep.documents.validation import Problem
from raysweep.errors import GateOutdatedError, SpecError, SweepFailedError, one_line
from raysweep.jobs.options import JobOptions
from raysweep.outcome import Approval, Confirmed, GateOutcome, SweepOutcome, SweepProgress, TrialOutcome
from raysweep.pipeline.announcement import announce_verdict
from raysweep.pipeline.decision import decide, measured, seeds_needed
from raysweep.pipeline.duel import decide_within, with_outlook
from raysweep.pipeline.facts import facts_of
from raysweep.pipeline.plan import (
    GatePlan,
    as_confirmed,
    find_verdict,
    line_of,
    make_plan,
)
from raysweep.run import run_sweep
from raysweep.runs.across_runs.approvals import decide_night, settle_silence
from raysweep.runs.across_runs.champions import Champion, ChampionRecord, Night, Waiting
from raysweep.runs.across_runs.releases import add_night, as_it_stands, verdict_of
from raysweep.runs.across_runs.verdicts import keep_verdict
from raysweep.schedulers import TRAINING_ITERATION
from raysweep.specs import RunRequest, SweepSpec
from raysweep.specs.again import full_length, run_again
from raysweep.specs.approval import ApprovalSpec, check_approval
from raysweep.specs.identity import key_within
from raysweep.specs.pipeline import GateSpec, check_gate
from raysweep.step.brief import stored_outcome
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store


def run_gate(
    spec: SweepSpec,
    outcome: SweepOutcome,
    gate: GateSpec,
    *,
    address: Any = None,
    on_progress: Callable[[SweepProgress], None] | None = None,
    num_cpus: float | None = None,
    job: JobOptions | None = None,
    approval: ApprovalSpec | None = None,
    ends_at: datetime | None = None,
    is_judged: bool = False,
) -> GateOutcome:
    """Run the best configs of a sweep again, and promote the best of them if it beats the champion.

    Args:
        spec: The sweep's spec.
        outcome: What it gave.
        gate: What its best has to show.
        address: As in `run_sweep`.
        on_progress: As in `run_sweep`, for the sweep that runs them again.
        num_cpus: As in `run_sweep`.
        job: As in `run_sweep`.
        approval: What passes is promoted once it is approved: `raysweep.pipeline.await_approval`. With
            `after: judge` the line of champions has from then on that its model is released only once it is
            approved. Default: at once.
        ends_at: When the night ends: a gate that runs still then is cut short, and decides nothing.
        is_judged: What passes is champion only once its model has passed a judgement:
            `raysweep.pipeline.run_judge`.

    Raises:
        SpecError: The approval stands after a judgement, and none follows.
        SweepFailedError: The sweep has no best trial; or the one that runs them again failed.
        RaysweepError: As `run_sweep`.
    """
    prepared = prepare_gate(spec, outcome, gate, approval, ends_at, is_judged=is_judged)
    if prepared.verdict is not None:
        return prepared.verdict
    run = prepared.request
    again = run_sweep(
        run.spec,
        key=run.run.key,
        address=address,
        on_progress=on_progress,
        num_cpus=num_cpus,
        resume_cancelled=True,
        job=job,
    )
    return prepared.settle(again)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRun:
    """A gate: the verdict that there is, or what is to be run for one."""

    spec: SweepSpec
    outcome: SweepOutcome
    """The sweep's, with all its trials."""
    gate: GateSpec
    approval: ApprovalSpec | None = None
    ends_at: datetime | None = None
    """The end of the night."""
    is_judged: bool = False
    """True if a judgement follows."""
    plan: GatePlan | None = None
    verdict: GateOutcome | None = None
    """None: run `request`, and `settle` by what it gave."""

    @property
    def request(self) -> RunRequest[SweepSpec]:
        """The sweep of those that run again."""
        assert self.plan is not None, "a gate that has decided runs nothing"
        again = _spec(self.spec, self.outcome, self.gate, self.plan)
        if self.ends_at is not None:
            again = again.replace(stop=again.stop.replace(deadline=self.ends_at))
        return RunRequest.of(again, key_within(self.outcome.key, "gate", self.plan.gate_id))

    def settle(self, again: SweepOutcome) -> GateOutcome:
        """The verdict, by what they gave.

        Raises:
            SweepFailedError: It failed, or was cut short: nothing is decided, and the next run continues it.
            GateOutdatedError: They ran for an outcome that is not the sweep's newest any more.
        """
        if self.verdict is not None:
            return self.verdict
        if again.status == "failed":
            raise SweepFailedError(again)
        run = self.request.run
        # One that was begun anew has a key that continues from this one.
        if again.name != run.name or not again.key.startswith(run.key):
            raise GateOutdatedError(self.outcome.sweep_id, again.sweep_id)
        assert self.plan is not None
        _check_whole(again, len(self.plan.ran) * self.plan.seeds)
        store = open_store(self.spec.storage_path)
        return settle(
            store,
            self.spec,
            self.outcome,
            self.gate,
            again,
            self.plan,
            self.approval,
            is_judged=self.is_judged,
        )


def _check_whole(again: SweepOutcome, wanted: int) -> None:
    """Refuse what was cut short, as a verdict is final. Raises: SweepFailedError."""
    ended = Counts(Counter(trial.state for trial in again.trials)).ended
    if ended >= wanted:
        return
    text = (
        f"gate not decided: {again.sweep_id!r} was cut short ({again.status}) after {ended} of {wanted} runs;"
        f" run the gate again: it continues, and decides when all have ended; see {again.uri}"
    )
    raise SweepFailedError(again, text)


def prepare_gate(
    spec: Any,
    given: SweepOutcome | Mapping[str, Any],
    gate: Any,
    approval: ApprovalSpec | None = None,
    ends_at: datetime | None = None,
    *,
    is_judged: bool = False,
) -> GateRun:
    """The gate behind a sweep: for those who run it as a job and do not wait.

    Args:
        spec: The sweep's, in any form.
        given: Its outcome, or the brief of it.
        gate: What the best has to show: a `GateSpec`, or its fields.
        approval, ends_at, is_judged: As in `run_gate`.

    Raises:
        SweepFailedError: The sweep has no best trial.
        SpecError: The metric to compare by is not clear, or no trial has reported it; or the approval stands
            after a judgement, and none follows.
        SpecError, SweepNotFoundError, StorageError: As `stored_outcome`.
    """
    outcome, asked = stored_outcome(given), SweepSpec.from_any(spec)
    wanted = gate if isinstance(gate, GateSpec) else GateSpec.model_validate(dict(gate or {}))
    try:
        check_gate(asked, wanted)
        check_approval(approval, wanted, judge=wanted if is_judged else None)
    except Problem as error:
        issue = error.issues[0]
        raise SpecError(".".join(map(str, issue.path)), issue.problem, issue.fix) from None
    if outcome.uri:
        # Verdict, plan and champion lie where the sweep lies.
        asked = asked.replace(storage_path=outcome.uri.rpartition("/")[0])
    judged = outcome
    if wanted.goal(asked) != (asked.metric, asked.mode) or asked.others:
        asked, judged = _by_own_metric(asked, outcome, wanted)
    store = open_store(asked.storage_path)
    settle_silence(store, line_of(asked, wanted))
    verdict = find_verdict(store, asked, judged, wanted)
    if verdict is not None and verdict.is_waiting:
        # A kill may have kept the copy of a decision from being written.
        decide_night(store, line_of(asked, wanted), outcome.sweep_id, verdict.gate_id)
        verdict = find_verdict(store, asked, judged, wanted)
    if verdict is not None:
        return GateRun(spec=asked, outcome=outcome, gate=wanted, verdict=verdict)
    plan = make_plan(store, asked, judged, wanted)
    return GateRun(
        spec=asked,
        outcome=outcome,
        gate=wanted,
        approval=approval,
        ends_at=ends_at,
        is_judged=is_judged,
        plan=plan,
    )


def _by_own_metric(spec: SweepSpec, outcome: SweepOutcome, gate: GateSpec) -> tuple[SweepSpec, SweepOutcome]:
    """Sweep and outcome as if that had been the sweep's metric."""
    metric, mode = gate.goal(spec)
    judged = outcome.judged_by(metric, mode)
    if outcome.trials and judged.found_best is None and outcome.found_best is not None:
        names = ", ".join(map(repr, outcome.found_best.metrics))
        fix = "name what the trainable reports in its last report"
        raise SpecError("gate.metric", f"no trial has reported {metric!r}; they report {names}", fix)
    # How long trials run is still the scheduler's to say, whose own metric may be among the others.
    return spec.model_copy(update={"metric": metric, "mode": mode, "others": {}}), judged


def settle(
    store: Store,
    spec: SweepSpec,
    outcome: SweepOutcome,
    gate: GateSpec,
    again: SweepOutcome,
    plan: GatePlan,
    approval: ApprovalSpec | None = None,
    *,
    is_judged: bool = False,
) -> GateOutcome:
    """Decide by what `again` gave, put the night into the champion's history, write the verdict down."""
    count = len(plan.ran)
    ran = [
        measured(_with_scores(each, again.trials[index::count], plan.seeds))
        for index, each in enumerate(plan.ran)
    ]
    confirmed = ran[: len(plan.candidates)]
    beside = ran[-1] if plan.champion is not None else None
    lost = _why_lost(gate, beside, again.trials[count - 1 :: count]) if beside is not None else ""
    decided: list[GateOutcome] = []
    beaten: list[Champion | None] = []

    def choose(record: ChampionRecord) -> tuple[Night, Champion | None]:
        now, at = record.champion_beside(outcome.sweep_id), time.time()
        is_beside = beside is not None and now is not None and now.at == plan.champion_at
        # Another night may have brought a new one since: of that there is its mean.
        known = beside if is_beside else as_confirmed(now)
        per_year = gate.false_promotions_per_year
        if per_year is None or now is None or (is_beside and lost):
            why = lost if is_beside else ""
            verdict = decide(gate, spec.mode, confirmed, known, lost=why, metric=spec.metric)
        else:
            account = record.account_at(at, per_year, outcome.sweep_id)
            verdict = decide_within(
                gate, spec.mode, confirmed, known, account, plan.challenger, metric=spec.metric
            )
            verdict = with_outlook(verdict, account)
        update = {"sweep_id": again.sweep_id, "gate_id": plan.gate_id, "at": at}
        verdict = verdict.model_copy(update=update | {"notes": (*verdict.notes, *plan.notes)})
        best = verdict.best
        champion = (
            _champion(spec, gate, outcome, best, verdict.at)
            if verdict.promoted and best is not None
            else None
        )
        waiting, promoted = None, champion is not None
        if champion is not None and approval is not None and approval.after == "gate":
            until = verdict.at + approval.timeout
            asked = Approval(name=champion.name, until=until, on_silence=approval.on_silence)
            verdict = verdict.model_copy(update={"approval": asked})
            waiting = Waiting(
                proposed=champion,
                against_sweep=now.sweep_id if now is not None else "",
                against_at=now.at if now is not None else None,
                until=until,
                on_silence=approval.on_silence,
            )
            promoted, champion = False, None
        to_judge = (waiting.proposed if waiting is not None else champion) if is_judged else None
        is_approved_then = to_judge is not None and approval is not None and approval.after == "judge"
        decided.append(verdict)
        beaten.append(now)
        night = Night(
            sweep_id=outcome.sweep_id,
            key=outcome.key,
            gate=plan.gate_id,
            at=verdict.at,
            promoted=promoted,
            mean=best.mean if best else None,
            why=verdict.why,
            budget=verdict.budget,
            waiting=waiting,
            to_judge=to_judge,
            to_approve=approval if is_approved_then else None,
        )
        return night, None if is_judged else champion

    line = line_of(spec, gate)
    add_night(
        store,
        line,
        outcome.sweep_id,
        choose,
        gate=plan.gate_id,
        facts=lambda: facts_of(decided[-1], beaten[-1], outcome, again),
    )
    # Where an earlier run of this gate came as far as the history, that is what was decided.
    verdict = verdict_of(store, line, outcome.sweep_id, plan.gate_id) or decided[-1]
    if not is_judged:
        announce_verdict(spec, outcome, as_it_stands(store, line, outcome.sweep_id, verdict))
    kept = keep_verdict(store, outcome.sweep_id, plan.gate_id, verdict)
    return as_it_stands(store, line, outcome.sweep_id, kept)


def _why_lost(gate: GateSpec, champion: Confirmed, trials: Sequence[TrialOutcome]) -> str:
    """The reason why the champion cannot be compared: failed trials, a broken constraint; else empty.

    It ran beside the candidates, with the same seeds and retries: where they ran well, it is to blame.
    """
    if champion.violated:
        return (
            f"the champion of {champion.sweep_id} does not satisfy {' and '.join(champion.violated)} any more"
        )
    failed = [trial for trial in trials if trial.state == "failed"]
    if champion.n >= seeds_needed(gate) or not failed:
        return ""
    problem = one_line(failed[0].problem or "no reason recorded", 160)
    return (
        f"the champion of {champion.sweep_id} does not run any more:"
        f" {len(failed)} of {len(trials)} seeds failed ({problem})"
    )


def _spec(spec: SweepSpec, outcome: SweepOutcome, gate: GateSpec, plan: GatePlan) -> SweepSpec:
    """The sweep that runs them again: every trial to its full end, nothing stopped early."""
    configs = [each.config for each in plan.ran]
    best = outcome.found_best
    names = {candidate.trial_in(outcome.sweep_id) for candidate in plan.candidates}
    names |= {best.trial_id} if best is not None else set()
    reached = [trial.metrics.get(TRAINING_ITERATION) for trial in outcome.trials if trial.trial_id in names]
    return run_again(
        spec,
        configs,
        plan.seeds,
        name=f"{spec.name}-gate",
        # All have one scale: that of the best trial.
        scale={name: configs[0][name] for name in spec.largest_scale},
        seed_param=gate.seed_param,
        limits=full_length(spec, reached),
    )


def _with_scores(confirmed: Confirmed, trials: Sequence[TrialOutcome], seeds: int) -> Confirmed:
    found = [
        trial.score
        if trial.state == "completed" and trial.score is not None and math.isfinite(trial.score)
        else None
        for trial in trials
    ]
    # A sweep that was cut short has not drawn all of them.
    scores = (*found, *[None] * (seeds - len(found)))
    update: dict[str, Any] = {
        "scores": scores,
        "violated": tuple(dict.fromkeys(text for trial in trials for text in trial.violated)),
    }
    if confirmed.checkpoint_uri is None:
        update["checkpoint_uri"] = next((t.checkpoint_uri for t in trials if t.checkpoint_uri), None)
    return confirmed.model_copy(update=update)


def _champion(spec: SweepSpec, gate: GateSpec, outcome: SweepOutcome, best: Confirmed, at: float) -> Champion:
    name = best.trial_in(outcome.sweep_id)
    trial = next((trial for trial in outcome.trials if trial.trial_id == name), None)
    return Champion(
        name=gate.champion or spec.name,
        metric=spec.metric,
        mode=spec.mode,
        data=gate.data or "",
        config=best.config,
        mean=best.mean or 0.0,
        spread=best.spread or 0.0,
        n=best.n,
        metrics=trial.model_dump(mode="json")["metrics"] if trial else {},
        sweep_id=outcome.sweep_id,
        key=outcome.key,
        trial_id=name,
        checkpoint_uri=best.checkpoint_uri,
        at=at,
        code_digest=outcome.code_digest,
        spec_digest=outcome.spec_digest,
    )
