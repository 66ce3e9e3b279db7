"""Finds snippets of the documentation that are broken.

`make check` runs it. Blocks of Python must compile, and names that they import from raysweep, or read from
`rs`, must be there. Blocks of YAML that are specs, or parts of one, must be valid. Commands of raysweep must
have the options that they are given. Other tests run what takes longer (`tests/users`, the tutorial).
"""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import typer
from typer.exceptions import TyperException

import raysweep as rs
from devtools.words import Finding, files
from raysweep.cli.app import app
from raysweep.documents.text import read_yaml
from raysweep.errors import SpecError
from raysweep.specs import SweepSpec, TrainSpec
from raysweep.specs.document import SpecDocument
from raysweep.specs.pipeline import PipelineSpec

_SWEEP: Final = {
    "name": "s",
    "param_space": {"x": {"uniform": [0, 1]}},
    "metric": "m",
    "mode": "min",
    "num_samples": 100,
}
_CODE: Final = {"trainable": "m:f"}
BASES: Final[dict[type[SpecDocument], dict[str, Any]]] = {
    SweepSpec: _SWEEP,
    TrainSpec: {},
    PipelineSpec: {"sweep": _SWEEP | _CODE, "gate": {}, "train": _CODE},
}
"""The other fields of a spec, to complete a part of it."""
_BLOCK: Final = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_NO_PARAMETER: Final = re.compile(r"'(\w+)' is not in param_space")
_CALL: Final = re.compile(r"^ *(?:\$ )?raysweep ((?:.*\\\n)*.*)$", re.MULTILINE)
_ENDS: Final = frozenset({"|", ">", "&&", ";", "&"})


def find(root: Path) -> list[Finding]:
    """All broken snippets of a checkout."""
    pages = (path for path in files(root) if path.suffix == ".md")
    return [
        found
        for path in pages
        for found in of_page(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
    ]


def of_page(name: str, text: str) -> Iterator[Finding]:
    """The broken snippets of one page."""
    for block in _BLOCK.finditer(text):
        language, body = block[2], block[3]
        line = text.count("\n", 0, block.start(3)) + 1
        of_language = {
            "python": python,
            "yaml": yaml,
            "": commands,
            "bash": commands,
            "console": commands,
        }.get(language)
        for offset, problem in of_language(body) if of_language else ():
            yield Finding(name, line + offset, problem, "mend the snippet")


def python(body: str) -> Iterator[tuple[int, str]]:
    """The faults of a block of Python, with their lines."""
    try:
        tree = _parse(body)
    except SyntaxError as error:
        yield (error.lineno or 1) - 1, f"not Python: {error.msg}"
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "rs":
            if not hasattr(rs, node.attr):
                yield node.lineno - 1, f"raysweep has no {node.attr}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "raysweep":
            try:
                module = importlib.import_module(node.module or "")
            except ModuleNotFoundError:
                yield node.lineno - 1, f"there is no module {node.module}"
                continue
            yield from (
                (node.lineno - 1, f"{node.module} has no {alias.name}")
                for alias in node.names
                if not hasattr(module, alias.name)
            )


def _parse(body: str) -> ast.AST:
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    try:
        tree: ast.AST = compile(body, "snippet", "exec", flags)
    except IndentationError:  # perhaps lines of a mapping
        tree = compile("{" + body + "}", "snippet", "exec", flags)
    return tree


def yaml(body: str) -> Iterator[tuple[int, str]]:
    """The faults of a block of YAML: of a spec its fields, of other documents the syntax."""
    try:
        given = read_yaml(body)
        kind = kind_of(given) if isinstance(given, Mapping) else None
        if kind is not None:
            check(given, kind)
    except SpecError as error:
        yield 0, str(error)


def kind_of(given: Mapping[str, Any]) -> type[SpecDocument] | None:
    """The kind of spec that has most of the fields, if that is half of them or more."""
    shares = {kind: len(given.keys() & kind.model_fields.keys()) / max(1, len(given)) for kind in BASES}
    best = max(shares, key=lambda kind: shares[kind])
    return best if shares[best] >= 0.5 else None


def check(given: Mapping[str, Any], kind: type[SpecDocument]) -> None:
    """Validate a part of a spec, with the fields that each must have. Raises SpecError."""
    code = {} if kind is PipelineSpec or "command" in given else _CODE
    files_of = {
        name for name in ("sweep", "train") if kind is PipelineSpec and isinstance(given.get(name), str)
    }
    whole = BASES[kind] | code | {name: value for name, value in given.items() if name not in files_of}
    while True:
        try:
            kind.from_any(whole)
            return
        except SpecError as error:
            # A part that refers to parameters of a space which the page does not show.
            missing = _NO_PARAMETER.search(str(error))
            if missing is None or "param_space" in given:
                raise
            whole = whole | {"param_space": whole["param_space"] | {missing[1]: {"uniform": [0, 1]}}}


def commands(body: str) -> Iterator[tuple[int, str]]:
    """The faults of a block of commands: those of raysweep, by their names and options."""
    known = typer.main.get_command(app)
    for call in _CALL.finditer(body):
        number = body.count("\n", 0, call.start(1))
        try:
            words = shlex.split(call[1].replace("\\\n", " "), comments=True)
        except ValueError as error:
            yield number, f"raysweep: {error}"
            continue
        yield from ((number, problem) for problem in _problems(known, words))


def _problems(known: Any, words: list[str]) -> Iterator[str]:
    words = words[: next((at for at, word in enumerate(words) if word in _ENDS), len(words))]
    if words[:1] == ["emit"] or not words:
        return
    command = known.commands.get(words[0])
    if command is None and not words[0].startswith("-"):
        yield f"raysweep has no command {words[0]}"
    elif command is not None:
        context = command.context_class(command, info_name=words[0])
        try:
            command.make_parser(context).parse_args(words[1:])
        except TyperException as error:
            yield f"raysweep {words[0]}: {error.format_message()}"


def main(argv: list[str] | None = None) -> int:
    """Print the broken snippets; 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m devtools.snippets", description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path())
    found = find(parser.parse_args(argv).root.resolve())
    for each in found:
        print(each)  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
