"""The words of a search space: which nodes of a normalised space are domains, and the keys beside a word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from raysweep.space.bounds import NUMERIC

LISTS: Final = ("choice", "grid_search")
VOCABULARY: Final[tuple[str, ...]] = (*NUMERIC, *LISTS, "simplex", "const", "sample_from")
WORDS: Final = frozenset(VOCABULARY)
PRIOR: Final = "prior"
BESIDE: Final[Mapping[str, tuple[str, ...]]] = {
    "simplex": ("min", "step"),
    "choice": (PRIOR,),
    **{word: (PRIOR,) for word in NUMERIC if "randn" not in word},
}
"""The keys that a domain may have beside its word; a word that is not here has none."""


def word_of(node: Any) -> str | None:
    """The word of the domain that a node of a space is; None: it is no domain."""
    if type(node) is not dict and not isinstance(node, Mapping):
        return None
    words = WORDS.intersection(node)
    if len(words) != 1:
        return None
    (word,) = words
    if len(node) == 1:
        return word
    beside = BESIDE.get(word, ())
    return word if all(key == word or key in beside for key in node) else None
