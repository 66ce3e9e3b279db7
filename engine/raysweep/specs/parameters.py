"""The parameters that reach a command: checks of a whole spec, and how its schema says them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from raysweep.documents.json_values import leaves
from raysweep.documents.validation import Problem
from raysweep.space.parsed import is_domain
from raysweep.specs.program import ProgramSpec, check_placeholders

if TYPE_CHECKING:
    from raysweep.specs.sweep import SweepSpec
    from raysweep.specs.train import TrainSpec


def check_command(spec: SweepSpec | TrainSpec) -> None:
    """See that the command of a spec can be filled in. Raises Problem."""
    if spec.command is None:
        return
    is_sweep = spec.kind == "sweep"
    if is_sweep:
        _check_sweep(cast("SweepSpec", spec))
    elif spec.scaling is not None and spec.scaling.num_workers > 1:
        raise Problem(
            f"has {spec.scaling.num_workers} workers, and a command runs in one",
            "write num_workers: 1, give it all GPUs by resources_per_worker, and start the ranks by a"
            " launcher: command: [torchrun, --nproc_per_node, …]",
            ("scaling", "num_workers"),
        )
    # What a training's config lacks may come from a sweep.
    check_placeholders(spec.command, spec.program or ProgramSpec(), paths_of(spec), is_whole=is_sweep)


def _check_sweep(spec: SweepSpec) -> None:
    if spec.scaling is not None and spec.scaling.backend is not None:
        fix = "leave it out: the program connects its ranks by MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE"
        raise Problem("cannot be combined with command", fix, ("scaling", "backend"))
    if spec.resources.train is not None:
        fix = "leave it out: give the program its resources, and let a launcher start its ranks"
        raise Problem("cannot be combined with command", fix, ("resources", "train"))


def paths_of(spec: SweepSpec | TrainSpec) -> list[str]:
    """The dotted paths of a spec's parameters; those inside a branch have the branch's path."""
    fields = getattr(spec, "config", None) if spec.kind == "train" else getattr(spec, "param_space", None)
    return [path for path, _ in leaves(fields or {}, is_leaf=is_domain)]


def require_command(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a spec that has a `trainable` or a `command`."""
    schema["required"] = [name for name in schema.get("required", ()) if name != "trainable"]
    # The model takes null for one that is not given.
    found = schema["properties"]["trainable"]
    schema["properties"]["trainable"] = {
        "anyOf": [{key: found[key] for key in found if key != "description"}, {"type": "null"}],
        **({"description": found["description"]} if "description" in found else {}),
    }
    schema["anyOf"] = [{"required": ["trainable"]}, {"required": ["command"]}]
    return schema
