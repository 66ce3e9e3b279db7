"""Texts from outside, with secrets taken out before they are shown or stored."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import SecretStr

SHORTEST = 4
"""Shorter values than this are words of everyday texts, and are left alone."""
PLACEHOLDER = "**********"


class Scrubber:
    """Replaces secrets in texts. Its own repr shows none."""

    __slots__ = ("_secrets",)

    def __init__(self, secrets: Iterable[SecretStr | None] = ()) -> None:
        self._secrets = tuple(secret for secret in secrets if secret is not None)

    def __repr__(self) -> str:
        return f"Scrubber({len(self._secrets)} secrets)"

    def clean(self, text: str) -> str:
        """The text with each secret replaced, the longest first: one may be part of another."""
        values = (secret.get_secret_value().strip() for secret in self._secrets)
        for value in sorted((each for each in values if len(each) >= SHORTEST), key=len, reverse=True):
            text = text.replace(value, PLACEHOLDER)
        return text

    def with_more(self, secrets: Iterable[SecretStr]) -> Scrubber:
        """One that knows these too."""
        return Scrubber((*self._secrets, *secrets))
