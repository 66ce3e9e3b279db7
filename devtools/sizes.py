"""Counts what a person has to know and to read: options of specs, flags and commands, lines of code."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping
from typing import Final

BASE: Final = "raysweep.documents.base.SpecModel"
_LAYOUT: Final = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    }
)


def code_lines(text: str, tree: ast.Module) -> int:
    """The number of lines of a source that are neither empty, nor comments, nor docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and type(node.value.value) is str
        ):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def options(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    """The fields of each model of a spec, by the name of the class that declares them."""
    classes = {f"{module}.{node.name}": node for module, tree in trees.items() for node in _classes(tree)}
    imported = {module: _imported(tree) for module, tree in trees.items()}
    bases = {
        name: set(_bases(node, name, imported[name.rpartition(".")[0]])) for name, node in classes.items()
    }
    models = {BASE}
    while more := {name for name, each in bases.items() if each & models} - models:
        models |= more
    for name in sorted(models & classes.keys()):
        yield from (f"{name}.{field}" for field in _fields(classes[name]))


def flags(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    """The declarations of options and arguments of the command line."""
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("typer.Option", "typer.Argument"):
                yield f"{module}:{node.lineno}"


def commands(trees: Mapping[str, ast.Module]) -> Iterator[str]:
    """The functions that are commands of the command line."""
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and any(map(_is_command, node.decorator_list)):
                yield f"{module}.{node.name}"


def _is_command(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).startswith("app.command(")


def _classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    yield from (node for node in tree.body if isinstance(node, ast.ClassDef))


def _bases(node: ast.ClassDef, name: str, imported: Mapping[str, str]) -> Iterator[str]:
    """The full names of the classes that a class derives from."""
    module = name.rpartition(".")[0]
    for base in node.bases:
        plain = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
        yield imported.get(plain, f"{module}.{plain}")


def _imported(tree: ast.Module) -> dict[str, str]:
    """The full name of each name that a module imports from another."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """The annotated attributes of a class that are neither private nor its own."""
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            of_class = ast.unparse(line.annotation).startswith(("ClassVar", "Final"))
            if not of_class and not line.target.id.startswith("_"):
                yield line.target.id
