"""All mutants there are, and a sample of them that a seed decides."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from tests.mutation import operators, scope

EQUIVALENTS = Path(__file__).with_name("equivalents.toml")


@dataclass(frozen=True)
class Mutant:
    """One module with one change in it."""

    file: str
    line: int
    """Where the change begins, from 1."""
    operator: str
    before: str
    """The lines that change, as they are."""
    after: str
    """… as the mutant has them."""
    code: str
    """The whole module, mutated."""

    @property
    def likeness(self) -> tuple[str, str, str, str]:
        """What names the mutant for as long as its lines stay as they are, wherever they move."""
        return self.file, self.operator, flat(self.before), flat(self.after)


@dataclass(frozen=True)
class Equivalent:
    """A mutant that no test can kill, as it does what the original does."""

    file: str
    operator: str
    before: str
    after: str
    reason: str

    @property
    def likeness(self) -> tuple[str, str, str, str]:
        """As the mutant's."""
        return self.file, self.operator, flat(self.before), flat(self.after)


def equivalents() -> list[Equivalent]:
    """The list that people keep."""
    return [Equivalent(**entry) for entry in tomllib.loads(EQUIVALENTS.read_text()).get("mutant", [])]


def draw(root: Path, files: Collection[str], seed: int) -> Iterator[Mutant]:
    """Every mutant of these files, in an order that the seed decides.

    A mutant's place is a hash of the seed and of its own words: while its line stays as it is, it stays in
    the sample, whatever changes elsewhere.
    """
    found = sorted(_places(root, files, seed), key=lambda placed: placed[0])
    for _, file, change in found:
        before, after = (root / file).read_text(), change.code()
        if after != before:
            yield Mutant(file, change.line, change.operator, *differing(before, after), after)


def _places(root: Path, files: Collection[str], seed: int) -> Iterator[tuple[bytes, str, operators.Change]]:
    for file in files:
        code = (root / file).read_text()
        lines, seen = code.splitlines(), Counter[tuple[str, ...]]()
        for change in operators.changes(code):
            words = (lines[change.line - 1].strip(), *change.likeness)
            seen[words] += 1
            text = repr((seed, Path(file).name, *words, seen[words]))
            yield blake2b(text.encode(), digest_size=16).digest(), file, change


def differing(before: str, after: str) -> tuple[str, str]:
    """The lines in which two texts differ."""
    old, new = before.splitlines(), after.splitlines()
    while old and new and old[0] == new[0]:
        del old[0], new[0]
    while old and new and old[-1] == new[-1]:
        del old[-1], new[-1]
    return "\n".join(old), "\n".join(new)


def flat(text: str) -> str:
    """The text without line breaks and indentation."""
    return " ".join(text.split())


def all_files(root: Path, only: str = "") -> list[str]:
    """The modules in scope whose path has `only` in it."""
    return [file for file in scope.files(root) if only in file]
