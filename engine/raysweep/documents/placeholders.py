"""Placeholders in text: `{name}` is replaced, `{{name}}` is the text `{name}`, all other braces stay.

`${NAME}` is a variable of a shell and no placeholder. JSON in a text needs no escapes: what is not a name in
braces stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_NAME: Final = r"[A-Za-z_][\w./-]*"
_TOKEN: Final = re.compile(rf"\{{\{{({_NAME})\}}\}}|(?<!\$)\{{({_NAME})\}}")


def names_in(text: str) -> list[str]:
    """The placeholders of a text, in their order."""
    return [found[2] for found in _TOKEN.finditer(text) if found[2] is not None]


def fill(text: str, value_of: Callable[[str], str]) -> str:
    """The text with the value of each placeholder; `{{name}}` becomes `{name}`."""
    return _TOKEN.sub(lambda found: value_of(found[2]) if found[2] is not None else f"{{{found[1]}}}", text)


def is_placeholder(text: str, name: str) -> bool:
    """True if the text is this placeholder and nothing else."""
    return text == f"{{{name}}}"
