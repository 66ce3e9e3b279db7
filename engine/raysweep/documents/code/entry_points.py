"""Classes that installed packages offer by a name: entry points of the groups `raysweep.schedulers`, ….

A name becomes the import path of its class when a spec is parsed, and the path is stored: a resume, and a
machine without the package, read the spec as if it named the class by its path. Nothing is imported here.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Final

from raysweep.documents.code.trainable import check_reference
from raysweep.documents.validation import Problem

GROUPS: Final = {
    "scheduler": "raysweep.schedulers",
    "search": "raysweep.searchers",
    "callbacks": "raysweep.callbacks",
    "registry": "raysweep.registries",
}
"""The group of entry points of each field that takes a class."""


@dataclass(frozen=True, slots=True)
class Source:
    """One entry point."""

    name: str
    path: str
    """`module:Class`, as the package wrote it."""
    package: str
    """The package and its version: `my-policies 0.1.0`."""

    def __str__(self) -> str:
        return f"{self.name} of {self.package}"


def sources(field: str) -> tuple[Source, ...]:
    """Sources for a field in installed packages, by name and package; empty for a field without a group."""
    return _read(GROUPS[field], tuple(sys.path)) if field in GROUPS else ()


def find_class(field: str, name: str) -> str | None:
    """The import path of the class of this name; None: no package offers one.

    Raises:
        Problem: Several packages do, or what is offered is not an import path.
    """
    found = [each for each in sources(field) if each.name == name]
    if not found:
        return None
    if len(found) > 1:
        offers = " and ".join(f"{each.package} ({each.path})" for each in found)
        problem = f"several packages offer {name!r}: {offers}"
        raise Problem(problem, f'name the class: "{found[0].path}", or uninstall one of them')
    try:
        check_reference(found[0].path)
    except Problem as problem:
        text = f"the entry point {found[0]} is {found[0].path!r}: {problem}"
        raise Problem(text, "correct it in that package, or uninstall it") from None
    return found[0].path


def source_of(field: str, path: str) -> Source | None:
    """The entry point that leads to a class; None: it is named by its path alone."""
    return next((each for each in sources(field) if each.path == path), None)


@lru_cache(maxsize=16)
def _read(group: str, path: tuple[str, ...]) -> tuple[Source, ...]:
    """`path`: of modules, so that what is installed while a process runs is found once that has changed."""
    found = {
        Source(each.name, each.value.partition("[")[0].strip(), f"{each.dist.name} {each.dist.version}")
        for each in entry_points(group=group)
        if each.dist is not None
    }
    return tuple(sorted(found, key=lambda each: (each.name, each.package)))
