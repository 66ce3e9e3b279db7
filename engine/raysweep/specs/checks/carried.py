"""Checks of a sweep and the training behind it: what is carried from one scale to the other."""

from __future__ import annotations

from random import Random
from typing import Final

from raysweep.documents.validation import did_you_mean, show
from raysweep.errors import SpecError
from raysweep.space.domains import SampleFrom
from raysweep.space.scales import show_scale
from raysweep.specs.bridge import check_bridge
from raysweep.specs.sweep import SweepSpec
from raysweep.specs.train import TrainSpec
from raysweep.transfer.rules import LAW, SAME, check_transfer, parse_rule, try_rules

_TRIED: Final = 16


def check_carried(sweep: SweepSpec, train: TrainSpec) -> None:
    """See that a training can be made of what a sweep finds; rules are tried on some configs.

    Raises:
        SpecError: A parameter or a scale is not there, a law cannot be had, or a rule has no value, or none
            inside the domain, for any of these configs; a bridge is not between the scales.
    """
    _check_names(sweep, train)
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


def _check_names(sweep: SweepSpec, train: TrainSpec) -> None:
    """See that a training has no scale that neither the sweep nor a rule knows, as of a misspelt name."""
    rules = (how for how in train.transfer.values() if how not in (SAME, LAW))
    in_rules = {path[1] for how in rules for path in parse_rule(how).names if path[0] == "scale" and path[1:]}
    for name in train.scale if sweep.largest_scale else ():
        if name not in {"workers", *sweep.largest_scale, *in_rules}:
            problem = f"the sweep has no scale {show(name)}, and no rule of transfer names it"
            raise SpecError(f"scale.{name}", problem, did_you_mean(name, sweep.largest_scale))


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
