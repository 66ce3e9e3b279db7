"""Checks of specs without a metric, with several, and with repeats: nothing in them may need one number."""

from __future__ import annotations

from collections.abc import Iterator

from raysweep.documents.validation import Problem, show
from raysweep.schedulers.spec import SchedulerSpec
from raysweep.search.spec import SearchSpec
from raysweep.space.parsed import uses
from raysweep.specs.sweep_fields import SweepFields
from raysweep.specs.sweep_parts import Memory


def _searches() -> list[str]:
    return [kind for kind, options in SearchSpec.kinds.items() if options.metrics != "one"]


def _schedulers() -> list[str]:
    return [kind for kind, options in SchedulerSpec.kinds.items() if options.metrics != "one"]


def check_unranked(spec: SweepFields) -> None:
    """See that nothing in a spec without a metric ranks trials. Raises Problem."""
    if spec.is_ranked:
        return
    for path, problem in _of_a_metric(spec):
        raise Problem(f"without a metric, {problem}", "name metric and mode, or leave it out", path)


def _of_a_metric(spec: SweepFields) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each field that is there and ranks trials: its path, and why that cannot be."""
    stop, checkpoint, plateau = spec.stop, spec.checkpoint, spec.stop.trial_plateau
    if spec.search.options.metrics != "none":
        yield ("search",), f"{spec.search.kind} has nothing to learn from"
    if spec.scheduler.options.metrics != "none":
        yield ("scheduler",), f"{spec.scheduler.kind} has nothing to compare trials by"
    if spec.others:
        yield ("others",), "there are no metrics after the first"
    if spec.constraints:
        yield ("constraints",), "there is no best trial that could satisfy them"
    if spec.score != "last":
        yield ("score",), "a trial has no best report"
    if spec.warm_start is not None:
        yield ("warm_start",), "there is no champion, and nothing to learn from earlier nights"
    if spec.repeat is not None and spec.repeat.race is not None:
        yield ("repeat", "race"), "there is nothing to race for"
    if checkpoint.keep_top_k is not None:
        yield ("checkpoint", "keep_top_k"), "there are no best trials"
    for name in ("target", "plateau", "trial_patience", "trial_wilcoxon"):
        if getattr(stop, name) is not None:
            yield ("stop", name), "it has no values to compare"
    if plateau is not None and plateau.metric is None:
        yield ("stop", "trial_plateau"), "it requires its own metric"


def check_several(spec: SweepFields) -> None:
    """See that nothing in a spec with several metrics wants a single number of a trial. Raises Problem."""
    if not spec.others:
        for field, chosen in (("search", spec.search), ("scheduler", spec.scheduler)):
            if chosen.options.metrics == "several":
                problem = f"{chosen.kind} requires several metrics (got one)"
                raise Problem(problem, f"use {chosen.options.with_one_metric}", (field,))
        return
    if spec.metric in spec.others:
        raise Problem(f"{show(spec.metric)} is there twice", "leave one of them out", ("metric",))
    if spec.search.options.metrics == "one":
        kinds = ", ".join(_searches())
        raise Problem(f"{spec.search.kind} searches by one metric", f"use one of {kinds}", ("search",))
    for path, problem, fix in _of_one_metric(spec):
        raise Problem(f"with several metrics, {problem}", fix, path)


def _of_one_metric(spec: SweepFields) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Each field that is there and looks at one metric: its path, why that cannot be, and the fix."""
    one = "leave it out, or give one metric and make constraints of the others"
    stop = spec.stop
    if spec.score != "last":
        yield ("score",), "a trial has no best report", one
    comparing = spec.scheduler.comparing
    if comparing is not None and comparing[1].metric is None:
        fix = f"name it as scheduler.{comparing[0]}.metric, or use {' or '.join(_schedulers())}"
        yield ("scheduler",), f"{spec.scheduler.kind} compares trials by one", fix
    elif comparing is None and spec.scheduler.options.metrics == "one":
        fix = f"use {' or '.join(_schedulers())}"
        yield ("scheduler",), f"{spec.scheduler.kind} compares trials by one", fix
    if stop.target is not None:
        yield ("stop", "target"), "a target is a value of one", one
    if stop.plateau is not None:
        yield ("stop", "plateau"), "the front moves where the best by one does not", one
    if stop.trial_patience is not None:
        yield ("stop", "trial_patience"), "patience looks at one", one
    if stop.trial_wilcoxon is not None:
        yield ("stop", "trial_wilcoxon"), "trials are compared by one", one
    if stop.trial_plateau is not None and stop.trial_plateau.metric is None:
        yield (
            ("stop", "trial_plateau"),
            "it has to say which one it looks at",
            "set stop.trial_plateau.metric",
        )
    if spec.checkpoint.keep_top_k is not None:
        yield ("checkpoint", "keep_top_k"), "it would delete checkpoints of the front", one


def check_repeat(spec: SweepFields) -> None:
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


def _of_one_trial(spec: SweepFields) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Each field that is there and looks at single trials: its path, why that cannot be, and the fix."""
    leave, stop = "leave it out", spec.stop
    if spec.scheduler.options.decides:
        fix = "use fifo, or repeat.race, which drops whole configs"
        yield ("scheduler",), f"{spec.scheduler.kind} would stop or change single repeats of a config", fix
    if spec.search.options.is_listed:
        yield (
            ("search",),
            "a list of configs has its own seeds",
            f"set search.{spec.search.kind}.seeds instead",
        )
    if uses(spec.param_space, "sample_from"):
        yield ("param_space",), "sample_from would draw anew in each repeat", "use other domains"
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
