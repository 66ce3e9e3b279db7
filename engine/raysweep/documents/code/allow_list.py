"""The allow-list of modules that specs may import from (`RAYSWEEP_TRAINABLES`).

A spec names what runs: `trainable`, a `sample_from`, a scheduler or searcher by import path. Where others may
fill in parts of one (a form, a parameter), the list says what those can be at most. Every process that
imports by name holds to its own variable: the driver on the cluster, which also hands it to its workers, and
the side that submits. Objects that a program passes are its own code, and are not looked up.

Entries are separated by commas or white space: `my_project` for that module and all modules in it,
`my_project.train:fit` for that one name. Not set, or empty: everything may be named.
"""

from __future__ import annotations

import functools
import os
import re
import types
from typing import Any, Final

from raysweep.errors import SpecError, TrainableImportError

VARIABLE: Final = "RAYSWEEP_TRAINABLES"
_OWN: Final = ("raysweep.judge.trial:evaluate_model",)
"""Code of raysweep itself that runs nothing but what the spec names, which is looked up here in turn."""
_ENTRY: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*(\.[^\W\d]\w*)*)?")


def is_limited() -> bool:
    """True if there is a list in this process."""
    return bool(os.environ.get(VARIABLE, "").strip())


def check_named(reference: str, field: str) -> None:
    """See, before anything is imported, that a reference may be: `module:name`, or `module.name`.

    Raises: TrainableImportError for one that is not in the list; SpecError for a list that cannot be read.
    """
    if not is_limited() or _is_listed(reference):
        return
    module, colon, _ = reference.partition(":")
    # Without a colon it is not known where the module ends: nothing outside the listed ones is tried.
    parts = reference.split(".")
    modules = [module] if colon else [".".join(parts[:length]) for length in range(1, len(parts))]
    if not any(_is_allowed(each) for each in modules):
        raise _refusal(reference, modules[-1], field)


def check_found(reference: str, module: str, found: Any, field: str) -> None:
    """See that what a reference led to is code of the list: a listed module may have imported another's.

    Raises: TrainableImportError.
    """
    if not is_limited() or _is_listed(reference):
        return
    for name in (module, _home(found)):
        if not _is_allowed(name):
            raise _refusal(reference, name, field)


def _home(found: Any) -> str:
    """The module whose code it is."""
    while isinstance(found, functools.partial):
        found = found.func
    if isinstance(found, types.ModuleType):
        return found.__name__
    return str(getattr(found, "__module__", None) or type(found).__module__)


def _is_listed(reference: str) -> bool:
    return reference in _OWN or reference in _entries(os.environ.get(VARIABLE, ""))


def _is_allowed(module: str) -> bool:
    entries = _entries(os.environ.get(VARIABLE, ""))
    return any(module == entry or module.startswith(f"{entry}.") for entry in entries)


@functools.lru_cache(maxsize=8)
def _entries(text: str) -> tuple[str, ...]:
    entries = tuple(entry for entry in re.split(r"[,\s]+", text) if entry)
    for entry in entries:
        if not _ENTRY.fullmatch(entry):
            fix = "write modules or module:function, separated by commas, such as my_project"
            raise SpecError(VARIABLE, f"{entry!r} is not a module", fix)
    return entries


def _refusal(reference: str, module: str, field: str) -> TrainableImportError:
    allowed = ", ".join(_entries(os.environ[VARIABLE]))
    where = f" is code of {module!r}, which" if not reference.startswith(module) else ""
    return TrainableImportError(
        field,
        f"{reference!r}{where} is not among what {VARIABLE} allows here ({allowed})",
        f"name one of these, or add {module!r} to {VARIABLE} where this runs",
    )
