"""The direction of a metric: whether less or more of it is better."""

from __future__ import annotations

from typing import Final, Literal

Mode = Literal["min", "max"]
MODES: Final = ("min", "max")
