"""The spec of a pipeline: sweep, gate, train, judge in one document."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    model_validator,
)

from raysweep.documents.base import SpecModel
from raysweep.documents.mode import Mode
from raysweep.documents.validation import Problem, show
from raysweep.errors import SpecError
from raysweep.hooks.model_registry import RegistrySpec
from raysweep.space.parsed import uses
from raysweep.specs.approval import ApprovalSpec, approval_of, check_approval
from raysweep.specs.checks.carried import check_carried
from raysweep.specs.document import SpecDocument, read_document
from raysweep.specs.judge import JudgeSpec
from raysweep.specs.policies import Deadline
from raysweep.specs.sweep import SweepSpec
from raysweep.specs.train import TrainSpec


class GateSpec(SpecModel):
    """The requirements for a sweep's best config before the full-scale training."""

    renamed_fields: ClassVar[dict[str, str]] = {"top_k": "confirm_top_k", "k": "confirm_top_k"}

    confirm_top_k: int = Field(default=3, ge=1)
    """The number of the best configs that are run again, beside the champion."""
    seeds: int = Field(default=3, ge=1)
    """The number of new seeds that each is run with; all get the same."""
    min_improvement: float = Field(default=0.0, ge=0)
    """The least improvement of the best of them over the champion."""
    test: Literal["paired", "mean"] = "paired"
    """`mean`: the mean improvement is enough. `paired`: and, seed by seed, above 0 with 90 % confidence,
    however many candidates there are; takes two seeds at least."""
    false_promotions_per_year: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Configs no better than the champion that may be promoted in a year, on average: instead of
    90 % confidence in each gate. A config that looks better is promoted once further gates have confirmed it.
    Requires `test: paired`. Default: none, 90 % confidence in each gate."""
    seed_param: Annotated[str, Field(min_length=1)] | None = None
    """A parameter of the config that gets the seed; default: the trainable uses the seed of its context."""
    champion: Annotated[str, Field(min_length=1)] | None = None
    """The champion's name; default: the sweep's."""
    metric: Annotated[str, Field(min_length=1)] | None = None
    """The compared value, in the last report of each trial; default: the sweep's metric. With several metrics
    it has to be named."""
    mode: Mode | None = None
    """The direction that is better: `min` or `max`; default: as the sweep says of that metric."""
    data: Annotated[str, Field(min_length=1)] | None = None
    """Names the data set that is measured on: champions of another one are not compared. Default: none."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.test == "paired" and self.seeds < 2:
            raise Problem(
                "1 seed has no spread, which test: paired needs", "set 2 or more, or test: mean", ("seeds",)
            )
        if self.test != "paired" and self.false_promotions_per_year is not None:
            fix = "leave it out, or set test: paired"
            raise Problem("requires test: paired (got mean)", fix, ("false_promotions_per_year",))
        return self

    def goal(self, sweep: SweepSpec) -> tuple[str, Mode]:
        """The compared metric and its mode; for a pair that `check_gate` has let pass."""
        if self.metric is None:
            return sweep.metric, sweep.mode
        return self.metric, self.mode or sweep.objectives.get(self.metric, sweep.mode)


def check_gate(sweep: SweepSpec, gate: GateSpec) -> None:
    """See that a gate can judge what a sweep finds: a champion is better by one metric. Raises Problem."""
    known = sweep.objectives.get(gate.metric or "")
    if gate.metric is None:
        if sweep.others:
            problem = f"compares by one metric, and the sweep has {len(sweep.objectives)}"
            raise Problem(problem, f"name the one with gate.metric: {sweep.metric}", ("gate",))
        if gate.mode is not None:
            raise Problem("is the sweep's to say", "leave it out, or name gate.metric", ("gate", "mode"))
    elif sweep.repeat is not None and gate.metric != sweep.metric:
        fix = "leave it out, or leave repeat out of the sweep"
        raise Problem("cannot be judged by the mean of repeats", fix, ("gate", "metric"))
    elif known is None and gate.mode is None:
        problem = f"is required: {show(gate.metric)} is not one of the sweep's metrics"
        raise Problem(problem, "set it to min or max", ("gate", "mode"))
    elif known is not None and gate.mode not in (None, known):
        problem = f"is {gate.mode} for {show(gate.metric)}, but the sweep has mode {known}"
        raise Problem(problem, "leave it out", ("gate", "mode"))


def _check_carried(sweep: SweepSpec, train: TrainSpec) -> None:
    """See that the training can be made of what the sweep finds, as far as no user code is needed."""
    if uses(sweep.param_space, "sample_from"):
        return
    try:
        check_carried(sweep, train)
    except SpecError as error:
        raise Problem(error.problem, error.fix, ("train", *error.field.split(".", 1))) from None


def _model(model: type[SweepSpec] | type[TrainSpec]) -> BeforeValidator:
    return BeforeValidator(lambda given: model.from_any(given) if given is not None else None)


class PipelineSpec(SpecDocument):
    """A sweep, optionally a gate, a training and a judgement. Frozen; invalid input raises SpecError."""

    sweep: Annotated[SweepSpec, _model(SweepSpec)]
    """The sweep: its fields, or the path of its file."""
    gate: GateSpec | None = None
    """The requirements for its best config; default: none, it is always trained."""
    approval: Annotated[ApprovalSpec | None, BeforeValidator(approval_of)] = None
    """`required`, or its timeout and what silence means: whether what passes the gate is promoted and trained
    is a person's decision. Default: none is asked."""
    deadline: Deadline = None
    """The end of the night: ISO 8601 with its offset from UTC, or `06:00 Europe/Berlin`, the next one after
    the sweep began. Gate and training end by then; a training that would not is not begun. The sweep has a
    deadline of its own, `stop.deadline`. Default: none."""
    registry: RegistrySpec | None = None
    """The registry of champions and their models: `mlflow`, or `module:Class`. Default: none."""
    train: Annotated[TrainSpec | None, _model(TrainSpec)] = None
    """The full-scale training: its fields, or the path of its file; default: none."""
    judge: JudgeSpec | None = Field(default=None, exclude_if=lambda given: given is None)
    """The requirements for releasing the trained model; default: none, what the gate promotes is released."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.gate is not None or self.train is not None) and not self.sweep.is_ranked:
            problem = "is required: gate and training take the best trial"
            raise Problem(problem, "name metric and mode", ("sweep", "metric"))
        if self.gate is not None:
            check_gate(self.sweep, self.gate)
        check_approval(self.approval, self.gate, self.judge)
        if self.deadline is not None and self.gate is None and self.train is None:
            fix = "use sweep.stop.deadline, or add gate or train"
            raise Problem("applies to gate and training", fix, ("deadline",))
        if self.train is not None:
            _check_carried(self.sweep, self.train)
        if self.judge is not None and (self.gate is None or self.train is None):
            missing = "gate" if self.gate is None else "train"
            raise Problem(f"requires {missing}", f"add {missing}, or leave judge out", ("judge",))
        if self.registry is not None and self.gate is None:
            raise Problem("requires a gate", "add gate, or leave registry out", ("registry",))
        return self

    @property
    def judge_approval(self) -> ApprovalSpec | None:
        """The approval that stands after the judgement."""
        return self.approval if self.approval is not None and self.approval.after == "judge" else None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """From a `.yaml`, `.yml` or `.json` file; paths in it are relative to it. Raises SpecError."""
        fields = read_document(path)
        for part in ("sweep", "train"):
            if isinstance(fields.get(part), str):
                fields[part] = os.fspath(Path(path).expanduser().parent / fields[part])
        return cls.model_validate(fields)

    def stored_at(self, storage_path: str | None) -> PipelineSpec:
        """With another storage path for sweep and training, if one is given."""
        if storage_path is None:
            return self
        train = self.train.replace(storage_path=storage_path) if self.train is not None else None
        return self.replace(sweep=self.sweep.replace(storage_path=storage_path), train=train)

    @classmethod
    def from_parts(
        cls, sweep: Any, train: Any = None, gate: Mapping[str, Any] | GateSpec | None = None
    ) -> Self:
        """From a sweep's spec, a training's and a gate, each as its own kind takes it. Raises SpecError."""
        return cls.model_validate({"sweep": sweep, "train": train, "gate": gate})
