"""Checks of a sweep and the training behind it: what is carried from one scale to the other."""

from __future__ import annotations

from random import Random
from typing import Final

from raysweep.space.domains import SampleFrom
from raysweep.space.scales import show_scale
from raysweep.specs.bridge import check_bridge
from raysweep.specs.sweep import SweepSpec
from raysweep.specs.train import TrainSpec
from raysweep.transfer.rules import check_transfer, try_rules

_TRIED: Final = 16


def check_carried(sweep: SweepSpec, train: TrainSpec) -> None:
    """See that a training can be made of what a sweep finds; rules are tried on some configs.

    Raises:
        SpecError: A parameter or a scale is not there, a law cannot be had, or a rule has no value, or none
            inside the domain, for any of these configs; a bridge is not between the scales.
    """
    if not train.transfer:
        return
    space, scales = sweep.parameter_space, sweep.full_scales
    target = {**sweep.largest_scale, **train.full_scale}
    check_transfer(train.transfer, space, scales, target)
    if train.bridge is not None:
        check_bridge(train.bridge, sweep.largest_scale, target)
    has_functions = any(isinstance(domain, SampleFrom) for _, domain in space.leaves)
    if not has_functions:
        configs = [space.sample(Random(number)) for number in range(_TRIED)]
        try_rules(train.transfer, configs, space=space, scale=target, proxy=scales[-1])


def copied_line(sweep: SweepSpec, train: TrainSpec) -> str:
    """One line where a training at another scale says nothing about transfer; else empty."""
    if train.transfer or not train.scale or train.scale == sweep.largest_scale:
        return ""
    here = show_scale(sweep.largest_scale) or "no scale"
    names = ", ".join(sorted(".".join(path) for path, _ in sweep.parameter_space.searched))
    return (
        f"the training has {show_scale(train.scale)}, the sweep {here}, and transfer is not set:"
        f" {names} are copied"
    )
