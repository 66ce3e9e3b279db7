"""The standing of a run: one model, for all that show it, store it or list it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from raysweep.documents.json_numbers import Counts, Number
from raysweep.documents.json_values import leaves
from raysweep.documents.mode import Mode
from raysweep.errors import one_line
from raysweep.outcome.curve import Dot
from raysweep.outcome.estimate import Estimate
from raysweep.outcome.gate import GateOutcome
from raysweep.outcome.predicted import Predicted
from raysweep.outcome.progress import Holder, HolderState, RunningTrial, SweepProgress
from raysweep.outcome.ranking import is_allowed
from raysweep.outcome.record import ErrorInfo, Record
from raysweep.outcome.showing.best import show_rule, why_no_best
from raysweep.outcome.sweep import show_infeasible
from raysweep.outcome.train import TrainOutcome
from raysweep.outcome.trial import TrialOutcome
from raysweep.outcome.usage import Usage

TOP: Final = 20
"""The number of the best trials in a status."""
FAILURES: Final = 5
"""The number of the newest failed trials in a status."""
MAX_RUNNING: Final = 50
MAX_NOTES: Final = 20
MAX_PARETO: Final = 100
"""The number of trials of the Pareto front that a status names."""
INTERRUPTED: Final = "interrupted"
"""The status of a run that has not ended, and that no process runs."""
STARTING: Final = "starting"
"""The status of a run that a controller has, and that there is no heartbeat of yet."""
MAX_VALUES: Final = 20
"""The number of values of a config that a row shows."""
_MAX_TEXT: Final = 60
_NOT_IN_ROWS: Final = (
    "others", "constraints", "best", "ahead", "pareto", "pareto_size", "curve", "dots", "top", "failures",
    "first_failure", "estimate", "slow", "gate", "training", "error", "trainable", "read_at",
)  # fmt: skip


class Standing(Record):
    """The standing of a sweep, or a training run: of bounded size, whatever the number of trials.

    Times are UTC seconds. A list holds a `row()` of it: without the trials, the curve and the like.
    """

    kind: Literal["sweep", "train"] = "sweep"
    run_id: str
    name: str = ""
    uri: str = ""
    """The address at which it is stored."""
    key: str = ""
    status: str
    """`starting | running | stopping`, what it ended as (its outcome's `status`), or `interrupted`."""
    has_ended: bool = False
    """It has an outcome."""
    why: str = ""
    """The reason why it ended, in a sentence; of a run that cannot be read, the problem."""
    reason: str = ""
    """The same, without counts and best."""
    metric: str = ""
    mode: Literal["min", "max"] = "max"
    others: dict[str, Mode] = Field(default_factory=dict)
    """In a sweep of several metrics those after the first, each with its mode."""
    constraints: tuple[str, ...] = ()
    """The constraints that the metrics of a trial have to satisfy to be the best."""
    counts: Counts = Counts()
    """Trials by state; of a training, its reports."""
    num_trials: int | None = None
    """The number of trials that there will be; None where that is not known."""
    attempts: int = 0
    """The number of attempts of the trials together."""
    trial_s: float = 0.0
    """The time that the trials ran together, in seconds."""
    score: Number | None = None
    """Of the best trial."""
    trial_id: str = ""
    """The best trial."""
    config: dict[str, Any] = {}
    """The best trial's config by paths, of a training its metrics: `MAX_VALUES` of them, texts cut."""
    of: str = ""
    """The id of the sweep that a training's config comes from; empty where no sweep handed it on."""
    predicted: Predicted | None = Field(default=None, exclude_if=lambda given: given is None)
    """The score that a law predicted of a training, beside the one that came."""
    best: TrialOutcome | None = None
    """The best trial so far, whole: see `outcome.ranking`."""
    ahead: TrialOutcome | None = None
    """While there is no best, the best of the trials that run."""
    pareto: tuple[str, ...] = ()
    """In a sweep of several metrics the ids of the trials on the Pareto front, at most MAX_PARETO of them."""
    pareto_size: int = 0
    """The number of these in all."""
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
    """The expected end: by its estimate, else by its pace so far; None: cannot be said."""
    estimate: Estimate | None = None
    """The estimate of it, with intervals; None: it does not run, or nothing can be said yet."""
    slow: tuple[str, ...] = ()
    """A line for each running trial that takes ten times as long as its siblings."""
    generation: int = 0
    """The number of controllers that have run it."""
    usage: Usage | None = None
    gate: GateOutcome | None = None
    training: TrainOutcome | None = None
    """The outcome of a training run."""
    error: ErrorInfo | None = None
    """The error that made it fail."""
    problem: str = ""
    """The problem of its journal; then no more is known than the heartbeat says."""
    notes: tuple[str, ...] = ()
    heartbeat: SweepProgress | None = None
    """The newest one of a run that has not ended."""
    held: HolderState = "gone"
    """The state of the process that wrote it."""
    trainable: str = ""
    """The name of its trials' trainable; empty where that is not known."""
    per_minute: float | None = None
    """Trials that end in a minute, of one that runs and is watched."""
    read_at: float = 0.0
    """The time at which this was read."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.best is not None and not self.trial_id:
            self.__dict__.update(best_fields(self.best))
        return self

    def row(self) -> Self:
        """Its row in a list."""
        fields = type(self).model_fields
        plain = {name: fields[name].get_default(call_default_factory=True) for name in _NOT_IN_ROWS}
        return self.model_copy(update=plain | {"notes": () if self.has_ended else self.notes[-1:]})

    @property
    def infeasible(self) -> str:
        """The reason for no best although trials have a score: none satisfies the constraints; else empty."""
        nearest = self.top[0] if self.best is None and self.top else None
        if nearest is None:
            return ""
        if is_allowed(nearest, {self.metric: self.mode, **self.others}):
            return ""
        return show_infeasible(self.constraints, nearest, self.metric, self.others)

    @property
    def no_best(self) -> str:
        """The reason why there is no best trial; empty where there is one."""
        if self.best is not None:
            return ""
        first = self.ahead or next(iter(self.top), None)
        failed = (*self.failures, *([self.first_failure] if self.first_failure is not None else []))
        has_failed = any(trial.score is not None for trial in failed)
        return self.infeasible or why_no_best(self.metric, first, self.status, has_failed=has_failed)

    @property
    def cause(self) -> str:
        """The reason why it ended, without counts and best; of a run that cannot be read, the problem."""
        return self.problem or self.reason or self.why

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
        """True if a process that lives is at work on it."""
        return self.held == "alive"

    @property
    def holder(self) -> Holder | None:
        """The process that runs it, or ran it last; None where that is not known, or it has ended."""
        return self.heartbeat.holder if self.heartbeat is not None else None

    @property
    def seen_at(self) -> float | None:
        """The time at which its holder was last heard of, by the holder's clock."""
        return self.heartbeat.at if self.heartbeat is not None else self.ended_at

    @property
    def held_by(self) -> str:
        """Its holder and, where that is not at work, what became of it; empty where that is not known."""
        if self.holder is None:
            return ""
        return str(self.holder) if self.is_running else f"{self.holder} ({self.held})"

    @property
    def took_s(self) -> float | None:
        """From its start to its end, in seconds; None before that."""
        return None if self.started_at is None or self.ended_at is None else self.ended_at - self.started_at

    @property
    def reports(self) -> int:
        """The number of reports of a training."""
        running = max((each.iteration or 0 for each in self.running), default=0)
        return running or self.counts.get("reports", 0)

    @property
    def silent_s(self) -> float:
        """The seconds since then; negative where the holder's clock is ahead."""
        return self.read_at - self.seen_at if self.seen_at is not None else 0.0

    @property
    def running(self) -> tuple[RunningTrial, ...]:
        """The trials that run now."""
        return self.heartbeat.running[:MAX_RUNNING] if self.heartbeat is not None and self.is_running else ()

    @property
    def slots(self) -> int:
        """The number of trials that can run at once."""
        return self.heartbeat.slots if self.heartbeat is not None and self.is_running else 0

    @property
    def elapsed_s(self) -> float | None:
        """From its start to its end; to now while it runs, else to when it was last seen."""
        until = self.read_at if self.is_running else self.seen_at
        return until - self.started_at if until is not None and self.started_at is not None else None

    @property
    def ended_ago_s(self) -> float:
        """The seconds since it ended; 0 where it has not."""
        return self.read_at - self.ended_at if self.ended_at is not None else 0.0

    @property
    def storage(self) -> str:
        """The storage path that it lies at."""
        return self.uri.rpartition("/")[0]


def best_fields(best: TrialOutcome | None) -> dict[str, Any]:
    """The fields of the best trial in a row."""
    if best is None:
        return {}
    return {"score": best.score, "trial_id": best.trial_id, "config": first_values(best.config)}


def first_values(config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a config in a list, by paths; their size is bounded."""
    return {path: _cut(value) for path, value in islice(leaves(config), MAX_VALUES)}


def _cut(value: Any) -> Any:
    return value if isinstance(value, int | float | None) else one_line(str(value), _MAX_TEXT)
