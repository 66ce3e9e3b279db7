"""`Shape`: the bundles that one trial's placement group asks for, from the spec to Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]
Bundle = Mapping[str, float]
"""Amounts in Ray's keys: `{"CPU": 1, "GPU": 0.5, "memory": 1e9, "licence": 2}`; no zeros."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The bundles of one trial's placement group, and where they may be.

    A trial whose own bundle is empty has none of its own here, as Ray has no empty bundles: the first is
    then that of the first process that it starts.
    """

    bundles: tuple[Bundle, ...]
    """The trial's own first (of a gang: rank 0's)."""
    label_selectors: tuple[Mapping[str, str], ...]
    """For each bundle, the labels that its node must have."""
    label_fields: tuple[str, ...]
    """For each bundle, where the spec says those labels."""
    strategy: Strategy
    """The placement of the bundles on nodes."""
    is_head_empty: bool
    """True if the trial itself takes nothing."""
    fields: tuple[str, ...]
    """For each bundle, where the spec says what it holds."""
    field: str
    """The field of the spec that says all of it."""

    @property
    def own(self) -> Bundle:
        """The resources of the trial's own process; empty where it takes nothing."""
        return {} if self.is_head_empty else self.bundles[0]

    @property
    def others(self) -> tuple[Bundle, ...]:
        """The bundles for what the trial starts."""
        return self.bundles if self.is_head_empty else self.bundles[1:]

    @property
    def total(self) -> dict[str, float]:
        """The amounts of all bundles together."""
        total: dict[str, float] = {}
        for bundle in self.bundles:
            for name, amount in bundle.items():
                total[name] = total.get(name, 0.0) + amount
        return total
