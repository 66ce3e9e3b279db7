"""Checks that the search of the built documentation finds what people look for.

`make check` runs it after the build. The search of the site looks for words in the titles and texts of
sections, titles first; so does this, over the same index.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

INDEX: Final = Path("site/search/search_index.json")
FINDS: Final = {
    "resume": "guides/going-on/",
    "GPU out of memory": "guides/troubleshooting/#gpu-out-of-memory",
    "champion": "guides/nightly/#champions",
    "deadline": "guides/nightly/#the-deadline",
    "retry": "guides/going-on/",
}
"""Searches of people, and a section or page that must be among the first results."""
FIRST: Final = 10


def found(words: str, sections: Sequence[Mapping[str, str]]) -> list[str]:
    """The places of the first sections that have all the words; most of them in the title come first."""
    wanted = words.lower().split()
    ranked = sorted(
        (
            (-sum(word in title for word in wanted), -sum(text.count(word) for word in wanted), place)
            for title, text, place in (
                (each["title"].lower(), each["text"].lower(), each["location"]) for each in sections
            )
            if all(word in title or word in text for word in wanted)
        )
    )
    return [place for *_, place in ranked[:FIRST]]


def missing(sections: Sequence[Mapping[str, str]]) -> list[str]:
    """The searches that do not find their page, a line each."""
    return [
        f"search: {words!r} does not find {place}; name it in the section's title or text"
        for words, place in FINDS.items()
        if not any(each.startswith(place) for each in found(words, sections))
    ]


def main(index: Path = INDEX) -> int:
    """Print what the search does not find; 1 if there is anything."""
    lines = missing(json.loads(index.read_text(encoding="utf-8"))["docs"])
    for line in lines:
        print(line)  # noqa: T201
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
