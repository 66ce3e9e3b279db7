"""All checks of a training's spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raysweep.documents.validation import Problem, did_you_mean, show
from raysweep.space.expressions import dotted_name
from raysweep.space.scales import read_scale
from raysweep.specs.checks.command import check_command
from raysweep.specs.train_fields import TrainFields
from raysweep.transfer.rules import LAW, SAME, parse_rule


def with_scale(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a spec whose config has the values of its scale. Raises Problem."""
    scale, config = given.get("scale"), given.get("config", {})
    if not isinstance(scale, Mapping) or not isinstance(config, Mapping):
        return given
    for name, value in scale.items():
        if name in config and config[name] != value:
            problem = f"{show(name)} is {show(config[name])} in config and {show(value)} in scale"
            raise Problem(problem, "leave it out of config", ("scale",))
    try:
        return {**given, "config": {**config, **read_scale(scale)}}
    except Problem:  # which the field itself reports
        return given


def _check_transfer(spec: TrainFields) -> None:
    """See that the training names what its rules name, and that nothing else says it. Raises Problem."""
    workers = spec.scaling.max_workers
    if spec.scale.get("workers", workers) != workers:
        problem = f"workers is {spec.scale['workers']:g}, and scaling.num_workers {workers}"
        raise Problem(problem, "leave workers out: it is filled in from scaling", ("scale",))
    if spec.transfer and not spec.scale and all(how == LAW for how in spec.transfer.values()):
        raise Problem("requires the scale of the training", "add scale: {rows: 336776}", ("transfer",))
    for name, how in spec.transfer.items():
        if name in spec.config:
            problem = f"{show(name)} is in config, which is trained as it is"
            raise Problem(problem, "leave it out of config, or of transfer", ("transfer", name))
        if how in (SAME, LAW):
            continue
        for path in parse_rule(how).names:
            if path[0] == "scale" and len(path) == 2 and path[1] not in spec.full_scale:
                problem = f"the training has no scale {dotted_name(path)!r}"
                raise Problem(problem, did_you_mean(str(path[1]), spec.full_scale), ("transfer", name))


def _check_below(spec: TrainFields) -> None:
    """See that there is a prediction to fall below. Raises Problem."""
    if spec.stop.below_prediction is None or spec.carried is not None or LAW in spec.transfer.values():
        return
    problem = "requires a predicted score, and transfer carries no parameter by law"
    raise Problem(problem, "add such as transfer: {lr: law}, or leave it out", ("stop", "below_prediction"))


def _check_bridge(spec: TrainFields) -> None:
    """See that there is something to compare, and where. Raises Problem."""
    if spec.bridge is None:
        return
    if not spec.transfer and spec.carried is None:
        problem = "requires transfer: without it there is one config, and nothing to compare"
        raise Problem(problem, "add transfer, or leave bridge out", ("bridge",))
    for name in spec.bridge.scale:
        if name not in spec.scale:
            fix = did_you_mean(name, spec.scale) if spec.scale else "add scale: {rows: 336776}"
            raise Problem("the training has no such scale", fix, ("bridge", "scale", name))


def check_train(spec: TrainFields) -> None:
    """See that the fields of a training fit together. Raises Problem."""
    check_command(spec)
    _check_transfer(spec)
    _check_below(spec)
    _check_bridge(spec)
    if spec.scaling.backend is not None:
        fix = "leave it out: framework says which trainer sets the workers up"
        raise Problem("applies only to trials of a sweep", fix, ("scaling", "backend"))
    if spec.scaling.by_config:
        fix = "leave it out, and give num_workers"
        raise Problem("applies only to trials of a sweep", fix, ("scaling", "by_config"))
    if spec.scaling.driver is not None:
        fix = "leave it out: the trainable runs in each worker"
        raise Problem("applies only to trials of a sweep", fix, ("scaling", "driver"))
    if spec.scaling.metrics != "rank0":
        fix = "leave it out: rank 0's metrics are the training's"
        raise Problem("applies only to trials of a sweep", fix, ("scaling", "metrics"))
