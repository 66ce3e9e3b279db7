"""The field `where` of a spec: relations between the parameters of its `param_space`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from raysweep.documents.json_values import leaves
from raysweep.documents.validation import Problem, did_you_mean, show
from raysweep.space.amounts import Amount
from raysweep.space.branches import switch_of
from raysweep.space.expressions import EXAMPLE, Name, computed_names, dotted_name, parse_relation
from raysweep.space.vocabulary import word_of


def _read(given: Any) -> Any:
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, list | tuple):
        raise Problem(f"expected a list of relations, got {show(given)}", 'write ["min_lr < max_lr"]')
    for number, text in enumerate(given):
        if not isinstance(text, str) or not text.strip():
            raise Problem(f"expected a relation, got {show(text)}", EXAMPLE, (number,))
        try:
            parse_relation(text)
        except Problem as problem:
            raise Problem.of(problem.issues, (number,)) from None
    return tuple(text.strip() for text in given)


Where = Annotated[
    tuple[str, ...],
    BeforeValidator(_read),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


def check_where(where: tuple[str, ...], space: Mapping[str, Any]) -> None:
    """See that relations are between parameters of a normalised space. Imports nothing. Raises Problem."""
    for number, text in enumerate(where):
        for name in parse_relation(text).names:
            problem = _problem_of(name, space)
            if problem is not None:
                raise Problem(
                    problem,
                    did_you_mean(dotted_name(name), list(_known(space))),
                    ("where", number),
                )
        for name in sorted(computed_names(text), key=str):
            if (kind := _not_a_number(name, space)) is not None:
                problem = f"{text!r} computes with {dotted_name(name)!r}, which is {kind}"
                raise Problem(
                    problem, "compute with numbers, and compare texts by == or !=", ("where", number)
                )


def _not_a_number(name: Name, space: Any) -> str | None:
    """A parameter's text or bool in some configs, which cannot be computed with; None: it has none."""
    node = space
    for part in name:
        if switch_of(node) is not None or word_of(node) is not None:
            return None  # of a branch, or a part of a value
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            return None
    word = word_of(node)
    values = node.get(word) if word in ("choice", "grid_search") else [node] if word is None else []
    texts = [value for value in values if isinstance(value, str | bool)] if isinstance(values, list) else []
    return f"{show(texts[0])} in some configs" if texts else None


def check_amount(amount: Amount, space: Mapping[str, Any], path: tuple[str, ...]) -> None:
    """See that an amount is of parameters of a normalised space. Imports nothing. Raises Problem."""
    for name in amount.names:
        problem = _problem_of(name, space, may_be_made=True)
        if problem is not None:
            raise Problem(problem, did_you_mean(dotted_name(name), list(_known(space))), path)


def _problem_of(name: Name, space: Any, *, may_be_made: bool = False) -> str | None:
    """The problem of a name that some configs lack. `may_be_made`: also by a function of others."""
    node = space
    for part in name:
        branches = switch_of(node)
        if branches is not None:
            if part not in branches:
                return f"{dotted_name(name)!r} is not in param_space, where there is no branch {part!r}"
            node = branches[str(part)]
            continue
        if (word := word_of(node)) is not None:
            is_part = word == "simplex" and part in node[word]
            return (
                None
                if is_part
                or word in ("choice", "grid_search", "const", *(("sample_from",) if may_be_made else ()))
                else f"{dotted_name(name)!r} is not a parameter"
            )
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            return f"{dotted_name(name)!r} is not in param_space"
    if word_of(node) == "simplex":
        return f"{dotted_name(name)!r} is a simplex, not a number: name one of its parts"
    if isinstance(node, dict) and "sample_from" in node and not may_be_made:
        return f"{dotted_name(name)!r} is made by a function of the others, after they are chosen"
    return None


def _known(space: Mapping[str, Any]) -> Iterator[str]:
    """The dotted names of all parameters, those in branches too."""
    for name, node in leaves(space, is_leaf=_is_domain):
        yield name
        if word_of(node) == "simplex":
            yield from (f"{name}.{part}" for part in node["simplex"])
        for branch, item in (switch_of(node) or {}).items():
            yield from _known({f"{name}.{branch}": item})


def _is_domain(node: Mapping[str, Any]) -> bool:
    return word_of(node) is not None
