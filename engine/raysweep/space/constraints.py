"""The field `constraints` of a spec: what a trial's metrics have to satisfy, and how far they are from it.

A constraint is a relation (see `expressions`) between metrics: `latency_ms <= 20`. A metric whose name is no
Python name is written `metrics["eval/loss"]`. Beside whether it holds, a search wants to know by how much: of
`a <= b` that is `a - b`; of `and` the largest, of `or` the smallest of its parts.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema

from raysweep.documents.validation import Problem, show
from raysweep.space.expressions import Name, Relation, compiled, dotted_name, parse_relation, value_at

EXAMPLE: Final = 'write such as "latency_ms <= 20" or "recall >= 0.9 and size_mb < 50"'
METRICS: Final = "metrics"
"""Names behind it are looked up as they are: `metrics["eval/loss"]`."""
LEAST: Final = 1e-12
"""The least distance of a relation that does not hold: `a < b` where both are equal."""

Metrics = Mapping[str, Any]
Margin = Callable[[Metrics], float]


@dataclass(frozen=True, slots=True)
class Constraint:
    """One parsed constraint."""

    text: str
    names: tuple[Name, ...]
    """The metrics in it, each as a path."""
    relation: Relation = field(repr=False, compare=False)
    margin: Margin = field(repr=False, compare=False)

    def violation(self, metrics: Metrics) -> float | None:
        """The distance of these metrics from satisfying it: 0 or less, they do.

        None: it cannot be told, as a metric is not there, is not finite, or cannot be compared.
        """
        scope = self._scope(metrics)
        try:
            distance, is_satisfied = self.margin(scope), bool(self.relation.value(scope))
        except (ArithmeticError, TypeError, ValueError, KeyError, IndexError):
            return None
        if not math.isfinite(distance):
            return None
        return min(distance, 0.0) if is_satisfied else max(distance, LEAST)

    def missing(self, metrics: Metrics) -> str | None:
        """The first metric in it that is not among these; None where all are there."""
        scope = self._scope(metrics)
        for name in self.names:
            try:
                value_at(scope, name)
            except (KeyError, IndexError, TypeError):
                return _metric_name(name)
        return None

    def _scope(self, metrics: Metrics) -> Metrics:
        return metrics if METRICS in metrics else {**metrics, METRICS: metrics}


def parse_constraint(text: str) -> Constraint:
    """The constraint that a text says. Raises Problem."""
    relation = parse_relation(text, example=EXAMPLE, noun="metric")
    margin = _margin(ast.parse(relation.text, mode="eval").body)
    return Constraint(text=relation.text, names=relation.names, relation=relation, margin=margin)


def parse_constraints(texts: Iterable[str]) -> tuple[Constraint, ...]:
    """The constraints that these texts say. Raises Problem."""
    return tuple(map(parse_constraint, texts))


def _read(given: Any) -> Any:
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, list | tuple):
        raise Problem(f"expected a list of constraints, got {show(given)}", EXAMPLE)
    found: list[str] = []
    for number, text in enumerate(given):
        if not isinstance(text, str) or not text.strip():
            raise Problem(f"expected a constraint, got {show(text)}", EXAMPLE, (number,))
        try:
            parse_constraint(text)
        except Problem as problem:
            raise Problem.of(problem.issues, (number,)) from None
        if text.strip() in found:
            raise Problem(f"{show(text.strip())} is there twice", "leave one of them out", (number,))
        found.append(text.strip())
    return tuple(found)


Constraints = Annotated[
    tuple[str, ...],
    BeforeValidator(_read),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


def _metric_name(name: Name) -> str:
    """As the trainable reports it."""
    return dotted_name(name[1:] if len(name) > 1 and name[0] == METRICS else name)


def _margin(node: ast.expr) -> Margin:
    """The distance of a node from true: below 0 where it is true; `violation` settles what is on the edge."""
    if isinstance(node, ast.BoolOp):
        parts = [_margin(each) for each in node.values]
        combine = max if isinstance(node.op, ast.And) else min
        return lambda metrics: combine(part(metrics) for part in parts)
    if isinstance(node, ast.UnaryOp):
        inner = _margin(node.operand)
        return lambda metrics: -inner(metrics)
    assert isinstance(node, ast.Compare), "parse_relation has seen to it"
    names: list[Name] = []
    values = [compiled(each, names) for each in (node.left, *node.comparators)]
    pairs = list(zip(node.ops, values, values[1:], strict=False))
    return lambda metrics: max(_distance(op, first(metrics), second(metrics)) for op, first, second in pairs)


def _distance(op: ast.cmpop, first: Any, second: Any) -> float:
    if isinstance(op, ast.Eq | ast.NotEq):
        apart = _apart(first, second)
        return apart if isinstance(op, ast.Eq) else -apart
    distance = float(first) - float(second)
    return distance if isinstance(op, ast.Lt | ast.LtE) else -distance


def _apart(first: Any, second: Any) -> float:
    """Of texts and truth values there is no more to say than whether they are the same."""
    are_numbers = all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in (first, second)
    )
    return abs(float(first) - float(second)) if are_numbers else float(first != second)
