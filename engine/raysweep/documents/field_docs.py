"""Descriptions of a model's fields: the strings under them, read from its source when asked for.

Pydantic can take these for the fields' descriptions while a class is made (`use_attribute_docstrings`): it
then parses the source of each, a third of the time in which a run, a job or a command imports its specs. Only
JSON Schemas and some errors show them.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


def description_of(model: type[BaseModel], name: str) -> str:
    """The description of a field; empty without one."""
    field = model.model_fields.get(name)
    given = field.description if field is not None else None
    return given if given is not None else _of_all(model).get(name, "")


class Described(BaseModel):
    """A model whose JSON Schema has the descriptions of its fields."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        properties: dict[str, Any] = handler.resolve_ref_schema(schema).get("properties", {})
        for name, field in cls.model_fields.items():
            about = description_of(cls, name)
            shown = properties.get(field.alias or name)
            if about and shown is not None:
                shown.setdefault("description", about)
        return schema


@cache
def _of_all(model: type[BaseModel]) -> dict[str, str]:
    """Of all fields, inherited ones included; the nearest class has the last word."""
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if issubclass(cls, BaseModel) and cls is not BaseModel:
            # One that is declared anew without a word says nothing of what it was before.
            anew = inspect.get_annotations(cls)
            found = {name: text for name, text in found.items() if name not in anew} | _of_own(cls)
    return found


def _of_own(cls: type) -> dict[str, str]:
    try:
        lines, _ = inspect.getsourcelines(cls)
        (node,) = ast.parse(textwrap.dedent("".join(lines))).body
    except (OSError, TypeError, SyntaxError, ValueError):  # typed into a shell, or made by a program
        return {}
    if not isinstance(node, ast.ClassDef):
        return {}
    found: dict[str, str] = {}
    for field, below in zip(node.body, node.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = inspect.cleandoc(text)
    return found
