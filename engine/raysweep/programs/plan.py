"""The plan of a command's trial: plain data, pickled to the workers, built without the specs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from raysweep.specs import SweepSpec, TrainSpec
    from raysweep.specs.trial.evaluate import EvaluateSpec
    from raysweep.specs.trial.program import ProgramSpec
    from raysweep.specs.trial.service import ServiceSpec

MetricsKind = Literal["emit", "jsonl", "stdout", "tensorboard", "trainer_state"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlan:
    """A server beside the command (see `specs.trial.service.ServiceSpec`)."""

    command: tuple[str, ...]
    ready: str
    ready_timeout_s: float
    environment: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A command and its options (see `specs.trial.program.ProgramSpec`)."""

    command: tuple[str, ...]
    arguments: Literal["flags", "switches", "equals", "hydra", "environment"] = "flags"
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
    service: ServicePlan | None = None
    cwd: str = ""
    """The folder in which the program runs, if there is such a folder on its node."""
    has_to_report: bool = True
    """True if a program that ends well without a report has failed: not in a sweep without a metric."""
    ranked: tuple[str, ...] = ()
    """The metrics that rank the trials."""
    allowed: str = ""
    """The list of programs that may run (`allowed.VARIABLE`), where the sweep was started; empty: any."""

    @property
    def commands(self) -> tuple[tuple[str, ...], ...]:
        """The command, and that of the server."""
        return (self.command,) if self.service is None else (self.command, self.service.command)

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts in which placeholders may name parameters."""
        own = (*self.command, *self.environment.values())
        if self.service is None:
            return own
        return (*own, *self.service.command, *self.service.environment.values(), self.service.ready)


def plan_of(spec: SweepSpec | TrainSpec) -> Plan:
    """The plan of a spec that has a command; the program runs in the present folder."""
    from raysweep.specs.trial.program import ProgramSpec, args_are_implied

    assert spec.command is not None, "the spec has a command"
    program = spec.program or ProgramSpec()
    return _plan(
        spec.command,
        program,
        adds_args=args_are_implied(spec.command, program, spec.parameter_paths),
        has_to_report=bool(getattr(spec, "is_ranked", True)),
        ranked=tuple(getattr(spec, "objectives", ())),
    )


def plan_of_evaluation(evaluate: EvaluateSpec) -> Plan:
    """The plan of a command that evaluates: the config reaches it where it asks for it."""
    from raysweep.specs.trial.program import ProgramSpec

    assert evaluate.command is not None, "a command evaluates"
    return _plan(evaluate.command, evaluate.program or ProgramSpec(), adds_args=False, has_to_report=True)


def _plan(
    command: tuple[str, ...],
    program: ProgramSpec,
    *,
    adds_args: bool,
    has_to_report: bool,
    ranked: tuple[str, ...] = (),
) -> Plan:
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
        service=_service(program.service),
        cwd=os.getcwd(),
        has_to_report=has_to_report,
        ranked=ranked,
        allowed=listed(),
    )


def _service(given: ServiceSpec | None) -> ServicePlan | None:
    if given is None:
        return None
    return ServicePlan(
        command=given.command,
        ready=given.ready,
        ready_timeout_s=given.ready_timeout_s,
        environment=dict(given.environment),
    )
