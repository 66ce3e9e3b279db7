"""Checks of an evaluation beside the rest of a sweep's spec."""

from __future__ import annotations

from raysweep.documents.placeholders import names_in
from raysweep.documents.validation import Problem, show
from raysweep.specs.checks.argument_names import check_names
from raysweep.specs.sweep_fields import SweepFields
from raysweep.specs.trial.program import BUILT_IN, ProgramSpec


def check_evaluate(spec: SweepFields) -> None:
    """See that the checkpoints of a sweep can be evaluated apart from its trials. Raises Problem."""
    if spec.evaluate is None:
        return
    if spec.scaling is not None and spec.driver is None:
        fix = "evaluate in rank 0, or train by Ray Train with scaling.driver"
        raise Problem("cannot be combined with scaling without a driver", fix, ("evaluate",))
    if spec.evaluate.is_by_trainer and spec.driver is None:
        fix = "add scaling with driver: {}, or name a function as evaluate.trainable"
        raise Problem("validation_config requires scaling with a driver", fix, ("evaluate", "trainable"))
    if spec.isolation == "inline":
        fix = "choose another isolation: an evaluation runs beside its trial"
        raise Problem("cannot be combined with isolation: inline", fix, ("evaluate",))
    if spec.checkpoint.upload == "latest":
        fix = "leave checkpoint.upload out: with latest, checkpoints are skipped"
        raise Problem("cannot be combined with checkpoint.upload: latest", fix, ("evaluate",))
    if spec.stop.trial_time_s is not None:
        fix = "limit trials by a metric in stop.trial: their time has the evaluations in it"
        raise Problem("cannot be combined with stop.trial_time_s", fix, ("evaluate",))
    if spec.evaluate.command is not None:
        _check_placeholders(spec, spec.evaluate.command, spec.evaluate.program or ProgramSpec())


def _check_placeholders(spec: SweepFields, command: tuple[str, ...], program: ProgramSpec) -> None:
    paths = spec.parameter_paths
    try:
        check_names(command, program, paths)
    except Problem as found:
        raise Problem.of(found.issues, ("evaluate",)) from None
    for path, text in (*program.templates(command), *program.file_templates()):
        for name in names_in(text):
            is_known = any(
                name == each or name.startswith(f"{each}.") or each.startswith(f"{name}.") for each in paths
            )
            if not is_known and name not in BUILT_IN:
                known = ", ".join((*paths, *BUILT_IN))
                raise Problem(
                    f"{show(text)} has the unknown placeholder {{{name}}}",
                    f"use one of {known}",
                    ("evaluate", *path),
                )
