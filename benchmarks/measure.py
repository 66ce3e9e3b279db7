"""Rounds, medians and ratios: what turns timed calls into a figure that may be quoted."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, Literal

Json = dict[str, Any]
Figure = Literal["wall", "warm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One contender in one round: `units` trials (or results) in `wall_s`; `warm_s` is the part of it from
    the start of the first to the end of the last."""

    units: int
    wall_s: float
    warm_s: float | None = None
    extra: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[Json] = ()
    """What was written down while it ran; not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Something that does the work, and the settings that it does it with."""

    name: str
    settings: str
    run: Callable[[], Sample]


def alternate(contenders: Sequence[Contender], rounds: int) -> dict[str, list[Sample]]:
    """Run each contender once a round; each round begins with another one."""
    samples: dict[str, list[Sample]] = {contender.name: [] for contender in contenders}
    for number in range(rounds):
        first = number % len(contenders)
        for contender in [*contenders[first:], *contenders[:first]]:
            samples[contender.name].append(contender.run())
    return samples


def spread(values: Sequence[float]) -> Json:
    """The median of all rounds, and each round in the order in which they were run."""
    return {"median": significant(median(values)), "rounds": [significant(value) for value in values]}


def describe(contender: Contender, samples: Sequence[Sample], unit: str) -> Json:
    """All figures of one contender."""
    shown: Json = {"settings": contender.settings, f"{unit}s_per_round": samples[0].units}
    for figure in figures_of(samples):
        seconds = [seconds_of(sample, figure) for sample in samples]
        shown[figure] = {
            "s": spread(seconds),
            f"ms_per_{unit}": spread([cost(sample, figure) * 1e3 for sample in samples]),
            f"{unit}s_per_s": spread([1 / cost(sample, figure) for sample in samples]),
        }
    for name in samples[0].extra:
        shown[name] = spread([sample.extra[name] for sample in samples])
    return shown


def compare(
    contenders: Sequence[Contender], rounds: int, unit: str, own: str = "raysweep"
) -> tuple[Json, dict[str, list[Sample]]]:
    """Run all, and say of each peer how many times as fast as it `own` is.

    Returns: `{"contenders": …, "ratios": …}`, and the samples by contender.
    """
    samples = alternate(contenders, rounds)
    return compare_samples(contenders, samples, unit, own), samples


def compare_samples(
    contenders: Sequence[Contender],
    samples: Mapping[str, Sequence[Sample]],
    unit: str,
    own: str = "raysweep",
) -> Json:
    """The same of samples that are there: `{"contenders": …, "ratios": …}`."""
    return {
        "contenders": {
            contender.name: describe(contender, samples[contender.name], unit) for contender in contenders
        },
        "ratios": {
            f"{own} / {peer.name}": ratios(samples[own], samples[peer.name])
            for peer in contenders
            if peer.name != own
        },
    }


def ratios(own: Sequence[Sample], peer: Sequence[Sample]) -> Json:
    """How many times as fast, per unit of work: of the medians, and round by round."""
    shared = [figure for figure in figures_of(own) if figure in figures_of(peer)]
    return {
        figure: {
            "of_medians": significant(ratio(own, peer, figure)),
            "rounds": [
                significant(cost(theirs, figure) / cost(ours, figure))
                for ours, theirs in zip(own, peer, strict=True)
            ],
        }
        for figure in shared
    }


def ratio(own: Sequence[Sample], peer: Sequence[Sample], figure: Figure) -> float:
    """How many times as fast `own` is per unit of work, of the medians."""
    return median(cost(sample, figure) for sample in peer) / median(cost(sample, figure) for sample in own)


def cost(sample: Sample, figure: Figure) -> float:
    """Seconds per unit of work."""
    return seconds_of(sample, figure) / sample.units


def seconds_of(sample: Sample, figure: Figure) -> float:
    """Seconds of one figure of a sample."""
    seconds = sample.wall_s if figure == "wall" else sample.warm_s
    assert seconds is not None, f"no {figure} figure"
    return seconds


def figures_of(samples: Sequence[Sample]) -> list[Figure]:
    """The figures that every sample has."""
    return ["wall", "warm"] if all(sample.warm_s is not None for sample in samples) else ["wall"]


def target(what: str, value: float, *, at_least: float | None = None, at_most: float | None = None) -> Json:
    """A target, and whether it was met in this run."""
    assert (at_least is None) != (at_most is None), "a target has one limit"
    limit: Json = {"at_least": at_least} if at_least is not None else {"at_most": at_most}
    is_met = value >= at_least if at_least is not None else value <= (at_most or 0.0)
    return {"what": what, "value": significant(value), **limit, "met": is_met}


def significant(value: float) -> float:
    """Four significant digits: more would be noise."""
    return float(f"{value:.4g}")


def machine() -> Json:
    """What the figures were measured on."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _from_proc("cpuinfo", "model name"),
        "memory": _from_proc("meminfo", "MemTotal"),
        "load_average_before": [round(load, 2) for load in os.getloadavg()],
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in ("ray", "raysweep")},
    }


def _from_proc(file: str, name: str) -> str:
    try:
        lines = Path("/proc", file).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
