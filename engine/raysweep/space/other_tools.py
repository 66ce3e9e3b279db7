"""Search spaces as other tools write them, which would be constants here: refused, with the translation.

Of W&B, NNI, Katib, Ax and Optuna as mappings, and of Hydra's sweepers as text. What may as well be meant as a
constant (`[16, 32]`, `{"min": 0, "max": 1}`) is noted in the outcome instead, by `space_notes`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from raysweep.documents.json_values import unwrap_number
from raysweep.documents.validation import Path, Problem, dotted, show
from raysweep.space.bounds import NUMERIC
from raysweep.space.branches import switch_of
from raysweep.space.vocabulary import word_of

Translation = tuple[str, dict[str, Any] | None]
"""The tool, and the domain that says the same here; None: there is no such domain."""
_ALIASES: Final = {
    "float": "uniform",
    "double": "uniform",
    "real": "uniform",
    "int": "randint",
    "integer": "randint",
    "categorical": "choice",
}
_NNI: Final = {"normal": "randn", "qnormal": "qrandn"}
_WANDB: Final = {
    "uniform": "uniform",
    "int_uniform": "randint",
    "q_uniform": "quniform",
    "log_uniform_values": "loguniform",
    "q_log_uniform_values": "qloguniform",
    "normal": "randn",
    "q_normal": "qrandn",
    "categorical": "choice",
    "categorical_w_probabilities": "choice",
    "constant": "const",
    "log_uniform": "",
    "inv_log_uniform": "",
    "inv_log_uniform_values": "",
    "q_log_uniform": "",
    "log_normal": "",
    "q_log_normal": "",
    "beta": "",
    "q_beta": "",
}
_WANDB_KEYS: Final = frozenset(
    {"distribution", "values", "value", "probabilities", "min", "max", "q", "mu", "sigma", "a", "b"}
)
_OPTUNA_KEYS: Final = frozenset({"type", "name", "low", "high", "step", "log", "q"})
_TELLING: Final = frozenset({"_type", "parameterType", "distribution", "values", "low", "type", *_ALIASES})
"""Each search space of another tool has one of these keys."""
_CALL: Final = re.compile(r"(?:tune\.)?([a-z_]+)\((.*)\)", re.DOTALL)
_HYDRA: Final = {"choice": "choice", "interval": "uniform", "range": "randint"}


def refuse_space_of_another_tool(value: Mapping[Any, Any] | str, path: Path) -> None:
    """Raise Problem for what is unmistakably a search space of another tool."""
    found = _of_text(value) if isinstance(value, str) else _of_mapping(value)
    if found is None:
        return
    tool, domain = found
    translated = f"write {json.dumps(domain)}" if domain else "write it as one of the domains of param_space"
    raise Problem(
        f"{show(value)} is a search space in the format of {tool}; here it would be a constant",
        f'{translated}; if it is a constant, write {{"const": ...}}',
        path,
    )


def space_notes(space: Mapping[str, Any], *, is_repeated: bool) -> Iterator[str]:
    """Notes on parts of a normalised space that may be meant as a domain, and are constants.

    `is_repeated`: trials differ by nothing else than what the space has.
    """
    if is_repeated and not _is_searched(space):
        yield "param_space has no domain: every trial runs the same config"
    yield from _notes(space, ())


def _notes(node: Any, path: Path) -> Iterator[str]:
    branches = switch_of(node)
    if branches is None and word_of(node) is not None:
        return
    name = dotted(path)
    if isinstance(node, list) and len(node) > 1 and not _is_searched(node) and not any(map(_is_nested, node)):
        choice = json.dumps({"choice": node})
        yield (
            f"param_space.{name} is a list and is passed as it is: to choose from it write {choice};"
            ' {"const": [...]} says that it is meant so'
        )
    elif isinstance(node, dict) and (domain := _of_bounds(node)) is not None:
        yield (
            f"param_space.{name} is {json.dumps(node)} in every trial: to search between these write"
            f' {json.dumps(domain)}; {{"const": {{...}}}} says that it is meant so'
        )
    elif isinstance(node, dict):
        for key, item in (branches if branches is not None else node).items():
            yield from _notes(item, (*path, key))


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list)


def _is_searched(node: Any) -> bool:
    """True if a normalised node has a domain that is no constant."""
    if isinstance(node, dict):
        if (word := word_of(node)) is not None:
            return word != "const"
        return any(map(_is_searched, node.values()))
    return isinstance(node, list) and any(map(_is_searched, node))


def _of_bounds(value: Mapping[Any, Any]) -> dict[str, Any] | None:
    """`{"min": 0, "max": 1}` as a domain, bounds included for whole numbers as W&B has them."""
    if value.keys() != {"min", "max"}:
        return None
    low, high = (unwrap_number(value[key]) for key in ("min", "max"))
    if not (_is_number(low) and _is_number(high) and low < high):
        return None
    return {"randint": [low, high + 1]} if type(low) is type(high) is int else {"uniform": [low, high]}


def _of_mapping(value: Mapping[Any, Any]) -> Translation | None:
    keys = set(value)
    if keys.isdisjoint(_TELLING):
        return None
    if keys == {"_type", "_value"} and isinstance(value["_type"], str):
        return "NNI", _numeric(_NNI.get(value["_type"], value["_type"]), value["_value"])
    if {"parameterType", "feasibleSpace"} <= keys and isinstance(value["feasibleSpace"], Mapping):
        return "Katib", _of_katib(value["parameterType"], value["feasibleSpace"])
    if "distribution" in keys and keys <= _WANDB_KEYS and value["distribution"] in list(_WANDB):
        return "W&B", _of_wandb(value)
    if {"values"} <= keys <= {"values", "probabilities"} and _is_flat(value["values"]):
        return "W&B", {"choice": list(value["values"])}
    if {"low", "high"} <= keys <= _OPTUNA_KEYS and _is_number(value["low"]) and _is_number(value["high"]):
        return "Optuna", _of_optuna(value)
    if {"type", "bounds"} <= keys and value["type"] == "range" and _is_flat(value["bounds"]):
        log = "log" if value.get("log_scale") or value.get("log") else ""
        return "Ax", _numeric(f"{log}uniform", value["bounds"])
    if {"type", "values"} <= keys and value["type"] == "choice" and _is_flat(value["values"]):
        return "Ax", {"choice": list(value["values"])}
    if len(keys) == 1 and (word := next(iter(keys))) in list(_ALIASES) and _is_flat(value[word]):
        domain = _numeric(_ALIASES[word], value[word])
        if domain and "randint" in domain:  # elsewhere the upper bound is included
            domain = {"randint": [domain["randint"][0], domain["randint"][1] + 1]}
        return ("another tool", domain) if domain else None
    return None


def _of_wandb(value: Mapping[Any, Any]) -> dict[str, Any] | None:
    word = _WANDB[value["distribution"]]
    if word == "const":
        return {"const": value.get("value")}
    if word == "choice":
        return _numeric(word, value.get("values"))
    names = ("mu", "sigma") if word in ("randn", "qrandn") else ("min", "max")
    numbers = [unwrap_number(value.get(name)) for name in names]
    if word == "randint" and type(numbers[1]) is int:
        numbers[1] += 1  # W&B includes it
    return _numeric(word, [*numbers, value.get("q", 1)] if word.startswith("q") else numbers)


def _of_katib(kind: Any, space: Mapping[Any, Any]) -> dict[str, Any] | None:
    if "list" in space:
        return _numeric("choice", [_read(each) if kind == "discrete" else each for each in space["list"]])
    low, high = (_read(space.get(name)) for name in ("min", "max"))
    log = "log" if space.get("distribution") == "logUniform" else ""
    if kind == "int" and type(high) is int:
        return _numeric(f"{log}randint", [low, high + 1])
    return _numeric(f"{log}uniform", [low, high])


def _of_optuna(value: Mapping[Any, Any]) -> dict[str, Any] | None:
    low, high, step = (unwrap_number(value.get(name)) for name in ("low", "high", "step"))
    log = "log" if value.get("log") else ""
    if value.get("type", "float") == "int" or (type(low) is type(high) is int and "type" not in value):
        word, ends = f"{log}randint", [low, high + 1] if type(high) is int else [low, high]
    else:
        word, ends = f"{log}uniform", [low, high]
    if step in (None, 1):
        return _numeric(word, ends)
    return _numeric(f"q{word}", [low, high, step])


def _of_text(text: str) -> Translation | None:
    """`choice(a, b)`, `range(0, 10)`, `interval(0, 1)`, `tag(log, interval(1e-4, 1))`, `uniform(0, 1)`."""
    found = _CALL.fullmatch(text.strip())
    if found is None:
        return None
    name, inside = found.groups()
    if name == "tag":
        tagged = _of_text(inside.partition(",")[2])
        domain = tagged[1] if tagged is not None else None
        is_log = inside.partition(",")[0].strip() == "log" and domain is not None
        logged = {f"log{word}": ends for word, ends in (domain or {}).items()} if is_log else domain
        return ("Hydra", logged) if tagged is not None else None
    word = _HYDRA.get(name, name)
    if word not in NUMERIC and word != "choice":
        return None
    values = [_read(part.strip().strip("\"'")) for part in inside.strip().strip("[]").split(",")]
    if name == "range":
        return "Hydra", _of_range(values)
    return ("Hydra" if name in _HYDRA else "code"), _numeric(word, values)


def _of_range(values: list[Any]) -> dict[str, Any] | None:
    """Hydra's `range(start, stop, step)`, without its end as Python has it."""
    if not all(map(_is_number, values)):
        return None
    start, stop, step = [0, *values, 1] if len(values) == 1 else [*values, 1][:3]
    if type(start) is type(stop) is type(step) is int:
        return {"choice": list(range(start, stop, step))} if step > 1 else {"randint": [start, stop]}
    return {"uniform": [start, stop]} if step == 1 else {"quniform": [start, stop, step]}


def _numeric(word: str, values: Any) -> dict[str, Any] | None:
    """A domain of these values, where it takes them."""
    if not _is_flat(values):
        return None
    values = [unwrap_number(value) for value in values]
    if word == "choice":
        return {"choice": values}
    fits = word in NUMERIC and len(values) == len(NUMERIC[word]) and all(map(_is_number, values))
    return {word: values} if fits else None


def _is_flat(values: Any) -> bool:
    """True if it is a list of plain values."""
    return isinstance(values, list | tuple) and len(values) > 0 and not any(map(_is_nested, values))


def _is_number(value: Any) -> bool:
    value = unwrap_number(value)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read(text: Any) -> Any:
    """The number that a text is, else the text."""
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return text
