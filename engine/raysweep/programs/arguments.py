"""A config for a program: arguments in several styles, a file, variables; filled-in placeholders."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from raysweep.documents.json_values import leaves
from raysweep.documents.placeholders import fill, is_placeholder, names_in
from raysweep.documents.variable_names import is_needed, variable_of
from raysweep.errors import RaysweepError

Style = Literal["flags", "switches", "equals", "hydra", "environment"]
_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@+%-]*")
"""A text that hydra reads as it is: in ASCII, no number (`.5` is one), no quotes, no brackets."""
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_/+.$%*@?| ()\[\]{}:=,\t\\-]+")
"""A key in a mapping that hydra can read, with some characters escaped: it takes no quotes there."""
_ESCAPED_KEY: Final = re.compile(r"([ ()\[\]{}:=,\t\\])")
_HYDRA_WORDS: Final = frozenset({"true", "false", "null", "inf", "nan"})


class PlaceholderError(RaysweepError):
    """A placeholder of a command has no value in this trial."""


class ArgumentsError(RaysweepError):
    """The config of this trial cannot be written in the style of `program.arguments`."""


def parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of a config by their dotted paths."""
    return dict(leaves(config))


def write_arguments(config: Mapping[str, Any], style: Style, *, without: Sequence[str] = ()) -> list[str]:
    """A config as arguments; of `without`, which placeholders name, nothing is written.

    `flags`: `--name value`; a list gives several values, a value that begins with `-` is `--name=value`, and
    null is left out. `switches`: as `flags`, but true is `--name` alone, and false is left out. `equals`:
    `--name=value`, lists as JSON. `hydra`: `name=value` in hydra's grammar.
    """
    written: list[str] = []
    for name, value in parameters(config).items():
        if any(name == one or name.startswith(f"{one}.") for one in without):
            continue
        match style:
            case "switches" if isinstance(value, bool):
                written += [f"--{name}"] if value else []
            case "flags" | "switches":
                written += _flags(name, value)
            case "equals":
                written += [] if value is None else [f"--{name}={as_text(value)}"]
            case "hydra":
                written.append(f"{name}={as_hydra(value)}")
            case "environment":
                pass
    return written


def _flags(name: str, value: Any) -> list[str]:
    if value is None:
        return []
    values = [as_text(item) for item in value] if isinstance(value, list | tuple) else [as_text(value)]
    if len(values) == 1 and values[0].startswith("-"):  # argparse would take it for another option
        return [f"--{name}={values[0]}"]
    return [f"--{name}", *values]


def as_text(value: Any) -> str:
    """A value as an argument: text as it is, all else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


def as_hydra(value: Any) -> str:
    """A value in the grammar of hydra's overrides."""
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value) is not None and value.lower() not in _HYDRA_WORDS
        return value if is_plain else _quoted(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_hydra_key(str(key))}:{as_hydra(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(as_hydra(item) for item in value) + "]"
    return as_text(value)


def _hydra_key(key: str) -> str:
    if _PLAIN_KEY.fullmatch(key) is None:
        raise ArgumentsError(f"program.arguments: hydra cannot write the key {key!r} of a mapping: rename it")
    return _ESCAPED_KEY.sub(r"\\\1", key)


def _quoted(text: str) -> str:
    # A backslash counts only before a quote; there, and at the end, each is doubled.
    escaped = re.sub(r"(\\*)'", lambda found: found[1] * 2 + "\\'", text)
    escaped = re.sub(r"(\\+)$", lambda found: found[1] * 2, escaped)
    return f"'{escaped}'"


def variables(config: Mapping[str, Any], *, named: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """A config as variables: `model.width` is `MODEL_WIDTH`; null is left out.

    So is a parameter that is `named` by a placeholder, where programs need its variable for themselves. The
    spec is checked for this; here are also the parameters in the values of a choice.

    Raises ArgumentsError: A variable is needed, or is that of two parameters.
    """
    owner: dict[str, str] = {}
    for name, value in parameters(config).items():
        variable = variable_of(name)
        if is_needed(variable):
            if any(name == one or name.startswith(f"{one}.") for one in named):
                continue
            raise ArgumentsError(f"the parameter {name} would replace the variable {variable}: rename it")
        if (other := owner.setdefault(variable, name)) != name:
            raise ArgumentsError(
                f"the parameters {other} and {name} are one variable, {variable}: rename one"
            )
        if value is not None:
            yield variable, as_text(value)


def write_config(config: Mapping[str, Any], kind: Literal["json", "yaml"], folder: Path) -> Path:
    """A file with the config in a folder."""
    path = folder / f"config.{kind}"
    if kind == "yaml":
        from raysweep.documents.text import write_yaml

        path.write_text(write_yaml(dict(config)), encoding="utf-8")
    else:
        path.write_text(json.dumps(config, ensure_ascii=False, indent=1), encoding="utf-8")
    return path


def look_up(config: Mapping[str, Any], name: str) -> Any:
    """The value of a parameter by its dotted path. Raises KeyError."""
    if name in config:
        return config[name]
    head, dot, rest = name.partition(".")
    found = config[head] if dot else None
    if not isinstance(found, Mapping):
        raise KeyError(name)
    return look_up(found, rest)


def fill_command(
    command: Sequence[str],
    config: Mapping[str, Any],
    value_of: Callable[[str], str],
    *,
    style: Style,
    resume: Sequence[str],
    adds_args: bool,
    also: Sequence[str] = (),
) -> list[str]:
    """The arguments of a trial.

    Args:
        command: The command of the spec.
        config: The trial's config.
        value_of: The value of any other placeholder than `{args}` and `{resume}`.
        style: How `{args}` is written.
        resume: What `{resume}` stands for; empty without a checkpoint.
        adds_args: Whether `{args}` follows at the end.
        also: Other texts whose placeholders name parameters.

    Raises: PlaceholderError.
    """
    named = [name for text in (*command, *also, *resume) for name in names_in(text)]
    written = write_arguments(config, style, without=named)
    filled: list[str] = []
    for item in command:
        if is_placeholder(item, "args"):
            filled += written
        elif is_placeholder(item, "resume"):
            filled += [fill(word, value_of) for word in resume]
        else:
            filled.append(fill(item, value_of))
    if adds_args:
        filled += written
    if resume and not any(is_placeholder(item, "resume") for item in command):
        filled += [fill(word, value_of) for word in resume]
    return filled
