"""What a trial takes as a function of its config: `"1e9 + 4e6 * width"`, parsed and never run as code."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from raysweep.errors import SpecError
from raysweep.spec.relations import MAX_LENGTH, Name, Value, compiled, value_at
from raysweep.spec.validation import Problem, show

EXAMPLE: Final = 'write such as "1e9 + 4e6 * batch_size"'


@dataclass(frozen=True, slots=True)
class Amount:
    """One parsed amount. `names`: the parameters in it, each as a path."""

    text: str
    names: tuple[Name, ...]
    value: Value = field(repr=False, compare=False)

    def of(self, config: Mapping[str, Any]) -> int | None:
        """The amount for a config, rounded up; None where the config has not all parameters.

        That is so where one is in a branch that the config does not have.

        Raises:
            SpecError: it is no number, or an endless one.
        """
        if not all(_is_there(config, name) for name in self.names):
            return None
        try:
            return math.ceil(_finite(self.value(config)))
        except (ArithmeticError, TypeError, ValueError) as error:
            problem = f"{self.text!r} cannot be told of {show(dict(config))}: {error}"
            raise SpecError("resources.by_config.memory", problem, "compute it of numbers") from None


def parse_amount(text: str) -> Amount:
    """The amount that a text says: what relations are made of, without comparisons. Raises Problem."""
    if len(text) > MAX_LENGTH:
        raise Problem(f"is longer than {MAX_LENGTH} characters", EXAMPLE)
    names: list[Name] = []
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Problem(f"{show(text)} is no expression", EXAMPLE) from None
    value = compiled(tree, names)
    if isinstance(tree, ast.Compare | ast.BoolOp) or _is_not(tree):
        raise Problem(f"{show(text)} is true or false, not an amount", EXAMPLE)
    if not names:
        raise Problem(f"{show(text)} names no parameter", f"{EXAMPLE}, or give the number itself as memory")
    return Amount(text=text.strip(), names=tuple(dict.fromkeys(names)), value=value)


def _is_not(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _is_there(config: Mapping[str, Any], name: Name) -> bool:
    try:
        value_at(config, name)
    except (KeyError, IndexError, TypeError):
        return False
    return True


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{show(value)} is no number")
    if not math.isfinite(value):
        raise ValueError(f"{value} is not finite")
    return value
