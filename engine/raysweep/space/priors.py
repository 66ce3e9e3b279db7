"""Priors: what a person believes about the good values of a parameter, and how values are drawn by that.

A number between bounds has a normal distribution, cut off at the bounds: `{"normal": 3e-4, "sigma": 0.5}`.
Its middle is a value of the parameter. Its sigma is in the parameter's unit; where the logarithm is uniform,
of the natural logarithm. A choice has a weight for each value.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from random import Random
from statistics import NormalDist
from typing import Any, Final

from raysweep.documents.json_values import unwrap_number
from raysweep.documents.validation import Path, Problem, did_you_mean, show
from raysweep.space.domains import Choice, Domain, Float, Integer, NumberPrior
from raysweep.space.units import within
from raysweep.space.vocabulary import PRIOR, word_of

_EDGE: Final = 2.0**-53
_WIDEST: Final = 1e6
"""A sigma of more ranges than these is as even; the values of its distribution would not differ any more."""
_FIX: Final = 'write {"normal": the value believed best, "sigma": how far it may be off}'


def has_prior(node: Any) -> bool:
    """True if a normalised space has a prior anywhere."""
    word = word_of(node)
    if word is not None:
        below = node[word] if word in ("choice", "grid_search") and isinstance(node[word], dict) else {}
        return PRIOR in node or has_prior(below)
    if isinstance(node, Mapping):
        return any(map(has_prior, node.values()))
    return isinstance(node, list) and any(map(has_prior, node))


def without_priors(node: Any) -> Any:
    """The normalised space as it is without any prior."""
    if isinstance(node, Mapping):
        is_domain = word_of(node) is not None
        return {
            name: without_priors(below) for name, below in node.items() if not (is_domain and name == PRIOR)
        }
    return [without_priors(each) for each in node] if isinstance(node, list) else node


def read_prior(node: Mapping[str, Any], given: Any, path: Path) -> Any:
    """A prior beside a normalised domain, checked. Raises Problem."""
    word = next(iter(node))
    if word == "choice":
        return _weights(node[word], given, path)
    if not isinstance(given, Mapping):
        raise Problem(f"expected a normal distribution, got {show(given)}", _FIX, path)
    known = ("normal", "sigma")
    for key in given:
        if key not in known:
            raise Problem(f"{key!r} is not known here", did_you_mean(str(key), known), path)
    for key in known:
        if key not in given:
            raise Problem(f"has no {key!r}", _FIX, path)
    middle, sigma = (_number(given[key], (*path, key)) for key in known)
    lower, upper = node[word][:2]
    if not lower <= middle <= upper:
        problem = f"{middle:g} is outside {lower:g} to {upper:g}"
        raise Problem(problem, "give a value of the parameter", (*path, "normal"))
    if sigma <= 0:
        unit = "natural logarithm" if "log" in word else "parameter"
        raise Problem(f"must be > 0, got {sigma:g}", f"give it in the unit of the {unit}", (*path, "sigma"))
    return {"normal": middle, "sigma": sigma}


def _weights(values: Any, given: Any, path: Path) -> Any:
    fix = "give a weight for each value, as [3, 1], or by name, as {adam: 3, sgd: 1}"
    if isinstance(given, Mapping):
        names = list(values) if isinstance(values, Mapping) else [v for v in values if isinstance(v, str)]
        for key in given:
            if key not in names:
                raise Problem(f"{key!r} is none of the values", did_you_mean(str(key), names), path)
        weights = [_number(given.get(name, 0), (*path, str(name))) for name in values]
    elif isinstance(given, list | tuple) and not isinstance(values, Mapping):
        weights = [_number(weight, (*path, at)) for at, weight in enumerate(given)]
        if len(weights) != len(values):
            raise Problem(f"has {len(weights)} weights for {len(values)} values", fix, path)
    else:
        raise Problem(f"expected weights, got {show(given)}", fix, path)
    if min(weights) < 0 or sum(weights) <= 0 or not math.isfinite(sum(weights)):
        raise Problem(
            f"weights must be 0 or more, and one above 0, got {show(given)}", "give such weights", path
        )
    return dict(zip(values, weights, strict=True)) if isinstance(values, Mapping) else weights


def _number(given: Any, path: Path) -> float:
    value = unwrap_number(given)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Problem(f"expected a number, got {show(value)}", "write a number, without quotes", path)
    return float(value)


def number_prior(node: Mapping[str, Any]) -> NumberPrior | None:
    """The prior of a normalised number; None: it has none."""
    prior = node.get(PRIOR)
    return None if prior is None else NumberPrior(middle=prior["normal"], sigma=prior["sigma"])


def weights_of(node: Mapping[str, Any], names: Sequence[str] = ()) -> tuple[float, ...] | None:
    """The weights of a normalised choice, of one between branches in the order of `names`; None: none."""
    prior = node.get(PRIOR)
    if prior is None:
        return None
    return tuple(prior[name] for name in names) if isinstance(prior, Mapping) else tuple(prior)


def is_believed(domain: Domain) -> bool:
    """True if a domain has a prior."""
    return getattr(domain, "prior", None) is not None


def centre_of(domain: Domain) -> Any:
    """The value that the prior of a domain says is best; the first of several."""
    if isinstance(domain, Choice) and domain.prior is not None:
        return copy.deepcopy(domain.values[domain.prior.index(max(domain.prior))])
    if isinstance(domain, Float | Integer) and domain.prior is not None:
        return within(domain, domain.prior.middle)
    raise TypeError(f"{domain!r} has no prior")


def draw_believed(domain: Domain, rng: Random) -> Any:
    """A value of a domain, drawn by its prior."""
    if isinstance(domain, Choice) and domain.prior is not None:
        return copy.deepcopy(rng.choices(domain.values, domain.prior)[0])
    if not isinstance(domain, Float | Integer) or domain.prior is None:
        raise TypeError(f"{domain!r} has no prior")
    low, high = (domain.low, domain.high) if isinstance(domain, Integer) else (domain.lower, domain.upper)
    middle, sigma = domain.prior.middle, domain.prior.sigma
    if domain.log:
        low, high, middle = math.log(low), math.log(high), math.log(middle)
    elif isinstance(domain, Integer):  # what is rounded to a bound is as wide as the others
        low, high = low - domain.step / 2, high + domain.step / 2
    if low >= high:
        return within(domain, domain.prior.middle)
    normal = NormalDist(middle, min(sigma, _WIDEST * (high - low)))
    part = rng.uniform(normal.cdf(low), normal.cdf(high))
    value = min(max(normal.inv_cdf(min(max(part, _EDGE), 1 - _EDGE)), low), high)
    return within(domain, math.exp(value) if domain.log else value)
