"""Checks of a command: that it can be filled in, and that each parameter reaches it."""

from __future__ import annotations

from raysweep.documents.validation import Problem
from raysweep.specs.checks.argument_names import check_names
from raysweep.specs.sweep_fields import SweepFields
from raysweep.specs.train_fields import TrainFields
from raysweep.specs.trial.program import ProgramSpec, check_placeholders


def check_command(spec: SweepFields | TrainFields) -> None:
    """See that the command of a spec can be filled in. Raises Problem."""
    if spec.command is None:
        return
    is_sweep = isinstance(spec, SweepFields)
    if isinstance(spec, SweepFields):
        _check_sweep(spec)
    elif spec.scaling.max_workers > 1:
        raise Problem(
            f"has {spec.scaling.max_workers} workers, and a command runs in one",
            "write num_workers: 1, give it all GPUs by scaling.resources, and start the ranks by a"
            " launcher: command: [torchrun, --nproc_per_node, …]",
            ("scaling", "num_workers"),
        )
    program = spec.program or ProgramSpec()
    # What a training's config lacks may come from a sweep.
    check_placeholders(spec.command, program, spec.parameter_paths, is_whole=is_sweep)
    check_names(spec.command, program, spec.parameter_paths)


def _check_sweep(spec: SweepFields) -> None:
    if spec.scaling is not None and spec.program is not None and spec.program.service is not None:
        fix = "leave scaling out: give the trial its resources, and let a launcher start the program's ranks"
        raise Problem("cannot be combined with scaling", fix, ("program", "service"))
    if spec.scaling is not None and spec.scaling.backend is not None:
        fix = "leave it out: the program connects its ranks by MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE"
        raise Problem("cannot be combined with command", fix, ("scaling", "backend"))
    if spec.driver is not None:
        fix = "leave it out: give the program its resources, and let a launcher start its ranks"
        raise Problem("cannot be combined with command", fix, ("scaling", "driver"))
