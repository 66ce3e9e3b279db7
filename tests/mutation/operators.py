"""What can be changed in a line: mutmut's operators, some of ours, and what is left alone.

mutmut (https://mutmut.readthedocs.io) brings the operators. Its own runner mutates all of a module at once
behind trampolines, which leaves out properties and tables, and it draws no samples: `population` and
`execution` do that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

Operator = Callable[[Any], Iterable[cst.CSTNode]]

LOGGED = m.Call(func=m.Attribute(value=m.Name("_log") | m.Name("log")))
STRICT = m.Arg(keyword=m.Name("strict"))


def leave_out(node: cst.SimpleStatementLine) -> Iterator[cst.CSTNode]:
    """A call whose value nobody takes is left out: a timer that is not cancelled, an object not deleted."""
    call = m.Expr(m.Call() | m.Await(m.Call()))
    if len(node.body) == 1 and m.matches(node.body[0], call) and not m.matches(node.body[0], m.Expr(LOGGED)):
        yield node.with_changes(body=[cst.Pass()])


def negate(node: cst.If | cst.While | cst.IfExp | cst.CompIf) -> Iterator[cst.CSTNode]:
    """A condition means its opposite."""
    test = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    yield node.with_changes(test=cst.UnaryOperation(operator=cst.Not(), expression=test))


def return_nothing(node: cst.Return) -> Iterator[cst.CSTNode]:
    """The value is lost."""
    if node.value is not None and not m.matches(node.value, m.Name("None")):
        yield node.with_changes(value=cst.Name("None"))


def change_argument(node: cst.Call) -> Iterator[cst.CSTNode]:
    """An argument is None, or not there; not `strict`, an assertion that no run that passes ever meets."""
    strict = [arg for arg in node.args if m.matches(arg, STRICT)]
    for changed in mutators.operator_arg_removal(node):
        if [arg for arg in changed.args if m.matches(arg, STRICT)] == strict:
            yield changed


def wrap_string(node: cst.SimpleString) -> Iterator[cst.CSTNode]:
    """A word (a key, a kind, a suffix) is another one."""
    return islice(mutators.operator_string(node), 1)


def assign(node: cst.Assign | cst.AnnAssign) -> Iterator[cst.CSTNode]:
    """Another value; not None where mypy would refuse it."""
    takes_none = m.Annotation(m.BinaryOperation() | m.Name("Any") | m.Name("Final"))
    if not isinstance(node, cst.AnnAssign) or m.matches(node.annotation, takes_none):
        yield from mutators.operator_assignment(node)


OPERATIONS = (
    cst.BinaryOperation,
    cst.UnaryOperation,
    cst.BooleanOperation,
    cst.ComparisonTarget,
    cst.AugAssign,
)

OPERATORS: tuple[tuple[str, Any, Operator], ...] = (
    ("leave_out", cst.SimpleStatementLine, leave_out),
    ("negate", (cst.If, cst.While, cst.IfExp, cst.CompIf), negate),
    ("return_nothing", cst.Return, return_nothing),
    ("string", cst.SimpleString, wrap_string),
    ("number", cst.BaseNumber, mutators.operator_number),
    ("name", cst.Name, mutators.operator_name),
    ("assignment", (cst.Assign, cst.AnnAssign), assign),
    ("augmented", cst.AugAssign, mutators.operator_augmented_assignment),
    ("unary", cst.UnaryOperation, mutators.operator_remove_unary_ops),
    ("argument", cst.Call, change_argument),
    ("string_method", cst.Call, mutators.operator_symmetric_string_methods_swap),
    ("string_split", cst.Call, mutators.operator_unsymmetrical_string_methods_swap),
    ("lambda", cst.Lambda, mutators.operator_lambda),
    ("keyword", (cst.Is, cst.IsNot, cst.In, cst.NotIn, cst.Break, cst.Continue), mutators.operator_keywords),
    ("swap", OPERATIONS, mutators.operator_swap_op),
    ("match", cst.Match, mutators.operator_match),
)

# What is said to people (an error's words, a log's) is not what the tests are tested for; the rest is mypy's.
LEFT_ALONE: tuple[m.BaseMatcherNode, ...] = (
    m.Annotation(),
    m.Decorator(),
    m.Import(),
    m.ImportFrom(),
    m.Raise(),
    m.Assert(),
    LOGGED,
    m.Call(func=m.Name("cast") | m.Name("len") | m.Name("isinstance")),
    m.Subscript(value=m.Name("Literal")),
    m.Assign(value=m.Call(func=m.Name("TypeVar"))),
    m.Assign(value=m.Call(func=m.Attribute(attr=m.Name("getLogger")))),
    STRICT,
    m.Arg(keyword=m.Name("slots")),
    m.If(test=m.Name("TYPE_CHECKING")),
    m.If(test=m.Comparison(left=m.Name("__name__"))),
    m.Expr(m.SimpleString() | m.ConcatenatedString()),
    m.Assign(targets=[m.AssignTarget(m.Name("__all__"))]),
    m.TypeAlias(),
    # An alias of types: `Action = Begin | Leave`, `Out = list[Command]`.
    m.Assign(
        targets=[m.AssignTarget(m.Name(m.MatchRegex(r"[A-Z][a-z]\w*")))],
        value=m.BinaryOperation(operator=m.BitOr()) | m.Subscript(),
    ),
)


@dataclass(frozen=True)
class Change:
    """One change of one module: a node in the place of another."""

    module: cst.Module
    operator: str
    line: int
    """Where the changed node begins, from 1."""
    old: cst.CSTNode
    new: cst.CSTNode

    def code(self) -> str:
        """The module with the change in it."""
        mutated = self.module.visit(Replacement(self.old, self.new))
        assert isinstance(mutated, cst.Module)
        return mutated.code

    @property
    def likeness(self) -> tuple[str, str, str]:
        """The operator, the old node and the new one: the same wherever in the module they stand."""
        return self.operator, self.module.code_for_node(self.old), self.module.code_for_node(self.new)


def changes(code: str) -> list[Change]:
    """Every change that an operator can make to this module, in a fixed order."""
    wrapper = MetadataWrapper(cst.parse_module(code))
    collector = Collector()
    wrapper.visit(collector)
    return [Change(wrapper.module, *found) for found in collector.found]


class Collector(cst.CSTVisitor):
    """Finds what can be changed."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, int, cst.CSTNode, cst.CSTNode]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Collect the node's changes; say whether those of its parts count too."""
        if is_left_alone(node) or is_prose(node):
            return False
        for name, kinds, operator in OPERATORS:
            if isinstance(node, kinds):
                self.found += [(name, self._line(node), node, changed) for changed in operator(node)]
        return not is_constant(node)

    def _line(self, node: cst.CSTNode) -> int:
        place = self.get_metadata(PositionProvider, node, None)
        return 0 if place is None else int(place.start.line)


def is_left_alone(node: cst.CSTNode) -> bool:
    """Whether neither it nor its parts are changed."""
    matchers = (matcher for matcher in LEFT_ALONE if type(matcher).__name__ == type(node).__name__)
    return any(m.matches(node, matcher) for matcher in matchers)


def is_constant(node: cst.CSTNode) -> bool:
    """Whether it names a number that somebody has chosen: a test of its value would only say it again."""
    if not isinstance(node, cst.Assign | cst.AnnAssign):
        return False
    number = m.Integer() | m.Float() | m.BinaryOperation(operator=m.Multiply() | m.Power())
    target = m.Name(m.MatchRegex(r"[A-Z_]+"))
    return m.matches(
        node,
        m.Assign(targets=[m.AssignTarget(target)], value=number) | m.AnnAssign(target=target, value=number),
    )


def is_prose(node: cst.CSTNode) -> bool:
    """Whether it is a text for people: it has a space in it."""
    if isinstance(node, cst.FormattedString):
        return any(" " in part.value for part in node.parts if isinstance(part, cst.FormattedStringText))
    return isinstance(node, cst.SimpleString) and " " in str(node.evaluated_value)


class Replacement(cst.CSTTransformer):
    """Puts one node in the place of another."""

    def __init__(self, old: cst.CSTNode, new: cst.CSTNode) -> None:
        super().__init__()
        self._old = old
        self._new = new

    def on_visit(self, node: cst.CSTNode) -> bool:
        """What is replaced is not looked into."""
        return node is not self._old

    def on_leave(self, original_node: cst.CSTNode, updated_node: Any) -> Any:
        """The new node for the old one."""
        return self._new if original_node is self._old else updated_node
