"""What a trial of a command needs to know: plain data, pickled to the workers, built without the specs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from raysweep.specs import SweepSpec, TrainSpec
    from raysweep.specs.evaluate import EvaluateSpec
    from raysweep.specs.program import ProgramSpec

MetricsKind = Literal["emit", "jsonl", "stdout", "tensorboard", "trainer_state"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A command and its options (see `specs.program.ProgramSpec`)."""

    command: tuple[str, ...]
    arguments: Literal["flags", "equals", "hydra", "environment"] = "flags"
    adds_args: bool = False
    """`{args}` follows at the end, though the command does not have it."""
    config_file: Literal["json", "yaml"] = "json"
    environment: dict[str, str] = field(default_factory=dict)
    metrics: MetricsKind = "emit"
    source: str = ""
    """Of `metrics`: a path, or the pattern of `stdout`."""
    folder: str = ""
    """The pattern of checkpoint folders."""
    marker: str = ""
    resume: tuple[str, ...] = ()
    signal: str = "SIGTERM"
    grace_s: float = 10.0
    checkpoint_signal: str | None = None
    cwd: str = ""
    """Where the program runs, if there is such a folder on its node."""
    has_to_report: bool = True
    """Whether a program that ends well without a report has failed: not in a sweep without a metric."""
    allowed: str = ""
    """The list of programs that may run (`allowed.VARIABLE`), where the sweep was started; empty: any."""


def plan_of(spec: SweepSpec | TrainSpec) -> Plan:
    """The plan of a spec that has a command; the program runs in the present folder."""
    from raysweep.specs.program import ProgramSpec, args_are_implied

    assert spec.command is not None, "the spec has a command"
    program = spec.program or ProgramSpec()
    return _plan(
        spec.command,
        program,
        adds_args=args_are_implied(spec.command, program, spec.parameter_paths),
        has_to_report=bool(getattr(spec, "is_ranked", True)),
    )


def plan_of_evaluation(evaluate: EvaluateSpec) -> Plan:
    """The plan of a command that evaluates: the config reaches it where it asks for it."""
    from raysweep.specs.program import ProgramSpec

    assert evaluate.command is not None, "a command evaluates"
    return _plan(evaluate.command, evaluate.program or ProgramSpec(), adds_args=False, has_to_report=True)


def _plan(command: tuple[str, ...], program: ProgramSpec, *, adds_args: bool, has_to_report: bool) -> Plan:
    from raysweep.programs.allowed import listed

    kind: MetricsKind = "emit"
    source = ""
    if program.metrics is not None:
        kind, source = program.metrics.chosen
    checkpoints, stop = program.checkpoints, program.stop
    return Plan(
        command=command,
        arguments=program.arguments,
        adds_args=adds_args,
        config_file=program.config_file,
        environment=dict(program.environment),
        metrics=kind,
        source=source,
        folder=checkpoints.folder or "",
        marker=checkpoints.marker or "",
        resume=checkpoints.resume,
        signal=stop.signal,
        grace_s=stop.grace_s,
        checkpoint_signal=stop.checkpoint_signal,
        cwd=os.getcwd(),
        has_to_report=has_to_report,
        allowed=listed(),
    )
