"""A console on which text of others stays text: what would turn, hide or move text is shown as a box."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from raysweep.documents.quoting import boxed


class TextConsole(Console):
    """Rich's console where brackets are brackets and nothing printed is a command for the terminal."""

    def __init__(self, **options: Any) -> None:
        """Args: `options`: Rich's."""
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of Rich; its own movements of the cursor are no text and stay."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(boxed(segment.text), segment.style)
