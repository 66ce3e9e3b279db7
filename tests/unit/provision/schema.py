"""Validation of an object by the structural schema of a Kubernetes definition, as an API server does it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from tests.golden.kuberay.record import load

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


@lru_cache(maxsize=1)
def rayjob_schema() -> dict[str, Any]:
    return load()


def problems_of(job: Any) -> list[str]:
    """What an API server with strict validation refuses in a RayJob."""
    fields = {name: value for name, value in job.items() if name != "metadata"}
    return list(_problems(fields, rayjob_schema(), ""))


def _problems(value: Any, schema: dict[str, Any], path: str) -> Any:
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield f"{path}: Invalid value: must be an integer or a string"
        elif isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
            yield f"{path}: Invalid value: {value!r} does not match"
        return
    kind = schema.get("type")
    if kind is not None and (
        not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")
    ):
        if value is None and schema.get("nullable"):
            return
        yield f"{path}: Invalid value: {type(value).__name__}: must be of type {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: Unsupported value: {value!r}"
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{path}: Invalid value: {value!r} does not match"
    if isinstance(value, int | float) and value < schema.get("minimum", float("-inf")):
        yield f"{path}: Invalid value: {value} is too small"
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from _problems(each, schema.get("items", {}), f"{path}[{number}]")
    if isinstance(value, dict):
        yield from _of_object(value, schema, path)


def _of_object(value: dict[str, Any], schema: dict[str, Any], path: str) -> Any:
    known, more = schema.get("properties", {}), schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name}: Required value".lstrip(".")
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") or not (known or more)
    for name, each in value.items():
        here = f"{path}.{name}".lstrip(".")
        if name in known:
            yield from _problems(each, known[name], here)
        elif isinstance(more, dict):
            yield from _problems(each, more, here)
        elif not more and not is_open:
            yield f'strict decoding error: unknown field "{here}"'
