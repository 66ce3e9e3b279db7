"""The words of a search space: which nodes of a normalised space are domains, and the keys beside a word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from raysweep.space.bounds import NUMERIC

LISTS: Final = ("choice", "grid_search")
VOCABULARY: Final[tuple[str, ...]] = (*NUMERIC, *LISTS, "simplex", "const", "sample_from")
PRIOR: Final = "prior"
BESIDE: Final[Mapping[str, tuple[str, ...]]] = {
    "simplex": ("min", "step"),
    "choice": (PRIOR,),
    **{word: (PRIOR,) for word in NUMERIC if "randn" not in word},
}
"""The keys that a domain may have beside its word; a word that is not here has none."""


def word_of(node: Any) -> str | None:
    """The word of the domain that a node of a space is; None: it is no domain."""
    if not isinstance(node, Mapping):
        return None
    words = [key for key in node if key in VOCABULARY]
    if len(words) != 1:
        return None
    beside = BESIDE.get(words[0], ())
    return words[0] if all(key == words[0] or key in beside for key in node) else None
