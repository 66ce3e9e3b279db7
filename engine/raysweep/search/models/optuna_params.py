"""The domains of a search space as Optuna's distributions, and values in both directions.

Optuna has no quantised log distribution and no normal one, and its categories must be plain values. So a
quantised domain is modelled by the index of its values, a quantised log domain by its unquantised cousin, a
choice by its index; normally distributed leaves and leaves with one value are not modelled at all. Where a
model wants no domain of too many values, such a one is modelled as continuous, and rounded to its values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from raysweep.search.machinery.cells import Codec, Leaf, LeafPath, codec
from raysweep.space.domains import Choice, Domain, Float, Integer, Normal


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """One leaf as Optuna sees it."""

    name: str
    path: LeafPath
    distribution: BaseDistribution
    domain: Domain
    codec: Codec | None

    def to_value(self, param: Any) -> Any:
        """Return the config's value for what Optuna sampled."""
        if self.codec is None:
            return float(param)
        if isinstance(self.domain, Float) and self.domain.log:
            return self.codec.value(self.codec.index(param))
        # A continuous one in place of a wide domain's lies between two indices.
        index = round(param)
        if isinstance(self.domain, Integer) and self.domain.log:
            return index * self.domain.step
        return self.codec.value(index)

    def to_param(self, value: Any) -> Any:
        """Return what Optuna's study holds for a config's value: the same for an ask and for its restoring.

        Raises:
            ValueError, TypeError: the value is outside the domain.
        """
        if self.codec is None or (isinstance(self.domain, Float) and self.domain.log):
            param: Any = float(value)
        elif isinstance(self.domain, Integer) and self.domain.log:
            param = value // self.domain.step
        else:
            param = self.codec.index(value)
        if not self.distribution._contains(self.distribution.to_internal_repr(param)):
            raise ValueError(f"{value!r} is outside {self.distribution}")
        return param


def params_of(leaves: tuple[Leaf, ...], most_values: int | None = None) -> list[Param]:
    """Return the leaves that Optuna models, under their paths joined by "/".

    Numbers of more than `most_values` values are modelled as continuous; None: none are.
    """
    params = []
    for path, domain in leaves:
        if isinstance(domain, Normal) or domain.cardinality == 1 or _is_point(domain):
            continue
        numbering = codec(domain)
        distribution = _distribution(domain, numbering)
        if most_values is not None and isinstance(distribution, IntDistribution):
            low, high = distribution.low, distribution.high
            if high - low >= most_values:
                distribution = FloatDistribution(low, high, log=distribution.log)
        name = "/".join(part.replace("~", "~0").replace("/", "~1") for part in path)
        params.append(Param(name=name, path=path, distribution=distribution, domain=domain, codec=numbering))
    return params


def _is_point(domain: Domain) -> bool:
    return isinstance(domain, Float) and domain.lower == domain.upper


def _distribution(domain: Domain, numbering: Codec | None) -> BaseDistribution:
    if isinstance(domain, Choice) and numbering is not None and numbering.size is not None:
        return CategoricalDistribution(range(numbering.size))
    if isinstance(domain, Integer) and domain.log:
        return IntDistribution(domain.low // domain.step, domain.high // domain.step, log=True)
    if isinstance(domain, Float) and (domain.q is None or domain.log):
        return FloatDistribution(domain.lower, domain.upper, log=domain.log)
    if numbering is not None and numbering.size is not None:
        return IntDistribution(0, numbering.size - 1)
    raise TypeError(f"no distribution of Optuna stands for {domain!r}")
