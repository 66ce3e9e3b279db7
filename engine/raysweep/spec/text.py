"""YAML and JSON in and out, so that both say the same.

YAML is read by the core schema of YAML 1.2: `1e-4` is a number, `on`, `yes` and dates are strings. In both, a
key that is given twice is an error, as are NaN and infinity.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import Any

from raysweep.errors import SpecError, one_line

_FLOAT = r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
_RESOLVERS: tuple[tuple[str, str, str], ...] = (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", _FLOAT, "-+0123456789."),
)


def read_json(text: str | bytes, where: str = "JSON") -> Any:
    """The value in a JSON text. Raises SpecError, with line and column."""
    try:
        return json.loads(text, object_pairs_hook=_object(where), parse_constant=_refuse_constant(where))
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise SpecError(where, f"not valid JSON at {place}: {error.msg}", "mend it there") from None
    except UnicodeDecodeError as error:
        raise SpecError(where, f"not valid UTF-8 at byte {error.start}", "save it as UTF-8") from None


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
    import yaml

    try:
        return yaml.load(text, Loader=_yaml_classes()[0])
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise SpecError(where, one_line(f"not valid YAML{place}: {error.problem}"), "mend it there") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SpecError(where, one_line(f"not valid YAML: {error}", 200), "save it as UTF-8 text") from None


def write_yaml(value: Any) -> str:
    """Plain data as YAML, in the order of its keys."""
    import yaml

    text = yaml.dump(value, Dumper=_yaml_classes()[1], sort_keys=False, allow_unicode=True, width=110)
    return str(text)


@functools.cache
def _yaml_classes() -> tuple[type[Any], type[Any]]:
    """The loader and the dumper; made on first use, as yaml takes a while to import."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key_node, _ in node.value:
                if key_node.tag == "tag:yaml.org,2002:merge":
                    continue
                key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
                if key is not None and (key_node.tag, key) in seen:
                    problem = f"the key {key!r} is given twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
                seen.add((key_node.tag, key))
            return super().construct_mapping(node, deep=deep)

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

    for name, pattern, first in _RESOLVERS:
        tag, regex = f"tag:yaml.org,2002:{name}", re.compile(f"^(?:{pattern})$")
        starts = ["" if char == "\0" else char for char in first]
        Loader.add_implicit_resolver(tag, regex, starts)
        Dumper.add_implicit_resolver(tag, regex, starts)
    Dumper.add_representer(str, Dumper.write_text)
    Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile("^(?:<<)$"), ["<"])
    Loader.add_constructor("tag:yaml.org,2002:int", _yaml_int)
    Loader.add_constructor("tag:yaml.org,2002:float", _yaml_float)
    return Loader, Dumper


def _yaml_int(loader: Any, node: Any) -> int:
    text = loader.construct_scalar(node)
    return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))


def _yaml_float(loader: Any, node: Any) -> float:
    return float(loader.construct_scalar(node).lower().replace(".inf", "inf").replace(".nan", "nan"))
