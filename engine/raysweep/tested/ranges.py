"""The lowest and highest tested version of each. Written by `python -m devtools.versions`."""

from collections.abc import Mapping
from typing import Final

RANGES: Final[Mapping[str, tuple[str, str]]] = {}
