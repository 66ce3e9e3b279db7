"""The outcome of a sweep: its trials, its gate, its end."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

import orjson
from pydantic import Field, model_validator

from raysweep.documents.json_numbers import Counts
from raysweep.errors import RaysweepError, SweepFailedError, one_line
from raysweep.numeric.pareto import find_front
from raysweep.numeric.shown import show_number
from raysweep.outcome.columns import config_columns
from raysweep.outcome.configs import ConfigOutcome
from raysweep.outcome.frames import make_frame
from raysweep.outcome.gate import GateOutcome
from raysweep.outcome.ranking import Ranked, best_first, is_allowed, is_standing, ranked
from raysweep.outcome.record import ErrorInfo, Record, without_collector
from raysweep.outcome.showing.best import why_no_best
from raysweep.outcome.showing.html import TOP, outcome_html, show_pairs
from raysweep.outcome.showing.text import outcome_text, short
from raysweep.outcome.trial import TrialOutcome
from raysweep.outcome.trials import TrialRow, Trials, TrialsOf, rows_of
from raysweep.outcome.tupled import with_tuples_in
from raysweep.outcome.usage import Usage

if TYPE_CHECKING:
    import pandas

SweepStatus = Literal["completed", "deadline", "budget", "target", "plateau", "cancelled", "failed"]
UnfinishedStatus = Literal["running", "interrupted"]
"""Of an outcome that `rs.load` made of a sweep before its end."""
AnyStatus = Literal[
    "completed", "deadline", "budget", "target", "plateau", "cancelled", "failed", "running", "interrupted"
]  # fmt: skip


def is_empty(text: str) -> bool:
    """True if a field is left out of documents."""
    return not text


class EndedBy(Record):
    """The rule that ended a sweep before its search was done, and the numbers behind it."""

    rule: str
    """The field of the spec: `stop.deadline`, `stop.budget.gpu_hours`, `stop.target`, …"""
    limit: Any = None
    """Its value: a number, or the deadline in ISO 8601 (in UTC seconds where it was given so)."""
    value: float | None = None
    """The compared value: UTC seconds, seconds at work, hours, cost, the metric, completed trials."""
    best: float | None = None
    """For `stop.plateau`: the metric that was not improved on."""
    trial: int | None = None
    """For `stop.target`: the trial that reached it."""


class SweepOutcome(Record):
    """One sweep; `outcome[i]` is trial i, `len(outcome)` counts them. Times are UTC seconds.

    It has ended, unless `rs.load` made it of a sweep before its end: then `has_ended` is False. `rs.load` and
    `rs.run_sweep` return a `StoredSweep`: an outcome with the reports and charts of its sweep.
    """

    sweep_id: str
    name: str
    key: str = ""
    status: AnyStatus
    """The status that it ended with; `running` or `interrupted`: it has not."""
    why: str = ""
    """One line on how it ended: the counts of its trials, `reason`, the best, the gate's verdict."""
    own_why: Annotated[str, Field(exclude_if=is_empty)] = ""
    """`why` without the gate's verdict; empty where it has none."""
    reason: str = ""
    """The reason why it ended, without the counts and the best; where none is stored, `why`."""
    ended_by: EndedBy | None = None
    """The limit that ended it; None where it came to its own end, failed, or was cancelled."""
    usage: Usage | None = None
    """The resources that it used."""
    min_trials: int = 0
    """The spec's `stop.min_trials`."""
    promoted: bool | None = None
    """True if the gate let its best config pass; None where there was no gate."""
    gate: GateOutcome | None = None
    """The gate's evidence."""
    metric: str
    """The metric that ranks the trials; empty: nothing does, and there is no `best`."""
    mode: Literal["min", "max"]
    others: dict[str, Literal["min", "max"]] = {}
    """In a sweep of several metrics those after the first, each with its mode; see `pareto`."""
    constraints: tuple[str, ...] = ()
    """The constraints that the metrics of a trial had to satisfy."""
    best: TrialOutcome | None = None
    """The best trial, of several metrics the first of `pareto`; None: no trial has a score. Raises
    SweepFailedError where the sweep failed or no trial satisfies the constraints, RaysweepError without a
    metric; `found_best` never raises."""
    trials: Annotated[Sequence[TrialOutcome], TrialsOf()] = Trials()
    """The trials by number. Each is read when it is asked for, so that 100,000 of them take little memory."""
    configs: tuple[ConfigOutcome, ...] = ()
    """With `repeat`, the configs of which one completed, the best first; `best` is a trial of the first."""
    counts: Counts = Counts()
    """The number of trials that ended in each state."""
    tuples: list[list[Any]] = []
    """The tuples of the search space, which configs have in Python; in JSON these are lists."""
    num_trials: int | None = None
    """The number that were to run; None: as many as there was time for."""
    is_open_ended: bool = False
    """True if no number of samples was asked for, so that a limit is its proper end."""
    seed: int | None = None
    started_at: float
    ended_at: float
    """The time at which it ended; of one that has not, when it was last seen at work."""
    uri: str = ""
    """The address at which the sweep is stored."""
    generation: int = 1
    """The number of controllers that have run it."""
    error: ErrorInfo | None = None
    spec_digest: str = ""
    code_digest: str = ""
    """Of the trainable's own code, as it ran last; empty where that is not known."""
    notes: tuple[str, ...] = ()
    """Other facts that a person should know: excluded nodes, checkpoints that were not stored, ..."""
    nothing_ran: Annotated[str, Field(exclude_if=is_empty)] = ""
    """Of an outcome of earlier that was handed on, why nothing ran, and what can be done; also in `notes`."""
    raysweep_version: str = ""
    format_version: int = 1

    @model_validator(mode="after")
    def _complete(self) -> Self:
        self.__dict__["reason"] = self.reason or self.why
        if self.tuples:
            for name in ("best", "configs"):
                self.__dict__[name] = with_tuples_in(self.__dict__[name], self.tuples)
            trials = self.__dict__["trials"]
            held = trials if isinstance(trials, Trials) else Trials(trials)  # by `model_copy`
            self.__dict__["trials"] = held.with_tuples(self.tuples)
        return self

    def to_json(self) -> str:
        """As JSON text on one line. Trials that are held as text stay text."""
        with without_collector():
            fields = self.model_dump(mode="json", exclude={"trials"})
            held = self.trials if isinstance(self.trials, Trials) else Trials(self.trials)
            fields["trials"] = orjson.Fragment(held.to_json())
            names = type(self).model_fields
            return orjson.dumps({name: fields[name] for name in names if name in fields}).decode()

    def __repr__(self) -> str:
        return f"<SweepOutcome {self.sweep_id}: {self.status}, {len(self.trials)} trials>"

    def __str__(self) -> str:
        best, line = self.found_best, ""
        if best is not None:
            score = f", {self.metric} {show_number(best.score)}" if best.score is not None else ""
            line = f"best: trial {best.trial_id}{score}, config {short(best.config)}"
        head = f"{self.sweep_id}: {self.status}"
        return outcome_text(head, one_line(self.why, 400), line, uri=self.uri, notes=self.notes)

    def _repr_html_(self) -> str:
        counts = ", ".join(f"{number} {state}" for state, number in self.counts.shown.items())
        rows = [
            (
                trial.trial_id,
                trial.state,
                trial.score,
                *map(trial.metrics.get, self.others),
                show_pairs(trial.config),
            )
            for trial in (self.top(TOP) if self.metric else ())
        ]
        heads = ("trial", "state", self.metric, *self.others, "config")
        return outcome_html(self.name or self.sweep_id, f"{self.status}: {counts}", self.why, heads, rows)

    def __len__(self) -> int:
        return len(self.trials)

    def __bool__(self) -> bool:
        return True  # not the number of trials: `if outcome` asks whether there is one

    def __getitem__(self, index: int) -> TrialOutcome:
        return self.trials[index]

    def top(self, k: int) -> tuple[TrialOutcome, ...]:
        """The `k` best trials, best first; without those that failed, or have no finite score.

        Those that break a constraint come after all that do not, the nearest first. Ties keep their order. Of
        several metrics, `pareto` comes first, then the others by the first metric. With `repeat`, the best
        trial of each config, in the order of `configs`.
        """
        if self.configs:
            return tuple(self.trials[each.best] for each in self.configs[: max(k, 0)])
        places = best_first(rows_of(self.trials), self.modes, self.status, max(k, 0))
        return tuple(self.trials[place] for place in places)

    def judged_by(self, metric: str, mode: Literal["min", "max"]) -> SweepOutcome:
        """This outcome as if that had been its only metric: scores are from each trial's last report."""
        trials = tuple(
            trial.model_copy(update={"score": _finite(trial.metrics.get(metric))}) for trial in self.trials
        )
        update: dict[str, object] = {"metric": metric, "mode": mode, "others": {}, "trials": trials}
        update |= {"configs": (), "best": None}
        judged = self.model_copy(update=update)
        best = next(
            (judged.trials[each.place] for each in sorted(judged._ranked()) if each.may_be_best), None
        )
        return judged.model_copy(update={"best": best})

    @property
    def pareto(self) -> tuple[TrialOutcome, ...]:
        """The trials that satisfy the constraints, and that no other such one beats in all metrics.

        None is as good in all metrics and better in one; equal ones are all there. Best by the first metric
        first, of equal ones by the second, and so on, then by number. Of one metric: the best alone.
        """
        if not self.others:
            return () if self.found_best is None else (self.found_best,)
        first = sorted(each for each in self._ranked() if each.may_be_best)
        front = find_front([each.point for each in first])
        return tuple(self.trials[first[place].place] for place in front)

    @property
    def modes(self) -> dict[str, Literal["min", "max"]]:
        """The mode of each metric, in their order."""
        return {self.metric: self.mode, **self.others}

    def may_be_best(self, trial: TrialOutcome | TrialRow) -> bool:
        """True if the score of a trial stands, satisfies the constraints, and has a value of each metric."""
        return is_standing(trial.state, self.status) and is_allowed(trial, self.modes)

    def _ranked(self) -> Iterable[Ranked]:
        return ranked(rows_of(self.trials), self.modes, self.status)

    @property
    def wanted_trials(self) -> int | None:
        """The number that were to run; of an outcome that does not say, what it had.

        None: as many as there was time for.
        """
        if self.is_open_ended and self.num_trials is None:
            return None
        return self.num_trials if self.num_trials is not None else self.counts.total

    @property
    def found_best(self) -> TrialOutcome | None:
        """The trial with the best score; None where no trial has one, also where the sweep failed."""
        found: TrialOutcome | None = self.__dict__["best"]
        return found

    @property
    def infeasible(self) -> str:
        """`no trial satisfies latency_ms <= 20; the nearest is trial 00003 with loss 0.2`; else empty."""
        nearest = next(iter(self.top(1)), None) if self.found_best is None else None
        if nearest is None or is_allowed(nearest, self.modes):
            return ""
        return show_infeasible(self.constraints, nearest, self.metric, self.others)

    @property
    def no_best(self) -> str:
        """The reason why there is no best trial; empty where there is one."""
        if self.found_best is not None:
            return ""
        has_failed = any(row.state == "failed" and row.score is not None for row in rows_of(self.trials))
        first = next(iter(self.top(1)), None) if self.metric else None
        return self.infeasible or why_no_best(self.metric, first, self.status, has_failed=has_failed)

    @property
    def first_failure(self) -> TrialOutcome | None:
        """The failed trial with the lowest number; None where none failed."""
        failed = (index for index, row in enumerate(rows_of(self.trials)) if row.state == "failed")
        index = next(failed, None)
        return None if index is None else self.trials[index]

    @property
    def has_ended(self) -> bool:
        """True if it has ended: False for a sweep that runs, or that can be resumed."""
        return self.status not in ("running", "interrupted")

    @property
    def has_run_out(self) -> bool:
        """True if a deadline or a budget ended it."""
        return self.status in ("deadline", "budget")

    @property
    def is_partial(self) -> bool:
        """True if a deadline or a budget ended it before its search was done: one without an end never is."""
        return self.has_run_out and not self.is_open_ended

    def raise_for_status(self, *, accept_partial: bool = True) -> Self:
        """The outcome itself, or SweepFailedError.

        A failure is a sweep that failed or was cancelled, and one that a deadline or a budget ended: always
        where `accept_partial` is off (and `num_samples` was a number), else with fewer finished trials than
        the spec's `stop.min_trials`. One that has not ended raises RaysweepError.
        """
        if not self.has_ended:
            raise RaysweepError(f"{self.sweep_id} has not ended ({self.status}); {self.why}")
        is_refused = self.is_partial and not accept_partial
        is_too_little = is_refused or (self.has_run_out and self.counts.finished < self.min_trials)
        if self.status in ("failed", "cancelled") or is_too_little:
            raise SweepFailedError(self)
        return self

    def to_dataframe(self) -> pandas.DataFrame:
        """One row a trial: its metrics by name, its config as `config/<path>`. Needs pandas.

        Times are timestamps with their zone, `took_s` is in seconds, whole numbers stay whole.
        """
        return make_frame(map(trial_row, self.trials), times=TRIAL_TIMES, call="to_dataframe()")


def _best_or_why(outcome: SweepOutcome) -> TrialOutcome | None:
    if not outcome.metric and outcome.status != "failed":
        raise RaysweepError(f"{outcome.sweep_id} has no metric, so no trial is the best; read outcome.trials")
    if outcome.found_best is None and (outcome.status == "failed" or outcome.infeasible):
        raise SweepFailedError(outcome)
    return outcome.found_best


class _BestOrWhy:
    """Stands over the field `best`, which stays in documents.

    In a script `outcome.best.config` comes next; 'NoneType' object has no attribute 'config' does not help.
    """

    def __get__(self, outcome: SweepOutcome | None, owner: type[SweepOutcome]) -> TrialOutcome | None:
        return None if outcome is None else _best_or_why(outcome)  # of the class: the field's default

    def __set__(self, outcome: SweepOutcome, value: object) -> None:
        raise AttributeError("an outcome is frozen")


SweepOutcome.best = _BestOrWhy()  # type: ignore[assignment]


def show_infeasible(
    constraints: Sequence[str], nearest: TrialOutcome | None, metric: str, others: Collection[str] = ()
) -> str:
    """`no trial satisfies latency_ms <= 20; the nearest is trial 00003 with loss 0.2`."""
    metrics = ", ".join((metric, *others))
    parts = [f"satisfies {' and '.join(constraints)}"] if constraints else []
    text = f"no trial {' and '.join([*parts, *([f'has a number for each of {metrics}'] if others else [])])}"
    if nearest is None or nearest.score is None:
        return text
    return f"{text}; the nearest is trial {nearest.trial_id} with {metric} {show_number(nearest.score)}"


TRIAL_TIMES: Final = frozenset({"started_at", "ended_at"})
_TRIAL_COLUMNS: Final = (
    "trial_id", "number", "state", "score", "reports", "overrun_reports", "started_at", "ended_at", "took_s",
    "checkpoint_uri",
)  # fmt: skip


def trial_row(trial: TrialOutcome) -> dict[str, Any]:
    """A trial as one flat row: its own fields, its metrics by name, its config as `config/<path>`."""
    row: dict[str, Any] = {name: getattr(trial, name) for name in _TRIAL_COLUMNS}
    row["attempts"] = trial.num_attempts
    row["error"] = trial.error.message if trial.error else None
    if trial.violations:
        row["violated"] = "; ".join(trial.violated)
    metrics = {(f"metrics/{name}" if name in row else name): value for name, value in trial.metrics.items()}
    return {**row, **metrics, **config_columns(trial.config)}


def _finite(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None  # type: ignore[arg-type]
