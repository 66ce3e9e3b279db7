"""How often each config runs: with which seeds, and when it is dropped before its last repeat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from raysweep.documents.validation import Problem
from raysweep.search.machinery.repeat import Repeat
from raysweep.space.parsed import uses
from raysweep.specs.warm_start import Memory

if TYPE_CHECKING:
    from raysweep.specs.sweep import SweepSpec


def _times(given: Any) -> Any:
    is_number = isinstance(given, int) and not isinstance(given, bool)
    return {"times": given} if is_number else given


RepeatSpec = Annotated[Repeat, BeforeValidator(_times, json_schema_input_type=Repeat | int)]


def check_repeat(spec: SweepSpec) -> None:
    """See that nothing in a spec with repeats looks at single trials. Raises Problem."""
    repeat = spec.repeat
    if repeat is None:
        return
    for path, problem, fix in _of_one_trial(spec):
        raise Problem(f"with repeat, {problem}", fix, path)
    if repeat.seed_param is not None and repeat.seed_param in spec.param_space:
        raise Problem("is a parameter that is searched", "name another", ("repeat", "seed_param"))
    race = repeat.race
    if race is not None and 0.5 ** (repeat.times - 1) >= race.p_threshold:
        needed = next(times for times in range(2, 2000) if 0.5 ** (times - 1) < race.p_threshold)
        problem = f"no p-value of {repeat.times - 1} repeats is below {race.p_threshold:g}"
        fix = f"set repeat.times to {needed} or more, or a larger p_threshold"
        raise Problem(f"{problem}: no config could be dropped", fix, ("repeat", "race"))


def _of_one_trial(spec: SweepSpec) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Each field that is there and looks at single trials: its path, why that cannot be, and the fix."""
    leave, stop = "leave it out", spec.stop
    if spec.scheduler.options.decides:
        fix = "use fifo, or repeat.race, which drops whole configs"
        yield ("scheduler",), f"{spec.scheduler.kind} would stop or change single repeats of a config", fix
    if spec.search.options.is_listed:
        yield (
            ("search",),
            "a list of configs has seeds of its own",
            f"set search.{spec.search.kind}.seeds instead",
        )
    if uses(spec.param_space, "sample_from"):
        yield ("param_space",), "what sample_from gives cannot be had again", "use other domains"
    if spec.others:
        yield ("metric",), "configs are compared by the mean of one metric", "give one metric"
    if spec.constraints:
        yield ("constraints",), "a config has no single report that could satisfy them", leave
    if stop.target is not None:
        yield ("stop", "target"), "one lucky repeat would end the sweep", leave
    if stop.plateau is not None:
        yield ("stop", "plateau"), "one lucky repeat would count as progress", leave
    if stop.trial_wilcoxon is not None:
        yield ("stop", "trial_wilcoxon"), "it would stop single repeats", "use repeat: {race: wilcoxon}"
    if isinstance(spec.warm_start, Memory):
        yield ("warm_start",), "anchors would be compared by single repeats", "give a number of runs"
    if spec.checkpoint.keep_top_k is not None:
        yield ("checkpoint", "keep_top_k"), "it would rank single repeats", leave
