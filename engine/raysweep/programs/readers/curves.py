"""Names the curves of TensorBoard writers: a tag is a metric's name as long as one writer writes it.

A tag in several folders is several curves, as TensorBoard shows them: each is named by its folder, without
what all of these folders have in common. Of several writers at once in one folder, the second and later ones
are numbered.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from raysweep.errors import ProgramFailedError
from raysweep.programs.doubts import Doubts
from raysweep.programs.readers.events import Scalar

STEP: Final = "step"


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


class Curves:
    """The tags of all event files of an attempt."""

    def __init__(self, doubts: Doubts, ranked: Collection[str] = ()) -> None:
        self._doubts = doubts
        self._ranked = ranked
        self._tags: dict[str, dict[str, _Folder]] = {}
        self._plain: dict[str, tuple[str, str]] = {}
        """The folder and the file of each tag that ranks trials and was a metric by its own name."""

    def add(self, scalar: Scalar, folder: str, file: str) -> None:
        """Take note of a value, in the order of time.

        Raises ProgramFailedError: The trial was ranked by a tag that proves to be several curves.
        """
        folders = self._tags.setdefault(scalar.tag, {})
        is_new = folder not in folders
        found = folders.setdefault(folder, _Folder())
        was_shared = found.is_shared
        found.add(file, scalar.wall_time)
        if is_new and len(folders) > 1:
            names = sorted(self.name_of(scalar.tag, each, "") for each in folders)
            self._doubts.say(f"the tag {scalar.tag!r} is written in several folders: its metrics are {names}")
        if found.is_shared and not was_shared:
            second = self.name_of(scalar.tag, folder, max(found.writers, key=found.writers.__getitem__))
            text = f"the tag {scalar.tag!r} is written by several writers at once in one folder"
            self._doubts.say(f"{text}: that of a later one is {second!r}")
        self._check(scalar.tag)

    def _check(self, tag: str) -> None:
        if tag in self._plain and self.name_of(tag, *self._plain[tag]) != tag:
            names = sorted({self.name_of(tag, *each) for each in self._writers_of(tag)})
            raise ProgramFailedError(
                f"{self._doubts.source}: the metric {tag!r} was one curve and is several by now;"
                f" rank by one of them: {', '.join(names)}"
            )

    def _writers_of(self, tag: str) -> list[tuple[str, str]]:
        return [(folder, file) for folder, found in self._tags[tag].items() for file in found.writers]

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
        folders = self._tags[tag]
        own = os.path.relpath(folder, os.path.commonpath(folders) or ".") if len(folders) > 1 else "."
        name = tag if own == "." else f"{own}/{tag}"
        if own != "." and name in self._tags:
            name = f"{own}:{tag}"
        if name == STEP:
            name = f"scalars/{tag}"
            self._doubts.say(f"the tag {tag!r} is the metric {name!r}: {STEP!r} is the step of the event")
        found = folders[folder]
        number = found.writers.get(file, 0) if found.is_shared else 0
        return f"{name}#{number + 1}" if number else name
