"""The summary of a run that ended: what a list of hundreds of runs shows, in one small object for each.

It lies beside the outcome, which is large where there are many trials. It names the size of the outcome it
was made of: where the two differ, a later run wrote the outcome, and the summary counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Literal, Self

import orjson

from raysweep.documents.json_numbers import Counts, Number
from raysweep.documents.json_values import leaves
from raysweep.errors import one_line
from raysweep.outcome.record import Record
from raysweep.outcome.sweep import SweepOutcome
from raysweep.outcome.train import TrainOutcome
from raysweep.outcome.trials import rows_of
from raysweep.outcome.usage import Usage

SUMMARY = "summary.json"
FORMAT = 1
MAX_VALUES = 20
_MAX_TEXT = 60


class RunSummary(Record):
    """A sweep, the sweep of a gate, or a training run, on one row. Times are seconds since 1970 UTC."""

    kind: Literal["sweep", "train"] = "sweep"
    run_id: str
    name: str = ""
    key: str = ""
    status: str
    """What it ended as, or `starting`, `running`, `stopping`, `interrupted`, `damaged`."""
    has_ended: bool = False
    """It has an outcome."""
    why: str = ""
    """Why it ended; of a run that cannot be read, the problem."""
    metric: str = ""
    mode: Literal["min", "max"] = "max"
    score: Number | None = None
    """Of the best trial."""
    trial_id: str = ""
    """The best trial."""
    config: dict[str, Any] = {}
    """The best trial's config by paths, of a training its metrics: `MAX_VALUES` of them, texts cut."""
    counts: Counts = Counts()
    """Trials by state."""
    num_trials: int | None = None
    """How many were to run; None where that is not known."""
    attempts: int = 0
    """How many attempts the trials took together."""
    trial_s: float = 0.0
    """How long the trials ran together, in seconds."""
    started_at: float | None = None
    ended_at: float | None = None
    generation: int = 0
    """How many controllers have run it."""
    usage: Usage | None = None
    of: str = ""
    """The id of the sweep that a training's config comes from; empty where no sweep handed it on."""
    holder: str = ""
    """Who runs it, or ran it last; empty where that is not known, or it has ended."""
    uri: str = ""
    """Where it is stored."""

    @property
    def is_running(self) -> bool:
        """Whether a process that lives is at work on it."""
        return not self.has_ended and self.status in ("starting", "running", "stopping")

    @property
    def took_s(self) -> float | None:
        """From its start to its end, in seconds; None before that."""
        return None if self.started_at is None or self.ended_at is None else self.ended_at - self.started_at

    def stored(self, outcome_bytes: int) -> bytes:
        """As it lies beside an outcome of this size."""
        fields = self.model_dump(mode="json", exclude={"uri", "holder"})
        return orjson.dumps({"format": FORMAT, "outcome_bytes": outcome_bytes} | fields)

    @classmethod
    def from_stored(cls, data: bytes) -> tuple[Self, int] | None:
        """From what lies beside an outcome, with the size of that outcome; None where it cannot be read."""
        try:
            fields = orjson.loads(data)
            if fields["format"] != FORMAT:
                return None
            return cls.model_validate(fields), int(fields["outcome_bytes"])
        except (ValueError, KeyError, TypeError):
            return None


def first_values(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a list shows of a config, by paths; its size is bounded."""
    return {path: _cut(value) for path, value in islice(leaves(config), MAX_VALUES)}


def _cut(value: Any) -> Any:
    return value if isinstance(value, int | float | None) else one_line(str(value), _MAX_TEXT)


def summary_of_sweep(outcome: SweepOutcome) -> RunSummary:
    """Of a sweep that has ended."""
    best, attempts, trial_s = outcome.found_best, 0, 0.0
    for row in rows_of(outcome.trials):
        attempts += len(row.attempts)
        trial_s += sum(each.took_s or 0.0 for each in row.attempts)
    return RunSummary(
        run_id=outcome.sweep_id,
        name=outcome.name,
        key=outcome.key,
        status=outcome.status,
        has_ended=True,
        why=outcome.reason,
        metric=outcome.metric,
        mode=outcome.mode,
        score=best.score if best is not None else None,
        trial_id=best.trial_id if best is not None else "",
        config=first_values(best.config) if best is not None else {},
        counts=outcome.counts,
        num_trials=outcome.wanted_trials,
        attempts=attempts,
        trial_s=trial_s,
        started_at=outcome.started_at,
        ended_at=outcome.ended_at,
        generation=outcome.generation,
        usage=outcome.usage,
        uri=outcome.uri,
    )


def summary_of_training(outcome: TrainOutcome) -> RunSummary:
    """Of a training run that has ended."""
    return RunSummary(
        kind="train",
        run_id=outcome.run_id,
        name=outcome.name,
        key=outcome.key,
        status=outcome.status,
        has_ended=True,
        why=outcome.error.line if outcome.error is not None else outcome.ended_by,
        config=first_values(outcome.metrics),
        started_at=outcome.started_at,
        ended_at=outcome.ended_at,
        usage=outcome.usage,
        of=outcome.source.sweep.rstrip("/").rpartition("/")[2] if outcome.source is not None else "",
        uri=outcome.uri,
    )
