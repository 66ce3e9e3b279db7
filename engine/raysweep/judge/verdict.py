"""The verdict on releasing a model, by its figures and those of the released one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from raysweep.judge.comparison import LEVEL, MIN_PAIRS, Comparison, compare
from raysweep.judge.figures import Figures, mean_of
from raysweep.numeric.shown import show_number
from raysweep.outcome.judgement import FAILING, JudgedModel, Judgement, Reason, SliceFigures, Verdict
from raysweep.specs.judge import JudgeSpec

_PASSING: Final[frozenset[Reason]] = frozenset(("first", "better"))


@dataclass(slots=True)
class _Case:
    """The facts of a judgement while it is made."""

    reasons: list[Reason] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)

    def add(self, reason: Reason, text: str) -> None:
        self.reasons.append(reason)
        self.texts.append(text)


def decide(
    spec: JudgeSpec, new: Figures, released: Figures | None, model: JudgedModel, against: JudgedModel | None
) -> Judgement:
    """The verdict by the figures.

    Args:
        spec: What is required.
        new: Of the model that is judged.
        released: Of the released one; None where there is none.
        model: The model that is judged.
        against: The released one.
    """
    case = _Case(fields={"new": mean_of(new.whole)})
    missing = [name for name in spec.slices if name not in new.slices]
    if missing:
        case.add("no_slice", f"evaluate returned no slice {', '.join(map(repr, missing))}")
    if released is None:
        figure = f"{spec.metric} {show_number(case.fields['new'])}"
        case.add("first", f"{figure}; no model was released")
        case.fields["slices"] = tuple(
            SliceFigures(name=name, new=mean_of(figures)) for name, figures in new.slices.items()
        )
    elif unlike := _unlike(new, released):
        case.add("unlike_figures", unlike)
    else:
        _compare(case, spec, new, released, against)
    _check_level(case, spec)
    return _judgement(spec, case, model, against)


def refuse(
    spec: JudgeSpec, reason: Reason, text: str, model: JudgedModel, against: JudgedModel | None = None
) -> Judgement:
    """The verdict about a model that cannot be judged, or was not worth it."""
    case = _Case()
    case.add(reason, text)
    return _judgement(spec, case, model, against)


def _judgement(spec: JudgeSpec, case: _Case, model: JudgedModel, against: JudgedModel | None) -> Judgement:
    verdict = _verdict(case.reasons)
    return Judgement(
        verdict=verdict,
        reasons=tuple(case.reasons),
        why=f"{verdict}: {'; '.join(case.texts)}",
        metric=spec.metric,
        mode=spec.mode,
        min_improvement=spec.min_improvement,
        at_least=spec.at_least,
        model=model,
        against=against,
        **case.fields,
    )


def _verdict(reasons: Sequence[Reason]) -> Verdict:
    if all(reason in _PASSING for reason in reasons):
        return "passed"
    return "failed" if any(reason in FAILING for reason in reasons) else "undecided"


def _unlike(new: Figures, released: Figures) -> str:
    """The difference in form of the figures of the two models; empty where they can be paired."""
    if len(new.whole) != len(released.whole):
        counts = f"{len(new.whole)} figures of the new model and {len(released.whole)} of the released one"
        return f"evaluate returned {counts}: they cannot be paired"
    if new.slices.keys() != released.slices.keys():
        differ = ", ".join(map(repr, sorted(new.slices.keys() ^ released.slices.keys())))
        return f"evaluate returned slice {differ} for one of the two models only"
    return ""


def _compare(
    case: _Case, spec: JudgeSpec, new: Figures, released: Figures, against: JudgedModel | None
) -> None:
    found = compare(new.whole, released.whole, spec.sign)
    theirs = mean_of(released.whole)
    case.fields |= found.model_dump() | {"released": theirs}
    case.add(*_gain(spec, found, case.fields["new"], theirs, against))
    slices = tuple(
        SliceFigures(name=name, new=ours, released=beside, improvement=spec.sign * (ours - beside))
        for name, figures in new.slices.items()
        for ours, beside in [(mean_of(figures), mean_of(released.slices[name]))]
    )
    case.fields["slices"] = slices
    allowed = spec.worst_slice
    worse = [each for each in slices if allowed is not None and -(each.improvement or 0.0) > allowed]
    if worse:
        each = min(worse, key=lambda one: one.improvement or 0.0)
        by = show_number(-(each.improvement or 0.0))
        more = f" and {len(worse) - 1} more" if len(worse) > 1 else ""
        limit = show_number(allowed or 0.0)
        case.add("worst_slice", f"slice {each.name!r}{more} is {by} worse, {limit} is allowed")


def _gain(
    spec: JudgeSpec, found: Comparison, ours: float, theirs: float, against: JudgedModel | None
) -> tuple[Reason, str]:
    gain = found.improvement
    night = f" (night of {against.key or against.sweep_id})" if against is not None else ""
    side = "better" if gain > 0 else "worse"
    than = "as good as" if gain == 0 else f"{show_number(abs(gain))} {side} than"
    text = f"{spec.metric} {show_number(ours)} is {than} the released model's {show_number(theirs)}{night}"
    if gain <= 0 or gain < spec.min_improvement:
        required = show_number(spec.min_improvement) if spec.min_improvement else "a better one"
        return "not_better", f"{text}; {required} is required"
    if found.pairs == 1:
        return "better", f"{text}, by one figure of each, without a test"
    if not found.test:
        return "too_few", f"{text}, by {found.pairs} pairs; {MIN_PAIRS} are required for a test"
    chance = f"by chance in {show_number(100 * (found.p_value or 0.0))} % of cases"
    if not found.is_sure:
        return "not_sure", f"{text} over {found.pairs} pairs, {chance}; {100 * LEVEL:g} % is the limit"
    return "better", f"{text} over {found.pairs} pairs, {chance}"


def _check_level(case: _Case, spec: JudgeSpec) -> None:
    level, figure = spec.at_least, case.fields["new"]
    if level is not None and spec.sign * figure < spec.sign * level:
        side = "below" if spec.mode == "max" else "above"
        text = f"{spec.metric} {show_number(figure)} is {side} at_least {show_number(level)}"
        case.add("at_least", text)
