"""YAML to plain values, by the core schema of YAML 1.2 and nothing else.

A spec may hold what others typed into a form, so nothing here is clever: of explicit tags only those of
JSON's types are known, keys are compared as the values that they are, an alias may not stand in what it
names, and what aliases multiply is bounded. Merge keys (`<<: *defaults`) are read; what is written beside
them counts.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Final

_TAG: Final = "tag:yaml.org,2002:"
_FLOAT: Final = r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
RESOLVERS: Final[tuple[tuple[str, re.Pattern[str], tuple[str, ...]], ...]] = tuple(
    (f"{_TAG}{name}", re.compile(f"^(?:{pattern})$"), tuple(first))
    for name, pattern, first in (
        ("null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
        ("float", _FLOAT, "-+0123456789."),
    )
)
"""Tag, expression and first letters of the plain scalars that are no text, in the order of precedence."""
_MERGE: Final = f"{_TAG}merge"
_STR: Final = f"{_TAG}str"
_COLLECTIONS: Final = {f"{_TAG}map": "mapping", f"{_TAG}seq": "sequence"}
_BASES: Final = {"0o": 8, "0x": 16}
MAX_DIGITS: Final = 400
# What a document may come to by its aliases: a few lines can stand for billions of values.
FREE_VALUES: Final = 100_000
VALUES_PER_CHARACTER: Final = 4


def values_of(text: str | bytes) -> Any:
    """The one document of a text, as plain values; None for an empty one.

    Raises: yaml.YAMLError, mostly with a place; RecursionError for what is nested too deeply.
    """
    node = _composer()(text).get_single_node()
    return _Values(FREE_VALUES + VALUES_PER_CHARACTER * len(text)).of(node) if node is not None else None


def all_values_of(text: str | bytes) -> list[Any]:
    """The documents of a text, without the empty ones. Raises: as `values_of`."""
    nodes = _composer()(text)
    values = _Values(FREE_VALUES + VALUES_PER_CHARACTER * len(text))
    found: list[Any] = []
    while nodes.check_node():
        found.append(values.of(nodes.get_node()))
    return [value for value in found if value is not None]


@functools.cache
def _composer() -> type[Any]:
    """The class that makes nodes of text; made on first use, as yaml takes a while to import."""
    from yaml.composer import Composer
    from yaml.parser import Parser
    from yaml.reader import Reader
    from yaml.resolver import BaseResolver
    from yaml.scanner import Scanner

    class Nodes(Reader, Scanner, Parser, Composer, BaseResolver):
        def __init__(self, text: str | bytes) -> None:
            Reader.__init__(self, text)
            Scanner.__init__(self)
            Parser.__init__(self)
            Composer.__init__(self)
            BaseResolver.__init__(self)

    for tag, expression, first in RESOLVERS:
        Nodes.add_implicit_resolver(tag, expression, first)
    Nodes.add_implicit_resolver(_MERGE, re.compile("^<<$"), ["<"])
    return Nodes


class _Values:
    """Makes values of nodes, at most so many."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._above: set[int] = set()
        self._readers: dict[str, Callable[[str], Any]] = {
            f"{_TAG}null": lambda text: None,
            f"{_TAG}bool": lambda text: text.lower() == "true",
            f"{_TAG}int": lambda text: int(text, _BASES.get(text[:2], 10)),
            f"{_TAG}float": lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
        }

    def of(self, node: Any) -> Any:
        """The value of a node."""
        self._left -= 1
        if self._left < 0:
            raise _error("aliases (*name) make too many values of it: write fewer", node)
        if node.id == "scalar":
            return self._scalar(node)
        if _COLLECTIONS.get(node.tag) != node.id:
            raise _unknown(node)
        if id(node) in self._above:
            raise _error("an alias (*name) stands in what it names", node)
        self._above.add(id(node))
        try:
            return self._mapping(node) if node.id == "mapping" else [self.of(item) for item in node.value]
        finally:
            self._above.discard(id(node))

    def _mapping(self, node: Any) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        merged: list[dict[Any, Any]] | None = None
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE and key_node.id == "scalar" and key_node.value == "<<":
                if merged is not None:
                    raise _error("the key '<<' is given twice", key_node)
                merged = self._merged(value_node)
                continue
            if key_node.id != "scalar":
                raise _error(f"a {key_node.id} is a key", key_node)
            key = self.of(key_node)
            if key in made:
                raise _error(f"the key {key!r} is given twice", key_node)
            made[key] = self.of(value_node)
        for each in merged or ():
            made = {**each, **made}
        return made

    def _merged(self, node: Any) -> list[dict[Any, Any]]:
        """The mappings that are merged in; of the same key in several, the first counts."""
        found = self.of(node)
        each = found if isinstance(found, list) else [found]
        if not all(isinstance(one, dict) for one in each):
            raise _error("what is merged in by '<<' is not a mapping", node)
        return each

    def _scalar(self, node: Any) -> Any:
        text: str = node.value
        if node.tag == _STR or (node.tag == _MERGE and text == "<<"):
            return _whole(text, node)
        reader = self._readers.get(node.tag)
        if reader is None:
            raise _unknown(node)
        if not any(tag == node.tag and expression.match(text) for tag, expression, _ in RESOLVERS):
            raise _error(f"{text[:40]!r} is no {node.tag.removeprefix(_TAG)}", node)
        if len(text) > MAX_DIGITS:
            raise _error(f"a number of {len(text)} digits", node)
        return reader(text)


def _whole(text: str, node: Any) -> str:
    """Text in which pairs of surrogates, as JSON escapes what is beyond U+FFFF, are what they stand for."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise _error("half of a surrogate pair is not a character", node) from None


def _unknown(node: Any) -> Exception:
    kind = node.tag.removeprefix(_TAG) if node.tag.startswith(_TAG) else node.tag
    return _error(f"the tag {kind!r} means nothing here: write a plain value", node)


def _error(problem: str, node: Any) -> Exception:
    from yaml.constructor import ConstructorError

    return ConstructorError(None, None, problem, node.start_mark)
