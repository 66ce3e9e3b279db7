"""Names the curves of TensorBoard writers: a tag is a metric's name as long as one writer writes it.

A tag in several folders is several curves, as TensorBoard shows them: each is named by its folder, without
what all of these folders have in common. Of several writers at once in one folder, the second and later ones
are numbered.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from raysweep.errors import ProgramFailedError
from raysweep.programs.doubts import Doubts
from raysweep.programs.readers.events import Scalar

STEP: Final = "step"
_SHOWN: Final = 4
"""The number of metrics of a tag that a note names."""
_Curve = tuple[str, str, int]
"""A tag, its folder, and the number of its writer."""


@dataclass(slots=True)
class _Folder:
    """One tag in one folder."""

    writers: dict[str, int] = field(default_factory=dict)
    """The files that have it, numbered in the order in which they began."""
    last: str = ""
    wall_time: float = 0.0
    is_shared: bool = False
    """Several writers write at once; else each begins after the last one."""

    def add(self, file: str, wall_time: float) -> None:
        if self.last not in ("", file) and (file in self.writers or wall_time < self.wall_time):
            self.is_shared = True
        self.writers.setdefault(file, len(self.writers))
        self.last, self.wall_time = file, wall_time


@dataclass(slots=True)
class _Tag:
    """One tag in all folders that have it, in the order in which they came up."""

    folders: dict[str, _Folder] = field(default_factory=dict)
    common: str = ""
    """The path that the folders have in common."""
    is_told: bool = True
    """True if the folders are named in a note."""

    def folder(self, name: str) -> _Folder:
        """A folder of the tag, perhaps a new one."""
        if name not in self.folders:
            self.common = os.path.commonpath([self.common or name, name]) or "."
            self.is_told = not self.folders
            self.folders[name] = _Folder()
        return self.folders[name]

    def own(self, folder: str) -> str:
        """The folder without what all have in common; "." for the only one."""
        return os.path.relpath(folder, self.common) if len(self.folders) > 1 else "."


class Curves:
    """The tags of all event files of an attempt. A value costs the same however many folders there are."""

    def __init__(self, doubts: Doubts, ranked: Collection[str] = ()) -> None:
        self._doubts = doubts
        self._ranked = ranked
        self._tags: dict[str, _Tag] = {}
        self._names: dict[_Curve, str] = {}
        self._curves: dict[str, _Curve] = {}
        """By its metric's name."""
        self._plain: dict[str, tuple[str, str]] = {}
        """The folder and the file of each tag that ranks trials and was a metric by its own name."""

    def add(self, scalar: Scalar, folder: str, file: str) -> None:
        """Take note of a value, in the order of time.

        Raises ProgramFailedError: The trial was ranked by a tag that proves to be several curves.
        """
        tag = self._tags.get(scalar.tag)
        if tag is None:
            tag = self._tags[scalar.tag] = _Tag()
            self._forget([self._curves[scalar.tag]] if scalar.tag in self._curves else [])
        before = tag.common, len(tag.folders) > 1
        found = tag.folder(folder)
        if (tag.common, len(tag.folders) > 1) != before:
            self._forget([curve for curve in self._names if curve[0] == scalar.tag])
        was_shared = found.is_shared
        found.add(file, scalar.wall_time)
        if found.is_shared and not was_shared:
            second = self.name_of(scalar.tag, folder, max(found.writers, key=found.writers.__getitem__))
            text = f"the tag {scalar.tag!r} is written by several writers at once in one folder"
            self._doubts.say(f"{text}: that of a later one is {second!r}")
        self._check(scalar.tag)

    def say(self) -> None:
        """Note the tags that are in more folders by now."""
        for tag, found in self._tags.items():
            if not found.is_told:
                found.is_told = True
                names = sorted(self.name_of(tag, each, "") for each in islice(found.folders, _SHOWN))
                more = " and more" if len(found.folders) > _SHOWN else ""
                text = f"the tag {tag!r} is written in several folders: its metrics are {names}{more}"
                self._doubts.say(text)

    def _forget(self, curves: Collection[_Curve]) -> None:
        for curve in curves:
            del self._curves[self._names.pop(curve)]

    def _check(self, tag: str) -> None:
        if tag in self._plain and self.name_of(tag, *self._plain[tag]) != tag:
            folders = islice(self._tags[tag].folders.items(), _SHOWN)
            each = ((folder, file) for folder, found in folders for file in found.writers)
            names = sorted({self.name_of(tag, folder, file) for folder, file in islice(each, _SHOWN)})
            raise ProgramFailedError(
                f"{self._doubts.source}: the metric {tag!r} was one curve and is several by now;"
                f" rank by one of them: {', '.join(names)}"
            )

    def names_of(self, held: Mapping[tuple[str, str, str], float]) -> dict[str, float]:
        """The values of a record, by tag, folder and file, as metrics."""
        found: dict[str, float] = {}
        for (tag, folder, file), value in held.items():
            name = self.name_of(tag, folder, file)
            if name == tag and tag in self._ranked:
                self._plain[tag] = folder, file
            found[name] = value
        return found

    def name_of(self, tag: str, folder: str, file: str) -> str:
        """The metric of a tag."""
        found = self._tags[tag].folders[folder]
        curve = tag, folder, found.writers.get(file, 0) if found.is_shared else 0
        if curve not in self._names:
            name = self._names[curve] = self._name(curve)
            self._curves[name] = curve
        return self._names[curve]

    def _name(self, curve: _Curve) -> str:
        """A name that no other curve has; that of a tag without a folder goes before others."""
        tag, folder, number = curve
        own = self._tags[tag].own(folder)
        if own == "." and not number and tag != STEP:
            return tag
        end = f"#{number + 1}" if number else ""
        name = f"{tag}{end}" if own == "." else f"{own}/{tag}{end}"
        if name == STEP:
            name = f"scalars/{tag}"
            self._doubts.say(f"the tag {tag!r} is the metric {name!r}: {STEP!r} is the step of the event")
        colons = ""
        while name in self._tags or name in self._curves:
            colons += ":"
            name = f"{own}{colons}{tag}{end}"
        return name
