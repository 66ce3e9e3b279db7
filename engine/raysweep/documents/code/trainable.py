"""Trainables as references and back: `"package.module:function"`."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import os
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from raysweep.documents.code import user_code
from raysweep.documents.code.allow_list import check_found, check_named
from raysweep.documents.code.tune_objects import cells_of, has_parameters, unwrapped, without_resources
from raysweep.documents.validation import Problem, nearest, show
from raysweep.errors import TrainableImportError, one_line

PYTHON_ONLY = "<python>"
_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*|\.[^\W\d]\w*)(\.[^\W\d]\w*)*")


def trainable_ref(obj: str | Callable[..., Any]) -> str:
    """The reference of a trainable: `module:qualname` where that leads back to the same object.

    For lambdas, closures, partials and what `__main__` defines it is `<python> qualname#digest`; the digest
    covers the code, its constants, defaults and closed-over plain values, but neither names nor line numbers.
    What `tune.with_parameters` wraps has such a name, too, that of the function or class in it; what it was
    given is not covered.
    """
    if isinstance(obj, str):
        return obj
    if has_parameters(obj):
        obj = unwrapped(obj)
        return f"{PYTHON_ONLY} {getattr(obj, '__qualname__', type(obj).__qualname__)}#{digest_of_code(obj)}"
    obj = without_resources(obj)
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    if module and name and module != "__main__" and _reaches(module, name, obj):
        return f"{module}:{name}"
    shown = name or type(obj).__qualname__
    return f"{PYTHON_ONLY} {shown}#{digest_of_code(obj)}"


def digest_of_code(obj: object) -> str:
    """Ten hex digits over what a callable does; the same in every process of one Python version."""
    digest = hashlib.blake2b(digest_size=5)
    for piece in _pieces(obj, 0):
        digest.update(piece.encode("utf-8", "backslashreplace") + b"\0")
    return digest.hexdigest()


def trainable_name(obj: str | Callable[..., Any]) -> str:
    """The name by which a trainable is told apart: `module:qualname`, whatever its code is.

    What a script defines has the name by which others import it: `train` of `quickstart.py` is
    `quickstart:train`. What no import leads to is named as by `trainable_ref`.
    """
    if is_of_script(obj) and (module := _script_module()):
        return f"{module}:{getattr(obj, '__qualname__', '')}"
    return trainable_ref(obj)


def is_of_script(obj: str | Callable[..., Any]) -> bool:
    """True if it is a function or class of the script, or session, that this process runs.

    Under its name another process would find another copy of it, or none.
    """
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    return not isinstance(obj, str) and module == "__main__" and _reaches(module, name or "", obj)


def _script_module() -> str:
    """The name that the script which this process runs is imported by; empty where it has none."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)  # python -m package.module
    if spec is not None:
        return str(spec.name)
    file = os.path.basename(getattr(main, "__file__", None) or "")
    stem, suffix = os.path.splitext(file)
    return stem if suffix == ".py" and stem.isidentifier() else ""


def are_same(was: str, now: str) -> bool:
    """True if two names may be of one trainable: where one is without a module, the rest decides."""
    if was == now:
        return True
    if not (was.startswith(PYTHON_ONLY) or now.startswith(PYTHON_ONLY)):
        return False
    return _bare(was) == _bare(now)


def _bare(name: str) -> str:
    if name.startswith(PYTHON_ONLY):
        return name.removeprefix(PYTHON_ONLY).strip().split("#")[0]
    return name.partition(":")[2] or name.rpartition(".")[2]


def _reaches(module: str, qualname: str, obj: object) -> bool:
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found is obj


def _pieces(obj: Any, depth: int) -> Iterator[str]:
    """The code of a callable, as text that is the same in every process of one Python version."""
    if depth > 5:
        return
    obj = unwrapped(obj)  # the wrappers of Tune hold addresses of this process
    if isinstance(obj, functools.partial):
        yield "partial"
        for part in (obj.func, *obj.args, *(item for pair in sorted(obj.keywords.items()) for item in pair)):
            yield from _pieces(part, depth + 1)
    elif isinstance(obj, types.MethodType):
        yield from _pieces(obj.__func__, depth + 1)
        yield from _pieces(type(obj.__self__), depth + 1)
    elif isinstance(obj, types.FunctionType):
        yield from _code_pieces(obj.__code__)
        for part in (*(obj.__defaults__ or ()), *cells_of(obj).values()):
            yield from _pieces(part, depth + 1)
    elif isinstance(obj, type):
        yield obj.__qualname__
        for name, member in sorted(vars(obj).items()):
            if isinstance(member, types.FunctionType):
                yield name
                yield from _pieces(member, depth + 1)
    elif isinstance(obj, str | int | float | bool | bytes | types.NoneType):
        yield repr(obj)
    elif isinstance(obj, list | tuple):
        for part in obj:
            yield from _pieces(part, depth + 1)
    else:
        yield from _pieces(type(obj), depth + 1)


def _code_pieces(code: types.CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_pieces(constant)
        elif isinstance(constant, frozenset):
            # Its order depends on the hash seed of the process.
            yield repr(sorted(map(repr, constant)))
        else:
            yield repr(constant)


def check_reference(given: Any, example: str = "package.module:function") -> str | Callable[..., Any]:
    """A callable, or an import path such as `example`, if it can be one. Imports nothing. Raises Problem."""
    if callable(given):
        found: Callable[..., Any] = given
        return found
    write = f'write "{example}"'
    if not isinstance(given, str):
        raise Problem(f"expected an import path or a callable, got {show(given)}", write)
    if given.startswith(f"{PYTHON_ONLY} "):
        return given
    text = given.strip()
    if not text:
        raise Problem("is empty", write)
    if text.endswith(".py") or "/" in text or ".py:" in text:
        module = text.split(".py")[0].strip("./").replace("/", ".")
        name = text.partition(".py:")[2] or "train"
        raise Problem(f"{show(given)} is a file's path, not an import path", f'write "{module}:{name}"')
    if ":" not in text and "." not in text:
        raise Problem(f"{show(given)} names no module", f'write "package.module:{text}"')
    if not _REFERENCE.fullmatch(text):
        raise Problem(f"{show(given)} is not an import path", write)
    return text


def load_trainable(ref: str | Callable[..., Any]) -> Callable[..., Any]:
    """The callable behind `"pkg.mod:fn"` or `"pkg.mod.fn"`; a callable is returned as it is.

    Raises TrainableImportError, which names what could not be imported or is not allowed (see `allow_list`),
    and says what to do.
    """
    return load_function(ref, "trainable")


def load_function(ref: str | Callable[..., Any], field: str) -> Callable[..., Any]:
    """`load_trainable` for any field."""
    if not isinstance(ref, str):
        return ref
    if ref.startswith(PYTHON_ONLY):
        name = ref.removeprefix(PYTHON_ONLY).strip().split("#")[0]
        raise TrainableImportError(
            field,
            f"{name!r} was defined in a script or another function and cannot be imported again",
            "pass the callable itself, or move it into a module and name it module:function",
        )
    try:
        checked = check_reference(ref)
    except Problem as problem:
        raise TrainableImportError(field, str(problem), problem.issues[0].fix) from None
    assert isinstance(checked, str)
    check_named(checked, field)
    module_name, qualname = _split(checked, field)
    found: Any = _import(module_name, field)
    for part in qualname.split("."):
        found = _attribute(found, part, module_name, field)
    check_found(checked, module_name, found, field)
    if not callable(found):
        raise TrainableImportError(
            field,
            f"{ref!r} is a {type(found).__name__}, which cannot be called",
            "name a function or a class",
        )
    loaded: Callable[..., Any] = found
    return loaded


def split_reference(ref: str) -> tuple[str, str]:
    """Module and qualified name as the reference's text has them; nothing is looked up."""
    module, colon, name = ref.partition(":")
    if colon:
        return module, name
    module, _, name = ref.rpartition(".")
    return module, name


def _split(ref: str, field: str) -> tuple[str, str]:
    """Module and qualified name; without a colon, the longest module that there is."""
    module, colon, name = ref.partition(":")
    if colon:
        return module, name
    parts = ref.split(".")
    for length in range(len(parts) - 1, 1, -1):
        if _is_module(".".join(parts[:length]), field):
            return ".".join(parts[:length]), ".".join(parts[length:])
    return (parts[0], ".".join(parts[1:])) if _is_importable(parts[0]) else (".".join(parts[:-1]), parts[-1])


def _is_importable(top: str) -> bool:
    return top in sys.modules or importlib.util.find_spec(top) is not None


def _is_module(name: str, field: str) -> bool:
    if name in sys.modules:
        return True
    try:
        return user_code.call(importlib.util.find_spec, name) is not None
    except ModuleNotFoundError:
        return False
    except Exception as error:  # find_spec runs the parent package's own code
        raise _import_failed(name, error, field) from error


def _import(name: str, field: str) -> types.ModuleType:
    try:
        return user_code.call(importlib.import_module, name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(missing + "."):
            raise TrainableImportError(field, *_not_found(name, missing)) from None
        raise _import_failed(name, error, field) from error
    except Exception as error:  # a module's own code may raise anything
        raise _import_failed(name, error, field) from error


def _import_failed(name: str, error: Exception, field: str) -> TrainableImportError:
    fix = f"fix {name}, or install what it needs"
    if isinstance(error, ModuleNotFoundError) and error.name:
        fix = f"install {error.name!r} here, or fix the import in {name}"
    what = one_line(f"{type(error).__name__}: {error}", 200)
    return TrainableImportError(field, f"importing {name!r} failed with {what}", fix)


def _not_found(name: str, missing: str) -> tuple[str, str]:
    """Problem and fix for a module that is not there."""
    problem = f"no module {missing!r}" + (f" (to import {name!r})" if missing != name else "")
    parent, _, last = missing.rpartition(".")
    if not parent:
        here = os.getcwd()
        is_here = os.path.isdir(os.path.join(here, last)) or os.path.isfile(os.path.join(here, f"{last}.py"))
        if is_here and here not in {os.path.abspath(entry or ".") for entry in sys.path}:
            fix = f"{last!r} is in the current folder, which Python does not search: set PYTHONPATH={here}"
            return problem, fix
        source = os.path.join(here, "src")
        if last in _modules_in(source):
            return problem, f"{last!r} is in src: pip install -e . , or set PYTHONPATH={source}"
        close = nearest(last, _top_level_names())
        return problem, f"did you mean {close!r}?" if close else "install it, or put its folder on PYTHONPATH"
    siblings = _submodules(parent)
    close = nearest(last, siblings)
    return problem, f"did you mean {f'{parent}.{close}'!r}?" if close else f"check what is in {parent!r}"


def _top_level_names() -> list[str]:
    """Modules in the current folder; the whole of sys.path would suggest nonsense."""
    return _modules_in(os.getcwd())


def _submodules(package: str) -> list[str]:
    paths = getattr(sys.modules.get(package), "__path__", ())
    return [name for path in paths for name in _modules_in(path)]


def _modules_in(folder: str) -> list[str]:
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        return []
    stems = [entry.removesuffix(".py") for entry in entries]
    return [stem for stem in stems if stem.isidentifier() and not stem.startswith("_")]


def _attribute(owner: Any, name: str, module: str, field: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        public = [n for n in dir(owner) if not n.startswith("_") and callable(getattr(owner, n, None))]
        close = nearest(name, public)
        where = f"module {module!r}" if isinstance(owner, types.ModuleType) else f"{owner!r}"
        fix = f"did you mean {close!r}?" if close else f"define it there, or name one of {public[:8]}"
        raise TrainableImportError(field, f"{where} has no {name!r}", fix) from None
