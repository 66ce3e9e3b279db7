"""The parameters of a config as Optuna has them: names, values, distributions.

A distribution has the bounds, scale and step of the domain, in its own values; a choice has its values
themselves, or their JSON text where Optuna takes none of their type. A value that lies outside its domain,
such as one that a population moved, widens the distribution of its trial.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from raysweep.documents.json_values import leaves
from raysweep.export.source import is_number
from raysweep.space.domains import Choice, Domain, Float, Integer, Normal, grid_index
from raysweep.space.parsed import Space

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

REACH: Final = 6.0
"""A normal distribution has no bounds: those of its parameter are so many standard deviations away."""
_PLAIN: Final = (str, bool, int, float)
_CHOSEN: Final = "="
"""A choice between branches has this name under that of its parameter: `model.=`."""


class Parameters:
    """The parameters of one search space."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._domains = {
            path: domain
            for path, domain in space.searched
            if isinstance(domain, Float | Integer | Normal | Choice)
        }

    def read(
        self, config: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, BaseDistribution], dict[str, Any]]:
        """Values by name, their distributions by name, and what Optuna cannot hold of the config."""
        params: dict[str, Any] = {}
        distributions: dict[str, BaseDistribution] = {}
        values: dict[tuple[str, ...], Any] = {}
        rest = dict(leaves(config))
        for path, domain in self._domains.items():
            if not self._space.is_reached(path, values):
                continue
            try:
                value = self._space.value_at(config, path)
            except (KeyError, IndexError, TypeError, ValueError):
                continue
            values[path] = value
            found = read_parameter(domain, value)
            name = ".".join(path)
            if found is None:
                continue
            if self._space.is_switch(path):
                name = f"{name}.{_CHOSEN}"
            params[name], distributions[name] = found
            rest.pop(".".join(path), None)
        return params, distributions, rest


def read_parameter(domain: Domain, value: Any) -> tuple[Any, BaseDistribution] | None:
    """A value and its distribution; None: Optuna has none that holds it."""
    if isinstance(domain, Choice):
        return _category(domain, value)
    if not is_number(value) or not math.isfinite(value):
        return None
    if isinstance(domain, Integer) and float(value).is_integer():
        return int(value), _whole(domain, int(value))
    if isinstance(domain, Float):
        return float(value), _real(domain, float(value))
    if isinstance(domain, Normal):
        from optuna.distributions import FloatDistribution

        low, high = domain.mean - REACH * domain.sd, domain.mean + REACH * domain.sd
        return float(value), FloatDistribution(min(low, value), max(high, value))
    return None


def _category(domain: Choice, value: Any) -> tuple[Any, BaseDistribution] | None:
    from optuna.distributions import CategoricalDistribution

    plain = all(each is None or type(each) in _PLAIN for each in domain.values)
    # 1, 1.0 and True are the same value to Optuna, and NaN is none.
    is_plain = plain and len(set(domain.values)) == len(domain.values) and _has_no_nan(domain.values)
    if is_plain:
        places = [each for each in domain.values if each == value]
        return (places[0], CategoricalDistribution(domain.values)) if places else None
    texts = list(dict.fromkeys(map(_json, domain.values)))
    text = _json(value)
    return (text, CategoricalDistribution(texts)) if text in texts else None


def _has_no_nan(values: tuple[Any, ...]) -> bool:
    return all(value == value for value in values)


def _json(value: Any) -> str:
    return orjson.dumps(value, default=str, option=orjson.OPT_SORT_KEYS).decode()


def _whole(domain: Integer, value: int) -> BaseDistribution:
    from optuna.distributions import IntDistribution

    if domain.log:
        return IntDistribution(
            min(domain.low, value), max(domain.high, value), log=min(domain.low, value) > 0
        )
    if domain.low <= value <= domain.high and (value - domain.low) % domain.step == 0:
        return IntDistribution(domain.low, domain.high, step=domain.step)
    return IntDistribution(min(domain.low, value), max(domain.high, value))


def _real(domain: Float, value: float) -> BaseDistribution:
    from optuna.distributions import FloatDistribution

    if domain.q is not None and not domain.log:
        low = grid_index(domain.lower, domain.q, is_lower=True) * domain.q
        high = grid_index(domain.upper, domain.q, is_lower=False) * domain.q
        stepped = FloatDistribution(low, high, step=domain.q) if low <= high else None
        if stepped is not None and stepped._contains(value):
            return stepped
    low, high = min(domain.lower, value), max(domain.upper, value)
    return FloatDistribution(low, high, log=domain.log and low > 0.0)
