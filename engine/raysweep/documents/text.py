"""YAML and JSON in and out, so that both say the same.

YAML is read by the core schema of YAML 1.2: `1e-4` is a number, `on`, `yes` and dates are strings. In both, a
key that is given twice is an error, as are NaN and infinity.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from itertools import chain
from typing import Any, Final, TypeVar, cast

from raysweep.documents.yaml_values import RESOLVERS, all_values_of, values_of
from raysweep.errors import SpecError, one_line

_Value = TypeVar("_Value")


def read_json(text: str | bytes, where: str = "JSON") -> Any:
    """The value in a JSON text. Raises SpecError, with line and column."""
    try:
        value = json.loads(text, object_pairs_hook=_object(where), parse_constant=_refuse_constant(where))
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise SpecError(where, f"not valid JSON at {place}: {error.msg}", "fix it there") from None
    except UnicodeDecodeError as error:
        raise SpecError(where, f"not valid UTF-8 at byte {error.start}", "save it as UTF-8") from None
    except RecursionError:
        raise SpecError(where, *_TOO_DEEP) from None
    except SpecError:
        raise
    except ValueError:  # Python makes no integer of thousands of digits
        raise SpecError(where, "has a number of thousands of digits", "write fewer") from None
    return _flat_enough(value, where)


_TOO_DEEP: Final = ("is nested too deeply", "nest less")
_MAX_LEVELS: Final = 100
"""Encoders of JSON end at some 250."""
_NESTED: Final = frozenset({dict, list})


def _flat_enough(value: Any, where: str) -> Any:
    """The value, if it can be written again. Raises: SpecError."""
    level = [value] if type(value) in _NESTED else []
    for _ in range(_MAX_LEVELS):
        # By identity: a YAML text may name one value in many places, or a value inside itself.
        inner = chain.from_iterable(each.values() if type(each) is dict else each for each in level)
        level = list({id(each): each for each in inner if type(each) in _NESTED}.values())
    if level:
        raise SpecError(where, *_TOO_DEEP)
    return value


def _object(where: str) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in pairs:
            if key in made:
                raise SpecError(where, f"the key {key!r} is given twice", "keep one of them")
            made[key] = value
        return made

    return build


def _refuse_constant(where: str) -> Callable[[str], Any]:
    def refuse(name: str) -> Any:
        raise SpecError(where, f"{name} is not JSON", "use a finite number or a string")

    return refuse


def read_yaml(text: str | bytes, where: str = "YAML") -> Any:
    """The value in a YAML text. Raises SpecError, with line and column."""
    return _read(values_of, text, where)


def read_all_yaml(text: str | bytes, where: str = "YAML") -> list[Any]:
    """The values of all documents in a YAML text, without empty ones. Raises SpecError, as `read_yaml`."""
    return _read(all_values_of, text, where)


def _read(values: Callable[[str | bytes], _Value], text: str | bytes, where: str) -> _Value:
    import yaml

    try:
        value = values(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise SpecError(where, one_line(f"not valid YAML{place}: {error.problem}"), "fix it there") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SpecError(where, one_line(f"not valid YAML: {error}", 200), "save it as UTF-8 text") from None
    except RecursionError:
        raise SpecError(where, *_TOO_DEEP) from None
    return cast(_Value, _flat_enough(value, where))


def write_yaml(value: Any) -> str:
    """Plain data as YAML, in the order of its keys."""
    import yaml

    text = yaml.dump(value, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=110)
    return str(text)


@functools.cache
def _dumper() -> type[Any]:
    """Made on first use, as yaml takes a while to import."""
    import yaml

    class Dumper(yaml.SafeDumper):
        # YAML 1.1's resolvers stay: text that they would misread is quoted for other readers' sake.
        yaml_implicit_resolvers: dict[str, Any] = {  # noqa: RUF012
            first: list(pairs) for first, pairs in yaml.SafeDumper.yaml_implicit_resolvers.items()
        }

        def ignore_aliases(self, data: Any) -> bool:
            return True

        def write_text(self, text: str) -> Any:
            # The other styles fold U+0085, U+2028 and U+2029 as line breaks.
            style = None if text.isprintable() else '"'
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    for tag, expression, first in RESOLVERS:
        Dumper.add_implicit_resolver(tag, expression, list(first))
    Dumper.add_representer(str, Dumper.write_text)
    return Dumper
