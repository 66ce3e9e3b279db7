"""Texts from outside, with secrets taken out before they are shown or stored."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

from pydantic import SecretStr

SHORTEST: Final = 4
"""Shorter values than this are words of everyday texts, and are left alone."""
SHORTEST_LINE: Final = 8
"""The same for a line of a value that has several."""
PLACEHOLDER: Final = "**********"
# A server may repeat what a job was submitted with, to a process that does not know its secrets.
_NAME: Final = r"""(\\*["']env_vars\\*["']\s*:\s*)"""
_TEXT: Final = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
# As plain JSON or Python, whatever the values hold; else up to the last brace that there is, or to the end.
_ENV_VARS: Final = re.compile(
    rf"{_NAME}(?:\{{(?:\s*{_TEXT}\s*:\s*{_TEXT}\s*(?:,|(?=\}})))*\s*\}}|\{{.*\}}|\{{.*$)", re.DOTALL
)


class Scrubber:
    """Replaces secrets in texts, also where they were quoted, escaped or cut into lines; shows none."""

    __slots__ = ("_secrets",)

    def __init__(self, secrets: Iterable[SecretStr | None] = ()) -> None:
        self._secrets = tuple(dict.fromkeys(secret for secret in secrets if secret is not None))

    def __repr__(self) -> str:
        return f"Scrubber({len(self._secrets)} secrets)"

    def clean(self, text: str) -> str:
        """The text with each secret replaced, the longest first: one may be part of another."""
        forms = {form for secret in self._secrets for form in _forms(secret.get_secret_value())}
        for form in sorted(forms, key=len, reverse=True):
            text = text.replace(form, PLACEHOLDER)
        return _ENV_VARS.sub(rf"\1{{{PLACEHOLDER}}}", text)

    def with_more(self, secrets: Iterable[SecretStr]) -> Scrubber:
        """One that knows these too."""
        return Scrubber((*self._secrets, *secrets))


def _forms(secret: str) -> Iterator[str]:
    """The forms of a secret in a text: an answer, a traceback, a page, a URL, a log's line."""
    stripped = secret.strip()
    if len(stripped) < SHORTEST:
        return
    for whole in {secret, stripped}:
        for once in _escaped(whole):
            yield once
            # A JSON answer that quotes a Python error, or the other way round.
            yield from _escaped(once)
    lines = stripped.splitlines()
    if len(lines) > 1:
        yield " ".join(stripped.split())
        for line in lines:
            if len(line.strip()) >= SHORTEST_LINE:
                yield from _escaped(line.strip())


def _escaped(text: str) -> Iterator[str]:
    yield text
    for ascii_only in (True, False):
        yield json.dumps(text, ensure_ascii=ascii_only)[1:-1]
    # Python escapes a single quote only where the text that it stands in has a double one too.
    quoted = repr(text + '"')[1:-2]
    yield quoted
    yield quoted.replace("\\'", "'")
    yield repr(text.encode(errors="surrogatepass") + b'"')[2:-2]
    yield html.escape(text)
    yield quote(text, safe="", errors="replace")
    yield quote(text, errors="replace")
    yield quote_plus(text, errors="replace")
