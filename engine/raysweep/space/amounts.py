"""The needs of a trial as functions of its config: `"1e9 + 4e6 * width"`, parsed and never run as code."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote

from raysweep.documents.validation import Problem, show
from raysweep.errors import SpecError
from raysweep.space.expressions import MAX_LENGTH, Name, Value, compiled, value_at

CUSTOM: Final = "custom."
"""The prefix of the names of custom resources among amounts."""
LEAST: Final = 0.0001
"""The smallest amount of CPUs, GPUs or a custom resource."""
WHOLE_DEVICES: Final = frozenset({"FURIOSA", "HPU", "MBLT", "RBLN", "TTNPU", "neuron_cores"})
_TPUS: Final = (1, 2, 4, 8)
EXAMPLE: Final = 'write such as "1e9 + 4e6 * batch_size"'


@dataclass(frozen=True, slots=True)
class Amount:
    """One parsed amount. `names`: the parameters in it, each as a path."""

    text: str
    names: tuple[Name, ...]
    value: Value = field(repr=False, compare=False)

    def of(self, config: Mapping[str, Any]) -> float | None:
        """The amount for a config; None where the config has not all parameters.

        That is so where one is in a branch that the config does not have.

        Raises:
            ArithmeticError, TypeError, ValueError: it is not a number, or an endless one.
        """
        if not all(_is_there(config, name) for name in self.names):
            return None
        return _finite(self.value(config))


@dataclass(frozen=True, slots=True)
class Need:
    """The amount of one resource that a trial needs, by its config.

    `field`: the field of the spec. `name`: `cpu`, `gpu`, `memory` (bytes), `num_workers`, or
    `custom.licence` for a custom resource of that name; of a gang, what each worker needs. `usual`: what all
    trials have. `is_pinned`: it is CPUs that a process is pinned to.
    """

    field: str
    name: str
    amount: Amount
    usual: float
    is_pinned: bool = False

    def of(self, config: Mapping[str, Any]) -> float | None:
        """The amount; None: no more than the usual.

        Raises:
            SpecError: it cannot be computed for this config, or no trial can have it.
        """
        try:
            value = self.amount.of(config)
        except (ArithmeticError, TypeError, ValueError) as error:
            problem = f"{self.amount.text!r} cannot be computed for {show(dict(config))}: {error}"
            raise SpecError(self.field, problem, "compute it of numbers") from None
        if value is None or value <= self.usual:
            return None
        if self.name in ("memory", "num_workers"):
            return float(math.ceil(value))
        if fix := refusal(self.name, value) or self._pinned_refusal(value):
            what = f"{value:g}{' GPUs' * (self.name == 'gpu')}"
            raise SpecError(self.field, f"{self.amount.text!r} is {what} of {show(dict(config))}", fix)
        return value

    def _pinned_refusal(self, value: float) -> str:
        return "give whole CPUs, as pin_cpus is true" if self.is_pinned and value % 1 else ""


def refusal(name: str, amount: float) -> str:
    """The fix for an amount (of `Need.name`) that Ray does not take; empty: it takes this one."""
    if 0 < amount < LEAST:
        return f"make it at least {LEAST:g}, in which Ray counts"
    if name == "gpu" and amount > 1 and amount % 1:
        return "make it a part of one GPU, or whole GPUs: (n + 1) // 2"
    device = name.removeprefix(CUSTOM) if name.startswith(CUSTOM) else ""
    if device == "TPU" and amount not in (0, *_TPUS):
        return f"make it one of {', '.join(map(str, _TPUS))}: Ray gives no other number of TPUs"
    if device in WHOLE_DEVICES and amount % 1:
        return f"make it whole: Ray gives no part of {device}"
    return ""


Size = str
"""The resources of a trial that differ from the sweep's usual, but for memory: `cpu=4 gpu=2`; empty: none.

The name of a custom resource is quoted as in a URI: `custom.my%20licence=3`.
"""


def size_of(amounts: Mapping[str, float]) -> Size:
    """The amounts by name as a size."""
    written = ((quote(name, safe="/:"), amount) for name, amount in sorted(amounts.items()))
    return " ".join(f"{name}={amount!r}".removesuffix(".0") for name, amount in written)


def amounts_of(size: Size) -> dict[str, float]:
    """The amounts that `size_of` wrote."""
    parts = (part.partition("=") for part in size.split())
    return {unquote(name): float(amount) for name, _, amount in parts}


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The needs of a trial beyond the usual, or those that a slot was opened with."""

    memory_bytes: int | None = None
    """The memory that it needs, by its config or because it ran out of memory with less."""
    size: Size = ""
    """The other resources that its config asks for."""

    @property
    def are_large(self) -> bool:
        """True if they are more than the usual."""
        return self.memory_bytes is not None or bool(self.size)


USUAL: Final = Needs()
"""The needs of the usual trial: nothing beyond what the spec says of all."""


def parse_amount(text: str) -> Amount:
    """The amount that a text says: what relations are made of, without comparisons. Raises Problem."""
    if len(text) > MAX_LENGTH:
        raise Problem(f"is longer than {MAX_LENGTH} characters", EXAMPLE)
    names: list[Name] = []
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Problem(f"{show(text)} is not an expression", EXAMPLE) from None
    value = compiled(tree, names)
    if isinstance(tree, ast.Compare | ast.BoolOp) or _is_not(tree):
        raise Problem(f"{show(text)} is true or false, not an amount", EXAMPLE)
    if not names:
        raise Problem(
            f"{show(text)} names no parameter", f"{EXAMPLE}, or give the number itself, outside of by_config"
        )
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
        raise TypeError(f"{show(value)} is not a number")
    if not math.isfinite(value):
        raise ValueError(f"{value} is not finite")
    return value
