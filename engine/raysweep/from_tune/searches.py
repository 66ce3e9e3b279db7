"""Options of ours from the searches of a tuner. Imports nothing of Ray, Optuna or NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from raysweep.documents.validation import show
from raysweep.search.spec import SearchSpec

Objection = tuple[str, str, str]
"""A part, what is wrong with it, and the fix."""
MOST_SEED: Final = 2**63
_BY_ARRAY: Final = 0x80000000
"""The first word of a generator that was seeded by more than one number, as one without a seed is."""
_OTHER_SAMPLER: Final = 'leave it out of the sampler, or give from_tuner(…, search="tpe")'
# What `optuna.samplers.TPESampler` has beside what the options of `tpe` have: its attribute, and the default.
_SAMPLER_PARTS: Final = {
    "gamma": ("_gamma", None),
    "group": ("_group", False),
    "constraints_func": ("_constraints_func", None),
}
_ESTIMATOR_PARTS: Final = {
    "prior_weight": 1.0,
    "consider_magic_clip": True,
    "consider_endpoints": False,
}


def read_tpe(sampler: Any) -> tuple[dict[str, Any], int | None, list[Objection]]:
    """The options and the seed of Optuna's TPESampler; and what of it has no counterpart."""
    names = ("n_startup_trials", "n_ei_candidates", "multivariate", "constant_liar")
    held = {name: getattr(sampler, f"_{name}", None) for name in names}
    defaults = SearchSpec.of("tpe").options
    options = {
        name: value for name, value in held.items() if value is not None and value != getattr(defaults, name)
    }
    generator = getattr(getattr(sampler, "_rng", None), "rng", None)
    return options, seed_of(generator), list(_objections(sampler))


def _objections(sampler: Any) -> list[Objection]:
    estimator = getattr(sampler, "_parzen_estimator_parameters", None)
    found: Mapping[str, tuple[Any, Any]] = {
        name: (getattr(sampler, attribute, default), default)
        for name, (attribute, default) in _SAMPLER_PARTS.items()
    } | {name: (getattr(estimator, name, default), default) for name, default in _ESTIMATOR_PARTS.items()}
    weights = getattr(estimator, "weights", None)
    if getattr(weights, "__name__", "default_weights") != "default_weights":
        found = {**found, "weights": (weights, None)}
    fixes = {"constraints_func": 'say it as from_tuner(…, constraints=["…"], search="tpe")'}
    return [
        (f"sampler.{name}", f"{show(value)} has no counterpart", fixes.get(name, _OTHER_SAMPLER))
        for name, (value, default) in found.items()
        if value != default
    ]


def seed_of(generator: Any) -> int | None:
    """The seed that a generator of NumPy's was made with; None: it had none, or that is not known.

    A RandomState keeps it as its first word until it draws, a Generator in its SeedSequence.
    """
    bits = getattr(generator, "bit_generator", None)
    if bits is not None:
        seed = getattr(getattr(bits, "seed_seq", None), "entropy", None)
        return seed if isinstance(seed, int) and 0 <= seed < MOST_SEED else None
    if not hasattr(generator, "get_state"):
        return None
    state = generator.get_state(legacy=False)
    if state["bit_generator"] != "MT19937":
        return None
    words, place = state["state"]["key"], state["state"]["pos"]
    first = int(words[0])
    return first if place == len(words) and first != _BY_ARRAY else None
