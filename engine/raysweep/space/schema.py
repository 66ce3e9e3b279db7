"""The JSON Schema of a search space."""

from __future__ import annotations

from typing import Any

from raysweep.space.bounds import NUMERIC
from raysweep.space.parsed import LISTS, VOCABULARY

_VALUE: dict[str, Any] = {"$ref": "#/$defs/SpaceValue"}


def _numbers(names: tuple[str, ...], least: int) -> dict[str, Any]:
    return {
        "type": "array",
        "items": {"type": "number"},
        "minItems": least,
        "maxItems": len(names),
        "description": f"[{', '.join(names)}]",
    }


def space_schema() -> dict[str, Any]:
    """The schema of `param_space`; refers to `#/$defs/SpaceValue`."""
    return {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"not": {"enum": list(VOCABULARY)}},
        "additionalProperties": _VALUE,
    }


def value_schema() -> dict[str, Any]:
    """The schema of one value in a space: a domain, a nested mapping, or a constant."""
    domains: dict[str, Any] = {
        word: _numbers(names, 0 if word == "randn" else len(names)) for word, names in NUMERIC.items()
    }
    domains |= {
        word: {
            "anyOf": [
                {"type": "array", "minItems": 1},
                {
                    "type": "object",
                    "minProperties": 1,
                    "propertyNames": {"not": {"enum": list(VOCABULARY)}},
                    "additionalProperties": _VALUE,
                    "description": "branches, of which a config has one, by name",
                },
            ]
        }
        for word in LISTS
    }
    domains |= {
        "const": True,
        "sample_from": {"type": "string", "minLength": 1, "description": "module:function"},
    }
    return {
        "description": 'A domain such as {"uniform": [0, 1]}, a nested mapping of values, or a constant.',
        "properties": domains,
        "additionalProperties": _VALUE,
        "items": _VALUE,
        "if": {"type": "object", "anyOf": [{"required": [word]} for word in VOCABULARY]},
        "then": {"maxProperties": 1},
    }
