"""Several metrics in one spec: `metric: [auc, latency_ms]`, `mode: [max, min]`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from raysweep.documents.mode import MODES, Mode
from raysweep.documents.validation import Problem, did_you_mean, show
from raysweep.schedulers.spec import SchedulerSpec
from raysweep.search.spec import SearchSpec

if TYPE_CHECKING:
    from raysweep.specs.sweep import SweepSpec


def _one_or_several(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "array", "items": schema, "minItems": 1}]}


METRIC_SCHEMA: Final = _one_or_several({"type": "string", "minLength": 1})
MODE_SCHEMA: Final = _one_or_several({"type": "string", "enum": list(MODES)})


def split(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a spec with the first metric and its mode, and the others beside them. Raises Problem."""
    metrics, modes = given.get("metric"), given.get("mode")
    if not isinstance(metrics, list | tuple) and not isinstance(modes, list | tuple):
        return given
    if not isinstance(metrics, list | tuple):
        raise Problem(f"has {len(modes or ())} for one metric", "give one: min or max", ("mode",))
    if not isinstance(modes, list | tuple):
        raise Problem(
            f"is {show(modes)} for {len(metrics)} metrics", "give one for each, such as [max, min]", ("mode",)
        )
    if given.get("others"):
        raise Problem("lists all metrics already", "leave others out", ("metric",))
    if len(metrics) != len(modes):
        problem = f"has {len(modes)} for {len(metrics)} metrics"
        raise Problem(problem, "give one for each, in their order", ("mode",))
    _check(metrics, modes)
    return {
        **given,
        "metric": metrics[0],
        "mode": modes[0],
        "others": dict(zip(metrics[1:], modes[1:], strict=True)),
    }


def _check(metrics: list[Any] | tuple[Any, ...], modes: list[Any] | tuple[Any, ...]) -> None:
    if not metrics:
        raise Problem("lists no metric", "name at least one", ("metric",))
    for place, metric in enumerate(metrics):
        if not isinstance(metric, str) or not metric:
            raise Problem(
                f"expected a metric's name, got {show(metric)}", "write its name", ("metric", place)
            )
        if metric in metrics[:place]:
            raise Problem(f"{show(metric)} is there twice", "leave one of them out", ("metric", place))
    for place, mode in enumerate(modes):
        if mode not in MODES:
            raise Problem(f"{show(mode)} is not known here", did_you_mean(str(mode), MODES), ("mode", place))


def joined(fields: dict[str, Any], others: Mapping[str, Mode]) -> dict[str, Any]:
    """The fields as they are written: with all metrics where there are several."""
    fields.pop("others", None)
    if others:
        fields["metric"] = [fields["metric"], *others]
        fields["mode"] = [fields["mode"], *others.values()]
    return fields


def _searches() -> list[str]:
    return [kind for kind, options in SearchSpec.kinds.items() if options.metrics != "one"]


def _schedulers() -> list[str]:
    kinds = SchedulerSpec.kinds.items()
    return [kind for kind, options in kinds if options.metrics != "one" and options.needs_search is None]


def check_several(spec: SweepSpec) -> None:
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


def _of_one_metric(spec: SweepSpec) -> Iterator[tuple[tuple[str, ...], str, str]]:
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
