"""The code of a trainable: a digest of its source, by which a change can be told. Imports no user code."""

from __future__ import annotations

import ast
import hashlib
import importlib.machinery
import linecache
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from raysweep.documents.code.trainable import PYTHON_ONLY, digest_of_code, split_reference
from raysweep.documents.code.tune_objects import unwrapped
from raysweep.specs.trial.program import commands_of

if TYPE_CHECKING:
    from raysweep.specs.sweep import SweepSpec
    from raysweep.specs.train import TrainSpec

_MAX_SCRIPT_BYTES: Final = 16 * 1024 * 1024
"""The largest script; a larger file is data."""


def code_digest(trainable: str | Callable[..., Any]) -> str:
    """A digest of a trainable's own code, the same for a script's function and for its import path.

    Of a function or class in a file it covers its definition, without comments and layout; of what no file
    defines, the compiled code. What it calls is not covered. Empty where there is nothing to read.
    """
    if isinstance(trainable, str):
        if trainable.startswith(PYTHON_ONLY):
            return ""
        module, qualname = split_reference(trainable)
        return _of_source(_file_of(module), qualname)
    trainable = unwrapped(trainable)
    module, qualname = getattr(trainable, "__module__", ""), getattr(trainable, "__qualname__", "")
    found = _of_source(_file_of(module), qualname) if module and qualname else ""
    version = "{}.{}".format(*sys.version_info[:2])
    return found or f"compiled-{version}:{digest_of_code(trainable)}"


def code_digest_of(spec: SweepSpec | TrainSpec) -> str:
    """The digest of what a spec runs: its trainable; of a command, the files that it names here.

    Programs on PATH are not covered. Empty where there is nothing to read.
    """
    if spec.command is None:
        return code_digest(spec.trainable)
    digest, is_empty = hashlib.blake2b(digest_size=8), True
    commands = commands_of(spec.command, spec.program).values()
    for item in (item for command in commands for item in command):
        path = os.path.expanduser(item)
        if not os.path.isfile(path) or os.path.getsize(path) > _MAX_SCRIPT_BYTES:
            continue
        with open(path, "rb") as file:
            digest.update(item.encode() + b"\0" + hashlib.blake2b(file.read(), digest_size=8).digest())
        is_empty = False
    return "" if is_empty else f"program:{digest.hexdigest()}"


def is_other_code(was: str, now: str) -> bool:
    """True if two digests are of two codes. Digests that cannot be compared count as the same."""
    return was != now and bool(was and now) and was.partition(":")[0] == now.partition(":")[0]


def _of_source(file: str, qualname: str) -> str:
    if not file or "<" in qualname:  # <locals>, <lambda>: several may have this name
        return ""
    linecache.checkcache(file)
    try:
        body: Sequence[ast.AST] = ast.parse("".join(linecache.getlines(file))).body
    except (SyntaxError, ValueError):
        return ""
    found: ast.AST | None = None
    for part in qualname.split("."):
        found = next((node for node in _definitions(body) if node.name == part), None)
        if found is None:
            return ""
        body = found.body
    assert found is not None
    return f"source:{hashlib.blake2b(ast.unparse(found).encode(), digest_size=8).hexdigest()}"


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _definitions(body: Sequence[ast.AST]) -> Iterator[_Definition]:
    """The last definition of a name is the one that counts."""
    return (node for node in reversed(body) if isinstance(node, _Definition))


def _file_of(module: str) -> str:
    """The source file of a module; empty where that is not found without importing anything."""
    loaded = sys.modules.get(module)
    if loaded is not None:
        return _source(getattr(loaded, "__file__", None))
    path: Sequence[str] | None = None
    file: str | None = None
    parts = module.split(".")
    for count, part in enumerate(parts, start=1):
        spec = _find(".".join(parts[:count]), path)
        file = spec.origin if spec is not None else None
        if spec is not None and file is not None:
            path = spec.submodule_search_locations or ()
        else:
            # A namespace package: only who imports its parent is told its path.
            roots = (os.path.join(root, part) for root in (sys.path if path is None else path))
            path = [root for root in roots if os.path.isdir(root)]
    return _source(file)


def _find(name: str, path: Sequence[str] | None) -> importlib.machinery.ModuleSpec | None:
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, path)
        except Exception:  # noqa: BLE001  a finder of another package: then the code is not known
            return None
        if spec is not None:
            return spec
    return None


def _source(file: str | None) -> str:
    return file if file and file.endswith(".py") and os.path.exists(file) else ""
