"""The JSON Schema of a search space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raysweep.space.bounds import NUMERIC
from raysweep.space.vocabulary import BESIDE, LISTS, PRIOR, VOCABULARY

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
        "simplex": {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "minItems": 2,
            "uniqueItems": True,
            "description": "the names of shares that sum to one",
        },
        "const": True,
        "sample_from": {"type": "string", "minLength": 1, "description": "module:function"},
    }
    return {
        "description": 'A domain such as {"uniform": [0, 1]}, a nested mapping of values, or a constant.',
        "properties": domains,
        "additionalProperties": _VALUE,
        "items": _VALUE,
        "if": {"type": "object", "anyOf": [{"required": [word]} for word in VOCABULARY]},
        "then": {"allOf": [*_all_beside(), _alone()]},
    }


_BESIDE: dict[str, Any] = {
    "min": {"type": "number", "minimum": 0, "exclusiveMaximum": 1, "description": "each part's least share"},
    "step": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "description": "divides 1"},
}
_NORMAL: dict[str, Any] = {
    "type": "object",
    "properties": {"normal": {"type": "number"}, "sigma": {"type": "number", "exclusiveMinimum": 0}},
    "required": ["normal", "sigma"],
    "additionalProperties": False,
    "description": "the value believed best, and how far it may be off",
}
_WEIGHT: dict[str, Any] = {"type": "number", "minimum": 0}
_WEIGHTS: dict[str, Any] = {
    "anyOf": [
        {"type": "array", "items": _WEIGHT, "minItems": 1},
        {"type": "object", "additionalProperties": _WEIGHT, "minProperties": 1},
    ],
    "description": "how likely each value is believed to be the best one",
}


def _beside(words: Sequence[str], known: dict[str, Any]) -> dict[str, Any]:
    """The rule for the keys that these words may have beside them."""
    return {
        "if": {"anyOf": [{"required": [word]} for word in words]},
        "then": {
            "properties": known,
            "propertyNames": {"enum": [*words, *known]},
            "maxProperties": 1 + len(known),
        },
    }


def _all_beside() -> list[dict[str, Any]]:
    numbers = [word for word in BESIDE if word in NUMERIC]
    return [
        _beside(["simplex"], _BESIDE),
        _beside(["choice"], {PRIOR: _WEIGHTS}),
        _beside(numbers, {PRIOR: _NORMAL}),
    ]


def _alone() -> dict[str, Any]:
    """The rule that a word without such keys stands alone."""
    return {
        "if": {"anyOf": [{"required": [word]} for word in VOCABULARY if word not in BESIDE]},
        "then": {"maxProperties": 1},
    }
