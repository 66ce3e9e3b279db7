"""How a run stands, for all that show it: the page, the terminal, Prefect, Airflow.

What is here is pure: documents in, a `RunStatus` out; `state_status.py` makes it of a sweep's state, and
`reader.py` reads both from the storage. The size of a status is bounded, whatever the number of trials. All
times are UTC seconds.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import Final, Literal

from pydantic import Field

from raysweep.documents.json_numbers import Counts
from raysweep.documents.mode import Mode
from raysweep.outcome import (
    BestTrial,
    ErrorInfo,
    GateOutcome,
    Holder,
    Record,
    RunningTrial,
    SweepOutcome,
    SweepProgress,
    TrainOutcome,
    TrialOutcome,
    TrialState,
    Usage,
    show_infeasible,
)
from raysweep.outcome.estimate import Estimate
from raysweep.outcome.ranking import is_allowed
from raysweep.outcome.showing.best import show_rule, why_no_best
from raysweep.outcome.trials import rows_of
from raysweep.runs.ownership.holder import HolderState, holder_state
from raysweep.runs.reading.curve import Dot, best_so_far

TOP: Final = 20
"""How many of the best trials a status holds."""
FAILURES: Final = 5
"""How many of the newest failed trials a status holds."""
MAX_RUNNING: Final = 50
MAX_NOTES: Final = 20
MAX_PARETO: Final = 100
"""How many trials of the Pareto front a status names."""
INTERRUPTED: Final = "interrupted"
"""The status of a run that has not ended, and that no process runs."""
STARTING: Final = "starting"
"""The status of a run that a controller has, and that there is no heartbeat of yet."""


class RunStatus(Record):
    """How a sweep, or a training run, stands."""

    kind: Literal["sweep", "train"] = "sweep"
    run_id: str
    name: str = ""
    uri: str = ""
    """Where it is stored."""
    key: str = ""
    status: str
    """`starting | running | stopping`, what it ended as (its outcome's `status`), or `interrupted`."""
    has_ended: bool = False
    """It has an outcome."""
    why: str = ""
    """Why it ended, in a sentence; also where it could give no outcome."""
    reason: str = ""
    """The same, without counts and best."""
    metric: str = ""
    mode: Literal["min", "max"] = "max"
    others: dict[str, Mode] = Field(default_factory=dict)
    """In a sweep of several metrics those after the first, each with its mode."""
    constraints: tuple[str, ...] = ()
    """What the metrics of a trial have to satisfy to be the best."""
    counts: Counts = Counts()
    """Trials by state; of a training, its reports."""
    num_trials: int | None = None
    """How many there will be; None where that is not known."""
    best: TrialOutcome | None = None
    """The best trial so far: see `outcome.ranking`."""
    ahead: TrialOutcome | None = None
    """While there is no best, the best of the trials that run."""
    pareto: tuple[str, ...] = ()
    """In a sweep of several metrics the ids of the trials on the Pareto front, at most MAX_PARETO of them."""
    pareto_size: int = 0
    """How many these are in all."""
    curve: tuple[Dot, ...] = ()
    """The best score so far, a point for each time that it was beaten, in the order of time."""
    dots: tuple[Dot, ...] = ()
    """Trials in the order in which they ended; a sample of them where there are many."""
    top: tuple[TrialOutcome, ...] = ()
    """The best trials, best first; running ones are among them, failed ones are not."""
    failures: tuple[TrialOutcome, ...] = ()
    """The newest failed trials, the newest first."""
    first_failure: TrialOutcome | None = None
    """The failed trial with the lowest number."""
    started_at: float | None = None
    ended_at: float | None = None
    deadline: float | None = None
    expected_end_at: float | None = None
    """When it is expected to end: by its estimate, else by its pace so far; None: cannot be said."""
    estimate: Estimate | None = None
    """What is expected of it, with intervals; None: it does not run, or nothing can be said yet."""
    slow: tuple[str, ...] = ()
    """A line for each running trial that takes ten times as long as its siblings."""
    generation: int = 0
    """How many controllers have run it."""
    usage: Usage | None = None
    gate: GateOutcome | None = None
    training: TrainOutcome | None = None
    """How a training run ended."""
    error: ErrorInfo | None = None
    """What made it fail."""
    problem: str = ""
    """What is wrong with its journal; then no more is known than the heartbeat says."""
    notes: tuple[str, ...] = ()
    heartbeat: SweepProgress | None = None
    """The newest one of a run that has not ended."""
    held: HolderState = "gone"
    """What became of the process that wrote it."""
    trainable: str = ""
    """What its trials run, by name; empty where that is not known."""
    read_at: float = 0.0
    """When this was read."""

    @property
    def infeasible(self) -> str:
        """Why there is no best although trials have a score: none satisfies the constraints; else empty."""
        nearest = self.top[0] if self.best is None and self.top else None
        if nearest is None:
            return ""
        if is_allowed(nearest, {self.metric: self.mode, **self.others}):
            return ""
        return show_infeasible(self.constraints, nearest, self.metric, self.others)

    @property
    def no_best(self) -> str:
        """Why there is no best trial; empty where there is one."""
        if self.best is not None:
            return ""
        first = self.ahead or next(iter(self.top), None)
        failed = (*self.failures, *([self.first_failure] if self.first_failure is not None else []))
        has_failed = any(trial.score is not None for trial in failed)
        return self.infeasible or why_no_best(self.metric, first, self.status, has_failed=has_failed)

    @property
    def ranked_by(self) -> str:
        """`highest auc`, the rule that says which trial is the best; empty where nothing does."""
        return show_rule(self.metric, self.mode, self.others, self.constraints)

    @property
    def pareto_text(self) -> str:
        """`5 trials that no other beats in auc and latency_ms: 00007, …`; empty where there is none."""
        if not self.pareto:
            return ""
        names = ", ".join(self.pareto[:TOP]) + (", …" if self.pareto_size > TOP else "")
        count = "1 trial" if self.pareto_size == 1 else f"{self.pareto_size} trials"
        return f"{count} that no other beats in {' and '.join((self.metric, *self.others))}: {names}"

    @property
    def is_running(self) -> bool:
        """Whether a process that lives is at work on it."""
        return self.held == "alive"

    @property
    def holder(self) -> Holder | None:
        """Who runs it, or ran it last; None where that is not known, or it has ended."""
        return self.heartbeat.holder if self.heartbeat is not None else None

    @property
    def seen_at(self) -> float | None:
        """When its holder was last heard of, by the holder's clock."""
        return self.heartbeat.at if self.heartbeat is not None else self.ended_at

    @property
    def reports(self) -> int:
        """How often a training has reported."""
        return self.counts.get("reports", 0)

    @property
    def silent_s(self) -> float:
        """How long ago that was; negative where the holder's clock is ahead."""
        return self.read_at - self.seen_at if self.seen_at is not None else 0.0

    @property
    def running(self) -> tuple[RunningTrial, ...]:
        """The trials that run now."""
        return self.heartbeat.running[:MAX_RUNNING] if self.heartbeat is not None and self.is_running else ()

    @property
    def slots(self) -> int:
        """How many trials can run at once."""
        return self.heartbeat.slots if self.heartbeat is not None and self.is_running else 0

    @property
    def elapsed_s(self) -> float | None:
        """From its start to its end; to now while it runs, else to when it was last seen."""
        until = self.read_at if self.is_running else self.seen_at
        return until - self.started_at if until is not None and self.started_at is not None else None

    @property
    def ended_ago_s(self) -> float:
        """How long ago it ended; 0 where it has not."""
        return self.read_at - self.ended_at if self.ended_at is not None else 0.0

    @property
    def storage(self) -> str:
        """The storage path that it lies at."""
        return self.uri.rpartition("/")[0]


# --- what is known, put into a status


def status_of_outcome(outcome: SweepOutcome, *, uri: str = "", now: float) -> RunStatus:
    """Of a sweep that has ended."""
    on_front = outcome.pareto if outcome.others else ()
    curve, dots = best_so_far(
        (
            (trial.ended_at, trial.state, trial.score if outcome.may_be_best(trial) else None, trial.trial_id)
            for trial in rows_of(outcome.trials)
        ),
        is_max=outcome.mode == "max",
    )
    failed = nsmallest(
        FAILURES,
        (
            (-(trial.ended_at or 0.0), index)
            for index, trial in enumerate(rows_of(outcome.trials))
            if trial.state == "failed"
        ),
    )
    return RunStatus(
        run_id=outcome.sweep_id,
        name=outcome.name,
        uri=uri or outcome.uri,
        key=outcome.key,
        status=outcome.status,
        has_ended=True,
        why=outcome.why,
        reason=outcome.reason,
        metric=outcome.metric,
        mode=outcome.mode,
        others=outcome.others,
        pareto=tuple(trial.trial_id for trial in on_front[:MAX_PARETO]),
        pareto_size=len(on_front),
        constraints=outcome.constraints,
        counts=outcome.counts,
        num_trials=outcome.wanted_trials,
        best=outcome.found_best,
        curve=curve,
        dots=dots,
        top=outcome.top(TOP),
        failures=tuple(outcome.trials[index] for _, index in failed),
        first_failure=outcome.first_failure,
        started_at=outcome.started_at,
        ended_at=outcome.ended_at,
        generation=outcome.generation,
        usage=outcome.usage,
        gate=outcome.gate,
        error=outcome.error,
        notes=outcome.notes[-MAX_NOTES:],
        read_at=now,
    )


def status_of_heartbeat(
    heartbeat: SweepProgress,
    *,
    uri: str,
    key: str = "",
    now: float,
    held: HolderState | None = None,
    problem: str = "",
) -> RunStatus:
    """Of a run without an outcome: what its heartbeat alone says.

    `held`: what became of its holder, where that is known better than by this heartbeat's time.
    """
    held = held if held is not None else holder_state(heartbeat, now)
    return RunStatus(
        run_id=heartbeat.sweep_id,
        name=heartbeat.name,
        uri=uri,
        key=key,
        status=heartbeat.status if held == "alive" or not heartbeat.is_at_work else INTERRUPTED,
        metric=heartbeat.metric,
        mode=heartbeat.mode,
        others=heartbeat.others,
        constraints=heartbeat.constraints,
        counts=heartbeat.counts,
        num_trials=heartbeat.num_trials,
        best=_shown(heartbeat.best, "completed"),
        ahead=_shown(heartbeat.ahead, "running"),
        started_at=heartbeat.started_at,
        deadline=heartbeat.deadline,
        expected_end_at=heartbeat.expected_end_at if held == "alive" else None,
        estimate=heartbeat.estimate if held == "alive" else None,
        slow=heartbeat.slow if held == "alive" else (),
        generation=heartbeat.generation,
        problem=problem,
        notes=(*heartbeat.notes[-MAX_NOTES:], *([problem] if problem else [])),
        heartbeat=heartbeat,
        held=held,
        read_at=now,
    )


def status_of_training(
    outcome: TrainOutcome, heartbeat: SweepProgress | None, *, uri: str, now: float
) -> RunStatus:
    """Of a training run that has ended."""
    return RunStatus(
        kind="train",
        run_id=outcome.run_id,
        name=outcome.name,
        uri=uri,
        key=outcome.key,
        status=outcome.status,
        has_ended=True,
        counts=heartbeat.counts if heartbeat is not None else Counts(),
        started_at=outcome.started_at,
        ended_at=outcome.ended_at,
        training=outcome,
        error=outcome.error,
        notes=heartbeat.notes if heartbeat is not None else (),
        read_at=now,
    )


def _shown(best: BestTrial | None, state: TrialState) -> TrialOutcome | None:
    """A trial of a heartbeat, which does not say more of its state than whether it has ended."""
    if best is None:
        return None
    number = int(best.trial_id) if best.trial_id.isdigit() else 0
    return TrialOutcome(
        trial_id=best.trial_id,
        number=number,
        state=state,
        score=best.score,
        config=best.config,
        metrics=best.metrics,
    )
