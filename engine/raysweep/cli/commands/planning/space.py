"""The search space in a plan: the number of configs, and of trials that repeat one."""

from __future__ import annotations

from raysweep.space.domains import Grid, SampleFrom
from raysweep.specs import Space, SweepSpec

NOTHING_SEARCHED = (
    "nothing is searched: every trial has the same config. A list or {min, max} is a constant here;"
    " write {choice: [1, 2]} or {uniform: [0, 1]}"
)


def distinct_configs(space: Space) -> int | None:
    """The number of different configs of a space, `where` apart; None: no end of them, or not known."""
    return space.cardinality


def show_trials(spec: SweepSpec, trials: int | None) -> str:
    """`40, about 12 distinct of 12 configs: samples are drawn with replacement, …`."""
    if trials is None:
        return "as many as there is time for"
    size = distinct_configs(spec.parameter_space)
    if size is None or not spec.space.searched or spec.has_several_scales:
        return str(trials)
    if not _repeats(spec):
        return f"{trials} of {size} distinct configs"
    if _is_grid_alone(spec.parameter_space):
        each = f", each {trials // size} times" if trials > size else ""
        return f"{trials} of {size} distinct configs{each}"
    expected = round(size * (1 - (1 - 1 / size) ** trials))
    text = f"{trials}, about {expected} distinct of {size} configs: samples are drawn with replacement"
    return f"{text}, distinct: true in search: runs none twice"


def warnings_of(spec: SweepSpec) -> tuple[str, ...]:
    """The changes that a person should make before it runs."""
    space = spec.parameter_space
    has_functions = any(isinstance(domain, SampleFrom) for _, domain in space.leaves)
    if spec.search.options.is_listed or space.searched or spec.repeat is not None or has_functions:
        return ()
    return (NOTHING_SEARCHED,)


def _repeats(spec: SweepSpec) -> bool:
    """True if its search may run one config twice."""
    return getattr(spec.search.options, "distinct", True) is False


def _is_grid_alone(space: Space) -> bool:
    return all(isinstance(domain, Grid) for _, domain in space.searched)
