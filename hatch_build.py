"""The README as an index shows it, apart from its repository: its links are absolute, or plain text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"!?\[([^\]]*)\]\((?!https?://|#|mailto:)([^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):
    """Fills in `readme`; `links` of its table in pyproject.toml is where relative links lead."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        shown = readme_for_index(text, self.config.get("links", ""))
        metadata["readme"] = {"content-type": "text/markdown", "text": shown}


def readme_for_index(text: str, links: str) -> str:
    """The text with relative links below `links`; without that they become their text, pictures nothing."""
    if links:
        return re.sub(_LINK, lambda found: f"{found[0][: found[0].rindex('(')]}({links}{found[2]})", text)
    return re.sub(_LINK, lambda found: "" if found[0].startswith("!") else found[1], text)
