"""Evaluation apart from training: what judges a trial's checkpoints, and on what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from raysweep.documents.base import SpecModel
from raysweep.documents.validation import Problem
from raysweep.specs.document import ImportPath, Trainable, as_given
from raysweep.specs.trial.bundles import ProcessResources
from raysweep.specs.trial.command import Command
from raysweep.specs.trial.program import RUNNER, ProgramSpec, require_command, with_runner

BY_TRAINER: Final = "raysweep.worker.validation:validate"
"""The `trainable` for evaluation by the `validation_config` of a trial's trainer of Ray Train."""
NAME_OF_IT: Final = "validation_config"


class EvaluateSpec(SpecModel):
    """The evaluation of the checkpoints of a sweep's trials, in resources of its own.

    A report with such a checkpoint counts once its evaluation is in, with the metrics of both.
    """

    renamed_fields: ClassVar[dict[str, str]] = {
        "evaluator": "trainable",
        "function": "trainable",
        "validate_fn": "trainable",
        "max_concurrent": "slots",
        "num_workers": "slots",
        "max_attempts": "tries",
    }

    trainable: Trainable
    """A function `evaluate(checkpoint, config, iteration)` that returns a dict of metrics; or `command`.

    Named by `package.module:function`, or in Python the callable. `checkpoint` is the `Path` of a folder with
    the checkpoint, `iteration` the number of the report that it came with, counted from 1.
    `validation_config`: the checkpoints that a trial's Ray Train run reports with `validation`, by the
    function in its trainer's ValidationConfig.
    """
    command: Command | None = None
    """A program in its place: `[python, eval.py, --model, "{checkpoint}"]`."""
    program: ProgramSpec | None = None
    """The rules for `command`: its config and its metrics, as in the sweep's `program`."""
    resources: ProcessResources = ProcessResources()
    """The resources of one evaluation, beside the trials."""
    slots: Annotated[int, Field(ge=1)] = 1
    """The number of evaluations that run at once. So much room is held as long as the sweep runs."""
    every: Annotated[int, Field(ge=1)] = 1
    """Each so-manyth checkpoint of a trial is evaluated."""
    ahead: Annotated[int, Field(ge=0)] = 1
    """The evaluations a trial may be ahead of; then its next report with a checkpoint waits for one.

    0: each such report waits for its own evaluation.
    """
    tries: Annotated[int, Field(ge=1)] = 3
    """The number of tries of an evaluation, whether it raised or its process died."""
    timeout_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds that a try may take; default: as long as it likes."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        if callable(given) or isinstance(given, str):
            given = {"trainable": given}
        if not isinstance(given, Mapping):
            return given
        fields = with_runner(given)
        if fields.get("trainable") == NAME_OF_IT:
            fields = {**fields, "trainable": BY_TRAINER}
        if fields.get("trainable") is None:
            fix = "write trainable: package.module:function, or command: [python, eval.py, …]"
            raise Problem("names nothing that evaluates", fix)
        return fields

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.resources.to_bundle():
            raise Problem("asks for nothing", 'give an amount above 0, such as "cpu": 1', ("resources",))
        if self.is_by_trainer and self.every > 1:
            fix = "leave it out: the training asks for each validation, by report(validation=True)"
            raise Problem(f"cannot be combined with trainable: {NAME_OF_IT}", fix, ("every",))
        return self

    @model_serializer(mode="wrap")
    def _write(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = write(self)
        fields.pop("trainable" if self.command is not None else "command", None)
        if self.command is None:
            fields.pop("program", None)
        if self.is_by_trainer:
            fields["trainable"] = NAME_OF_IT
        return fields

    @property
    def is_program(self) -> bool:
        """True if a command evaluates."""
        return self.trainable == RUNNER

    @property
    def is_by_trainer(self) -> bool:
        """True if the `validation_config` of a trial's trainer evaluates."""
        return self.trainable == BY_TRAINER

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(super().__get_pydantic_json_schema__(core, handler))
        return require_command(schema)


Evaluate = Annotated[
    EvaluateSpec | None,
    BeforeValidator(as_given, json_schema_input_type=EvaluateSpec | ImportPath | None),
]
