"""Rules that carry a parameter: `"rounds * scale.rows / proxy.rows"`, in the language of `where`.

A rule knows the parameters of the config, the scales of the target (`scale.`) and of the trial that had the
config (`proxy.`), `+ - * / // %`, `sqrt`, `log`, `min` and `max`. It is parsed and never run as code.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from raysweep.documents.validation import Problem, did_you_mean, dotted, show
from raysweep.errors import SpecError
from raysweep.space.branches import LeafPath
from raysweep.space.domains import Choice, Const, Domain, Float, Integer, Normal, SampleFrom
from raysweep.space.expressions import MAX_LENGTH, Function, Name, Value, compiled, dotted_name, value_at
from raysweep.space.parsed import Space
from raysweep.space.units import within

SAME: Final = "same"
LAW: Final = "law"
EXAMPLE: Final = 'write such as "rounds * scale.rows / proxy.rows"'
FUNCTIONS: Final[Mapping[str, Function]] = {
    "sqrt": Function(math.sqrt, 1, 1),
    "log": Function(math.log, 1, 1),
    "min": Function(min, 2, None),
    "max": Function(max, 2, None),
}
SCALES: Final = ("scale", "proxy")


@dataclass(frozen=True, slots=True)
class Rule:
    """One parsed rule. `names`: what is in it, each as a path."""

    text: str
    names: tuple[Name, ...]
    value: Value = field(repr=False, compare=False)

    def of(self, config: Mapping[str, Any], scale: Mapping[str, float], proxy: Mapping[str, float]) -> float:
        """The value for a config of the scale `proxy` at the scale `scale`. Raises Problem."""
        try:
            found = self.value({**config, "scale": scale, "proxy": proxy})
        except ZeroDivisionError:
            raise Problem(f"{self.text!r} divides by zero", self._with(config, scale, proxy)) from None
        except (ArithmeticError, TypeError, ValueError, KeyError, IndexError) as error:
            said = f"there is no {error}" if isinstance(error, KeyError) else str(error)
            problem = f"{self.text!r} cannot be computed: {said}"
            raise Problem(problem, self._with(config, scale, proxy)) from None
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
            raise Problem(f"{self.text!r} is {show(found)}, not a number", EXAMPLE)
        return float(found)

    def _with(self, config: Mapping[str, Any], scale: Mapping[str, float], proxy: Mapping[str, float]) -> str:
        scope = {**config, "scale": scale, "proxy": proxy}
        known = []
        for name in dict.fromkeys(self.names):
            try:
                known.append(f"{dotted_name(name)}={show(value_at(scope, name))}")
            except (KeyError, IndexError, TypeError):
                continue
        return f"change the rule; here {', '.join(known)}" if known else EXAMPLE


def parse_rule(text: str) -> Rule:
    """The rule that a text says. Raises Problem."""
    if len(text) > MAX_LENGTH:
        raise Problem(f"is longer than {MAX_LENGTH} characters", EXAMPLE)
    names: list[Name] = []
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        value = compiled(tree, names, functions=FUNCTIONS)
    except (SyntaxError, RecursionError, MemoryError):
        raise Problem(f"{show(text)} is not an expression", EXAMPLE) from None
    if not names or not _is_number(tree):
        raise Problem(f"{show(text)} is not a number made of parameters and scales", EXAMPLE)
    return Rule(text.strip(), tuple(dict.fromkeys(names)), value)


def _is_number(node: ast.expr) -> bool:
    """True if an expression is a number if its names are: no text, no condition, wherever it stands."""
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and _is_number(node.operand)
    if isinstance(node, ast.Call):
        return all(map(_is_number, node.args))
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    return isinstance(node, ast.Attribute | ast.Subscript) or (
        isinstance(node, ast.Name) and node.id not in ("true", "false", "null")
    )


def check_transfer(
    transfer: Mapping[str, str],
    space: Space,
    scales: Sequence[Mapping[str, float]],
    target: Mapping[str, float] | None = None,
) -> None:
    """Check before anything starts how each parameter is to be carried.

    Args:
        transfer: by parameter (`a.b` where nested) `same`, `law` or a rule.
        space: of the sweep.
        scales: the proxy scales, the smallest first.
        target: the scale of the training, where it is known.

    Raises:
        SpecError: a parameter or a scale is not there, a law is asked of a category or over one scale.
    """
    leaves = {dotted(path): (path, domain) for path, domain in space.leaves}
    for name, how in transfer.items():
        if name not in leaves:
            problem = f"{name!r} is not in param_space"
            raise SpecError(f"transfer.{name}", problem, did_you_mean(name, leaves))
        if how == LAW:
            _check_law(name, leaves[name][1], scales)
        elif how != SAME:
            known = scales if target is None else [*scales, target]
            _check_rule(name, how, leaves, known)


def try_rules(
    transfer: Mapping[str, str],
    configs: Sequence[Mapping[str, Any]],
    *,
    space: Space,
    scale: Mapping[str, float],
    proxy: Mapping[str, float],
) -> None:
    """See that each rule has a value for one of these configs at least; else as `carry` for the first."""
    for name, text in transfer.items():
        first: SpecError | None = None
        for config in configs:
            try:
                carry(config, {name: text}, space=space, scale=scale, proxy=proxy)
            except SpecError as error:
                first = first or error
            else:
                first = None
                break
        if first is not None:
            raise first


def _are_numbers(domain: Domain) -> bool:
    """True if all values of a parameter are numbers."""
    if isinstance(domain, Choice):
        return all(type(value) in (int, float) for value in domain.values)
    if isinstance(domain, Const):
        return type(domain.value) in (int, float)
    return isinstance(domain, Float | Integer | Normal | SampleFrom)


def _check_law(name: str, domain: Domain, scales: Sequence[Mapping[str, float]]) -> None:
    field = f"transfer.{name}"
    if not _are_numbers(domain) or isinstance(domain, Const | SampleFrom):
        problem = "a law needs a parameter that is a number with a domain"
        raise SpecError(field, problem, 'write "same": a category is carried by its best level over scales')
    if len({tuple(sorted(scale.items())) for scale in scales}) < 2:
        problem = f"a law needs two proxy scales or more, got {len(scales)}"
        raise SpecError(field, problem, 'add a scale to scales, or write "same" or a rule')


def _check_rule(
    name: str,
    text: str,
    leaves: Mapping[str, tuple[LeafPath, Domain]],
    scales: Sequence[Mapping[str, float]],
) -> None:
    field = f"transfer.{name}"
    if not _are_numbers(leaves[name][1]):
        raise SpecError(field, "is not a number, and a rule is one", 'write "same"')
    try:
        rule = parse_rule(text)
    except Problem as problem:
        raise SpecError(field, str(problem), problem.issues[0].fix) from None
    known = sorted({scale for each in scales for scale in each})
    for path in rule.names:
        written = dotted_name(path)
        if path[0] in SCALES:
            if len(path) != 2 or path[1] not in known:
                fix = did_you_mean(str(path[-1]), known) if known else "give the sweep a scale"
                raise SpecError(field, f"no config has the scale {written!r}", fix)
        elif written not in leaves:
            raise SpecError(field, f"{written!r} is not in param_space", did_you_mean(written, leaves))
        elif not _are_numbers(leaves[written][1]):
            what = f"{text!r} computes with {written!r}, which is not a number"
            raise SpecError(field, what, "name parameters that are numbers")


def carry(
    config: Mapping[str, Any],
    transfer: Mapping[str, str],
    *,
    space: Space,
    scale: Mapping[str, float],
    proxy: Mapping[str, float],
) -> dict[str, Any]:
    """A config of the scale `proxy` for the scale `scale`, by the rules of `transfer`.

    Parameters with `same` and `law` stay: give the config of `Carried` where there are laws. All rules see
    the given config, not what other rules make of it.

    Raises:
        SpecError: a rule cannot be computed, or its value is outside the parameter's domain.
    """
    found: dict[str, Any] = _copied(config)
    leaves = {dotted(path): (path, domain) for path, domain in space.leaves}
    for name, text in transfer.items():
        if text in (SAME, LAW):
            continue
        path, domain = leaves[name]
        try:
            value = parse_rule(text).of(config, scale, proxy)
            put(found, path, fitted(domain, value, text))
        except Problem as problem:
            raise SpecError(f"transfer.{name}", str(problem), problem.issues[0].fix) from None
    return found


def fitted(domain: Domain, value: float, text: str) -> Any:
    """The value, rounded to one of the domain. Raises Problem: it is outside."""
    if isinstance(domain, Const) and type(domain.value) in (int, float):
        return round(value) if isinstance(domain.value, int) else value
    if isinstance(domain, Choice) and all(type(each) in (int, float) for each in domain.values):
        _hold(value, min(domain.values), max(domain.values), text)
        return min(domain.values, key=lambda each: abs(each - value))
    if isinstance(domain, Integer):
        _hold(value, domain.low - domain.step / 2, domain.high + domain.step / 2, text)
    elif isinstance(domain, Float):
        _hold(value, domain.lower, domain.upper, text)
    elif not isinstance(domain, Normal):
        kind = "made by a function" if isinstance(domain, SampleFrom) else "not a number"
        raise Problem(f"its parameter is {kind}, and a rule is a number", 'write "same"')
    return within(domain, value)


def _hold(value: float, low: float, high: float, text: str) -> None:
    slack = 1e-9 * max(abs(low), abs(high))
    if not low - slack <= value <= high + slack:
        bounds = f"[{low:g}, {high:g}]"
        raise Problem(f"{text!r} is {value:g}, outside of its domain {bounds}", "bound it by min or max")


def _copied(node: Any) -> Any:
    if isinstance(node, Mapping):
        return {key: _copied(value) for key, value in node.items()}
    return [_copied(value) for value in node] if isinstance(node, list) else node


def put(config: Any, path: LeafPath, value: Any) -> None:
    """Set the value of one leaf of a config."""
    for part in path[:-1]:
        config = config[int(part)] if isinstance(config, list) else config[part]
    config[int(path[-1]) if isinstance(config, list) else path[-1]] = value
