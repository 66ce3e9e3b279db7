"""A registry of the user's own, which notes what it is given."""

from __future__ import annotations

from typing import Any

from raysweep.hooks.model_registry import ModelRegistry, Release


class Book(ModelRegistry):
    """A registry of the user's own."""

    releases: list[Release] = []  # noqa: RUF012  what all of them were given
    error: Exception | None = None

    def __init__(self, options: Any, setup: Any) -> None:
        pass

    def make_champion(self, release: Release) -> str:
        """Note it."""
        if self.error is not None:
            raise self.error
        self.releases.append(release)
        return f"v-{release.sweep_id}"


class SecondBook(Book):
    """Another registry."""


OWN = {"tests.unit.runs.across_runs.book:Book": {}}
