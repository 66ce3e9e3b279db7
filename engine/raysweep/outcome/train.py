"""The outcomes of a training, and of a whole pipeline."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field

from raysweep.documents.json_numbers import Metrics, Number
from raysweep.errors import TrainingFailedError
from raysweep.outcome.gate import GateOutcome
from raysweep.outcome.judgement import Judgement
from raysweep.outcome.predicted import Predicted
from raysweep.outcome.record import ErrorInfo, Record
from raysweep.outcome.showing.text import outcome_text, short
from raysweep.outcome.sweep import SweepOutcome, is_empty
from raysweep.outcome.usage import Usage
from raysweep.specs.carried import CarriedConfig


class TrainSource(Record):
    """The trial whose config a training was given."""

    sweep: str
    """The URI of the sweep's folder."""
    trial_id: str
    score: Number | None = None


class TrainReport(Record):
    """One report of a training."""

    iteration: int
    """Counts from 1, through all attempts; what was repeated after a restart counts once."""
    at: float
    """The time at which it was made, in UTC seconds."""
    metrics: Metrics = {}
    """Rank 0's; of more than 1 KiB what fits."""
    workers: int | None = None
    """The number of workers that trained together then."""


class DataDigest(Record):
    """The data that were found at one of the spec's `data`."""

    name: str
    uri: str
    digest: str
    """64 hex digits (BLAKE3)."""
    of: Literal["content", "listing"]
    """The hashed part: all bytes with their names, or, above 256 MiB, names, sizes and modification times."""
    objects: int
    size_bytes: int
    is_cut: bool = False
    """There are more objects than the first 100,000, and of these nothing is known."""
    has_changed: bool | None = None
    """True if it was another at the training's end; None: that could not be told."""


class TrainOutcome(Record):
    """One training run that ended. Times are seconds since 1970 UTC."""

    run_id: str
    name: str
    key: str = ""
    status: Literal["completed", "failed"]
    ended_by: Literal["", "deadline", "time_budget", "below_prediction"] = ""
    """The limit that ended it before its function returned; its last checkpoint is the model, or it failed.

    One that fell below its prediction has no model: `model_uri` is None, and nothing is registered.
    """
    metrics: Metrics = {}
    """The last report; of a run that a limit ended, that of its last checkpoint."""
    config: dict[str, Any] = {}
    model_uri: str | None = None
    """The folder with the trained model: the last checkpoint."""
    checkpoint_uri: str | None = None
    uri: str = ""
    """The address at which the run is stored."""
    started_at: float
    ended_at: float
    error: ErrorInfo | None = None
    resumed: bool = False
    """True if it continued from an earlier run's checkpoint."""
    source: TrainSource | None = None
    """The origin of the config; None where no sweep handed it on."""
    carried: CarriedConfig | None = Field(default=None, exclude_if=lambda given: given is None)
    """The way the config came from that of the sweep's trial at another scale; None: it was not carried."""
    predicted: Predicted | None = Field(default=None, exclude_if=lambda given: given is None)
    """The score that the law predicted, and the one that came; None: there was no law."""
    versions: dict[str, str] = {}
    """Of Python and of the packages that trained, by their names on the package index."""
    history: tuple[TrainReport, ...] = ()
    """The reports, oldest first, of all attempts: of more than 1,000 reports every second, fourth, …"""
    usage: Usage | None = None
    """The use of all attempts; workers count from their start to their end."""
    data: tuple[DataDigest, ...] = ()
    """The spec's `data` as they were when the training began."""
    code_digest: Annotated[str, Field(exclude_if=is_empty)] = ""
    """Of the trainable's own code, as it ran last; empty where that is not known."""
    nothing_ran: Annotated[str, Field(exclude_if=is_empty)] = ""
    """Of an outcome of earlier that was handed on, why it may not be what would come now."""
    raysweep_version: str = ""
    format_version: int = 1

    def __str__(self) -> str:
        ended_by = f", ended by {self.ended_by}" if self.ended_by else ""
        return outcome_text(
            f"{self.run_id}: {self.status}{ended_by}",
            self.error.line if self.error is not None else "",
            f"config: {short(self.config)}" if self.config else "",
            f"carried: {self.carried.line}" if self.carried is not None else "",
            f"metrics: {short(self.metrics)}" if self.metrics else "",
            f"predicted: {self.predicted}" if self.predicted is not None else "",
            f"model: {self.model_uri}" if self.model_uri else "",
            self.nothing_ran,
            uri=self.uri,
        )

    @property
    def took_s(self) -> float:
        """From its start to its end, in seconds: of the attempt that ended it (`usage.active_s`: of all)."""
        return self.ended_at - self.started_at

    @property
    def model_line(self) -> str:
        """The address of the model, or the reason why there is none."""
        fell = "none: the run fell below its prediction"
        none = fell if self.ended_by == "below_prediction" else "none: the trainable reported no checkpoint"
        return self.model_uri or none

    def raise_for_status(self) -> Self:
        """The outcome itself, or TrainingFailedError."""
        if self.status == "failed":
            raise TrainingFailedError(self)
        return self


class PipelineOutcome(Record):
    """The outcome of a night."""

    sweep: SweepOutcome
    gate: GateOutcome | None = None
    """The gate's verdict; None where there was none."""
    train: TrainOutcome | None = None
    """The training; None where there was none, or it was skipped."""
    skipped: str = ""
    """The reason why the training was skipped; empty where it was not."""
    judgement: Judgement | None = None
    """The judgement of the trained model; None where there was none."""
    released: bool | None = None
    """True if that model was released; None where none was judged."""
    registered: str = ""
    """The state of the registry: `registered: version 4`, or what is pending and why; empty without one."""

    def __str__(self) -> str:
        # The sweep's own text ends with the verdict, and a training is skipped for no other reason.
        is_told = self.gate is not None and self.gate == self.sweep.gate
        gate = self.gate.why if self.gate is not None and not is_told else ""
        parts = (
            self.sweep,
            gate,
            self.train,
            "not trained" if is_told and self.skipped else self.skipped,
            self.judgement.why if self.judgement is not None else "",
            self.registered,
        )
        return "\n".join(str(part) for part in parts if part)
