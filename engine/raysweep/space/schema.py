"""The JSON Schema of a search space."""

from __future__ import annotations

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
        "then": {"allOf": [_beside(word) for word in BESIDE], **_alone()},
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


def _beside(word: str) -> dict[str, Any]:
    """The rule for the keys that a word may have beside it."""
    prior = {PRIOR: _WEIGHTS if word == "choice" else _NORMAL}
    known = {key: prior.get(key) or _BESIDE[key] for key in BESIDE[word]}
    return {
        "if": {"required": [word]},
        "then": {"properties": known, "propertyNames": {"enum": [word, *BESIDE[word]]}},
    }


def _alone() -> dict[str, Any]:
    """The rule that a word without such keys stands alone."""
    return {
        "if": {"anyOf": [{"required": [word]} for word in VOCABULARY if word not in BESIDE]},
        "then": {"maxProperties": 1},
    }
