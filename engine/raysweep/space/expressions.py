"""Relations between parameters: `min_lr < max_lr`, as text that is parsed and never run as code.

An expression is made of names of parameters (`a`, nested `a.b`, `a[0]`, `a["my-name"]`), numbers, strings,
true, false and null, `+ - * / // %`, comparisons (chains too: `0 < a < b`), `and`, `or`, `not`, brackets.
Nothing else is known: no calls, no attributes of values, no powers.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from raysweep.documents.validation import Problem, show
from raysweep.errors import SpecError

MAX_LENGTH: Final = 500
"""Characters of one relation: enough for any that a person writes."""
EXAMPLE: Final = 'write such as "min_lr < max_lr" or "layers * width <= 4096"'

Name = tuple[str | int, ...]
Value = Callable[[Mapping[str, Any]], Any]

_ARITHMETIC: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


@dataclass(frozen=True, slots=True)
class Function:
    """A function of numbers, which it takes so many of; `most` is None where there is no limit."""

    call: Callable[..., float]
    least: int
    most: int | None


NO_FUNCTIONS: Final[Mapping[str, Function]] = {}
# Each sum, product and call has one of these.
_COMPUTES: Final = frozenset("+-*/%(")
_CONSTANTS: Final = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True)
class Relation:
    """One parsed relation. `names`: the parameters in it, each as a path.

    `needs`: choices between branches, and the branch of each that has a parameter of the relation. Of a
    config without that branch the relation says nothing: it holds.
    """

    text: str
    names: tuple[Name, ...]
    value: Value = field(repr=False, compare=False)
    needs: tuple[tuple[Name, str], ...] = ()

    def holds(self, config: Mapping[str, Any]) -> bool:
        """True if a config satisfies it. What cannot be computed, as a division by zero, does not.

        Nor does a null that is put in an order or computed with.

        Raises:
            SpecError: it compares what cannot be compared, or the config has no such parameter.
        """
        if not all(_has(config, switch, branch) for switch, branch in self.needs):
            return True
        try:
            return bool(self.value(config))
        except (ZeroDivisionError, OverflowError):
            return False
        except (TypeError, KeyError, IndexError) as error:
            if isinstance(error, TypeError) and any(_meets_null(config, name) for name in self.names):
                return False
            problem = f"{self.text!r} cannot be computed for {show(dict(config))}: {_said(error)}"
            raise SpecError("where", problem, "relate numbers to numbers that each config has") from None


def _said(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


def _meets_null(config: Mapping[str, Any], name: Name) -> bool:
    """True if there is a null at a name, or on the way to it."""
    node: Any = config
    for part in name:
        if node is None:
            return True
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            return False
    return node is None


def _has(config: Mapping[str, Any], switch: Name, branch: str) -> bool:
    try:
        return branch in value_at(config, switch)
    except (KeyError, IndexError, TypeError):
        return False  # it is in a branch that is not there


def parse_relation(
    text: str,
    switches: Collection[tuple[str, ...]] = (),
    *,
    example: str = EXAMPLE,
    noun: str = "parameter",
) -> Relation:
    """The relation that a text says. Raises Problem.

    Args:
        text: such as "min_lr < max_lr".
        switches: the paths of choices between branches; named in a relation, one is the branch's name.
        example, noun: for what is wrong with the text.
    """
    if len(text) > MAX_LENGTH:
        raise Problem(f"is longer than {MAX_LENGTH} characters", "say it in several relations: all must hold")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Problem(f"{show(text)} is not an expression", example) from None
    names: list[Name] = []
    try:
        value = compiled(tree, names, switches)
    except RecursionError:
        raise Problem(f"{show(text)} is nested too deeply", example) from None
    if not _is_boolean(tree):
        raise Problem(f"{show(text)} is not a condition: it is neither true nor false", example)
    if not names:
        raise Problem(f"{show(text)} names no {noun}", example)
    unique = tuple(dict.fromkeys(names))
    return Relation(text=text.strip(), names=unique, value=value, needs=_needs(unique, switches))


def _needs(names: Iterable[Name], switches: Collection[tuple[str, ...]]) -> tuple[tuple[Name, str], ...]:
    found = (
        (name[:length], str(name[length]))
        for name in names
        for length in range(1, len(name))
        if tuple(map(str, name[:length])) in switches
    )
    return tuple(dict.fromkeys(found))


def all_hold(relations: Iterable[Relation], config: Mapping[str, Any]) -> bool:
    """True if a config satisfies every relation."""
    return all(relation.holds(config) for relation in relations)


def _is_boolean(node: ast.expr) -> bool:
    if isinstance(node, ast.BoolOp):
        return all(map(_is_boolean, node.values))
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not) and _is_boolean(node.operand)
    return isinstance(node, ast.Compare)


def compiled(
    node: ast.expr,
    names: list[Name],
    switches: Collection[tuple[str, ...]] = (),
    functions: Mapping[str, Function] = NO_FUNCTIONS,
) -> Value:
    """A node as a function of the config; adds to `names`. Raises Problem: whatever is not listed here.

    `functions`: those of numbers that may be called, by name.
    """
    if isinstance(node, ast.BoolOp):
        parts = [compiled(each, names, switches, functions) for each in node.values]
        combine = all if isinstance(node.op, ast.And) else any
        return lambda config: combine(part(config) for part in parts)
    if isinstance(node, ast.Compare):
        return _comparison(node, names, switches, functions)
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = (compiled(each, names, switches, functions) for each in (node.left, node.right))
        compute = _ARITHMETIC[type(node.op)]
        return lambda config: compute(_number(left(config)), _number(right(config)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        inner, is_not = compiled(node.operand, names, switches, functions), isinstance(node.op, ast.Not)
        return lambda config: not inner(config) if is_not else -_number(inner(config))
    if isinstance(node, ast.Constant) and type(node.value) in (int, float, str, bool, type(None)):
        constant = node.value
        return lambda config: constant
    if isinstance(node, ast.Name) and node.id in _CONSTANTS:
        known = _CONSTANTS[node.id]
        return lambda config: known
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
        return _call(node, names, functions)
    name = _name(node)
    names.append(name)
    if tuple(map(str, name)) in switches:
        return lambda config: next(iter(value_at(config, name)))
    return lambda config: value_at(config, name)


def _call(node: ast.Call, names: list[Name], functions: Mapping[str, Function]) -> Value:
    function, count = functions[ast.unparse(node.func)], len(node.args)
    is_few = count < function.least or any(isinstance(each, ast.Starred) for each in node.args)
    if node.keywords or is_few or (function.most is not None and count > function.most):
        problem = f"{ast.unparse(node)!r} is not a call of {_count(function)}"
        raise Problem(problem, "write sqrt(a), log(a), min(a, b) or max(a, b)")
    values = [compiled(each, names, (), functions) for each in node.args]
    return lambda config: function.call(*(_number(value(config)) for value in values))


def _count(function: Function) -> str:
    return "one number" if function.most == 1 else f"{function.least} numbers or more"


def _comparison(
    node: ast.Compare,
    names: list[Name],
    switches: Collection[tuple[str, ...]],
    functions: Mapping[str, Function],
) -> Value:
    values = [compiled(each, names, switches, functions) for each in (node.left, *node.comparators)]
    compares = []
    for op in node.ops:
        if type(op) not in _COMPARISONS:
            raise Problem(f"{ast.unparse(node)!r} compares by what is not known here", "use < <= > >= == !=")
        compares.append(_COMPARISONS[type(op)])

    def holds(config: Mapping[str, Any]) -> bool:
        found = [value(config) for value in values]
        pairs = zip(compares, found, found[1:], strict=False)
        return all(compare(first, second) for compare, first, second in pairs)

    return holds


def _name(node: ast.expr) -> Name:
    """The parameter that a node names."""
    match node:
        case ast.Name(id=name):
            return (name,)
        case ast.Attribute(value=inner, attr=name):
            return (*_name(inner), name)
        case ast.Subscript(value=inner, slice=ast.Constant(value=str() | int() as key)):
            return (*_name(inner), key)
    raise Problem(
        f"{ast.unparse(node)!r} is not known here",
        "use names, numbers, + - * / // %, comparisons, and, or, not",
    )


def _number(value: Any) -> float:
    """A number to compute with: strings and lists would multiply without end."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{show(value)} is not a number")
    return float(value)


def computed_names(text: str) -> set[Name]:
    """The names that an expression, which was parsed before, computes with: they must be numbers."""
    found: set[Name] = set()
    if _COMPUTES.isdisjoint(text):
        return found
    for node in ast.walk(ast.parse(text.strip(), mode="eval")):
        parts: list[ast.expr] = []
        if isinstance(node, ast.BinOp):
            parts = [node.left, node.right]
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            parts = [node.operand]
        elif isinstance(node, ast.Call):
            parts = node.args
        for part in parts:
            if isinstance(part, ast.Name | ast.Attribute | ast.Subscript) and not _is_constant(part):
                found.add(_name(part))
    return found


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in _CONSTANTS


def value_at(config: Mapping[str, Any], name: Name) -> Any:
    """The value of a name. Raises KeyError, IndexError or TypeError where there is none."""
    node: Any = config
    for part in name:
        node = node[part]
    return node


def dotted_name(name: Name) -> str:
    """A name as it is written: `block.a`, `a[0]`."""
    first, *rest = name
    return str(first) + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)
