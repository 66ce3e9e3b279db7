"""Templates in what a DAG gives to a task: each stays one value, and has the type of its field.

Airflow renders a template to text, so that `num_samples: "{{ params.n }}"` would be the text `2`; or, with
`render_template_as_native_obj`, each text to what it looks like: a constant `"1.10"` would be 1.1. Here:

- A text without a template stays as it is, whatever the DAG prefers.
- A text that is one expression gives the expression's value, if that is a number, a boolean, null or a text.
  Lists and mappings stay what they are only where the DAG renders native objects: elsewhere they become text,
  so that a form's field cannot put more than one value into a spec.
- Any other text is rendered to text.
- What a template gives becomes a number or a text where its field takes only that, by the JSON Schema.
- Data of other tasks are left alone (`seen_oids`, `mapped.py`): a template is what the DAG's author wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from raysweep.documents.text import read_yaml
from raysweep.errors import SpecError

Schema = Mapping[str, Any]
Step = str | int
_MARKS: Final = ("{{", "{%", "{#")
_TYPES: Final = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
_ANY: Final = frozenset(_TYPES.values())


@cache
def schema_of(model: str) -> Schema:
    """The JSON Schema of a model, by its name; an empty one for any JSON. Takes a fraction of a second."""
    if not model:
        return {}
    from raysweep.jobs import JobOptions
    from raysweep.specs import SweepSpec, TrainSpec
    from raysweep.specs.judge import JudgeSpec
    from raysweep.specs.pipeline import GateSpec

    if model in ("SweepSpec", "TrainSpec"):
        return (SweepSpec if model == "SweepSpec" else TrainSpec).json_schema()
    parts = {each.__name__: each for each in (GateSpec, JobOptions, JudgeSpec)}
    return parts[model].model_json_schema(mode="validation")


def has_template(given: Any) -> bool:
    """True if there is something to render in this value, however deep."""
    if isinstance(given, str):
        return any(mark in given for mark in _MARKS)
    if isinstance(given, Mapping):
        return any(map(has_template, given.values()))
    return any(map(has_template, given)) if isinstance(given, list | tuple) else False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """Renders one field of a task."""

    environment: Any
    """Jinja's; one that renders to text."""
    context: Mapping[str, Any]
    is_native: bool
    schema: Callable[[], Schema] = dict
    """The schema of the field; asked for only where it decides."""
    other: Callable[[Any], Any] = lambda given: given
    """Renders what is not text, list or mapping, as Airflow does."""
    seen_oids: Collection[int] = frozenset()
    """Identities of values that are another task's data."""

    def value(self, given: Any, path: tuple[Step, ...] = ()) -> Any:
        """The value with its templates rendered. Raises: jinja2.TemplateError."""
        if id(given) in self.seen_oids:
            return given
        if isinstance(given, str):
            return self._typed(self._rendered(given), path) if has_template(given) else given
        if type(given) is dict:
            return {name: self.value(each, (*path, str(name))) for name, each in given.items()}
        if type(given) in (list, tuple):
            return type(given)(self.value(each, (*path, at)) for at, each in enumerate(given))
        return self.other(given)

    def _rendered(self, text: str) -> Any:
        expression = self._sole_expression(text)
        if expression is None:
            return str(self.environment.from_string(text).render(self.context))
        value = self.environment.compile_expression(expression, undefined_to_none=False)(self.context)
        if type(value) in _TYPES or (self.is_native and isinstance(value, dict | list | tuple)):
            return value
        return str(value)

    def _sole_expression(self, text: str) -> str | None:
        tokens = [(kind, value) for _, kind, value in self.environment.lex(text.strip())]
        kinds = [kind for kind, _ in tokens]
        if kinds[0] != "variable_begin" or kinds.index("variable_end") != len(kinds) - 1:
            return None
        return "".join(value for _, value in tokens[1:-1])

    def _typed(self, value: Any, path: tuple[Step, ...]) -> Any:
        if type(value) is str:
            plain = _plain(value)
            takes = self._types(path) if plain is not value else _ANY
            return value if "string" in takes or not _fits(plain, takes) else plain
        if value is None or type(value) not in _TYPES or self._types(path) - {"null"} != {"string"}:
            return value
        return str(value)

    def _types(self, path: tuple[Step, ...]) -> frozenset[str]:
        """The types that the field at this path may have."""
        root = self.schema()
        nodes = list(_choices(root, root))
        for step in path:
            nodes = [found for node in nodes for found in _below(root, node, step)]
        return frozenset().union(*map(_own_types, nodes)) if nodes else _ANY


def _plain(text: str) -> Any:
    """A text as YAML reads it, if that is a number, a boolean or null; else, and if empty, the text."""
    if not text.strip():
        return text
    try:
        value = read_yaml(text, "")
    except SpecError:
        return text
    return value if type(value) in _TYPES and not isinstance(value, str) else text


def _fits(value: Any, types: frozenset[str]) -> bool:
    return _TYPES[type(value)] in types or (type(value) is int and "number" in types)


def _choices(root: Schema, node: Any) -> Iterator[Schema]:
    """The schemas that a reference, or a choice between several, leads to."""
    if not isinstance(node, Mapping):
        return
    if reference := node.get("$ref"):
        yield from _choices(root, root["$defs"][reference.rpartition("/")[2]])
        return
    branches = [each for name in ("anyOf", "oneOf", "allOf") for each in node.get(name, ())]
    if branches and "properties" not in node and "items" not in node:
        for each in branches:
            yield from _choices(root, each)
        return
    yield node


def _below(root: Schema, node: Schema, step: Step) -> Iterator[Schema]:
    if isinstance(step, int):
        below = node.get("items", {} if "type" not in node or node["type"] == "array" else None)
    else:
        more = node.get("additionalProperties", {} if node.get("type", "object") == "object" else None)
        below = node.get("properties", {}).get(step, more)
    yield from _choices(root, {} if below is True else below)


def _own_types(node: Schema) -> frozenset[str]:
    if "enum" in node or "const" in node:
        values = node.get("enum", [node.get("const")])
        return frozenset(_TYPES[type(each)] for each in values if type(each) in _TYPES)
    given = node.get("type")
    if given is None:
        return _ANY
    return frozenset([given] if isinstance(given, str) else given)
