"""A self-contained HTML page: one style sheet, one script, data as JSON, and nothing from outside.

What comes from a sweep is data, never markup: it stands in a block of JSON in which no `<` is left, and the
script puts it into the document as text. The page's policy lets exactly this style sheet and this script run.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import orjson

SCRIPTS: Final = ("base.js", "plot.js", "charts.js", "parallel.js", "sections.js", "report.js")
"""In the order in which they run; each adds to `window.raysweep`."""
STYLE: Final = "page.css"


@cache
def asset(name: str) -> str:
    """A file of `static/`."""
    return (files("raysweep.pages") / "static" / name).read_text(encoding="utf-8")


@cache
def script() -> str:
    """All scripts as one."""
    return "\n".join(map(asset, SCRIPTS))


def policy(text: str, style: str) -> str:
    """The Content-Security-Policy of a page with this inline script and this inline style sheet."""
    return (
        f"default-src 'none'; script-src '{_digest(text)}'; style-src '{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def render(title: str, data: Mapping[str, Any], summary: str = "") -> str:
    """The page of a report.

    Args:
        title: Of the window; any text.
        data: What the script shows: JSON. NaN and infinity become null.
        summary: What is shown with the title until the script has drawn the page, and where none runs.
    """
    text, style = script(), asset(STYLE)
    return _PAGE.format(
        policy=html.escape(policy(text, style)),
        title=html.escape(title),
        summary=html.escape(summary),
        style=style,
        data=as_block(data),
        script=text,
    )


def as_block(data: Mapping[str, Any]) -> str:
    """JSON that no parser of HTML takes for more than text."""
    text = as_json(data).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def as_json(data: Mapping[str, Any]) -> bytes:
    """JSON; NaN and infinity are null, and text that is not valid Unicode is made so."""
    try:
        return orjson.dumps(data, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        return orjson.dumps(_valid(data), default=str, option=orjson.OPT_NON_STR_KEYS)


def _valid(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_valid(key): _valid(item) for key, item in value.items()}
    return [_valid(item) for item in value] if isinstance(value, list | tuple) else value


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<a class="skip" href="#page">Skip to the report</a>
<nav id="nav" aria-label="Sections"></nav>
<main id="page" tabindex="-1" aria-busy="true">
<header class="head"><h1>{title}</h1><p class="verdict">{summary}</p></header>
</main>
<p id="said" class="unseen" role="status" aria-live="polite"></p>
<noscript><p class="plain">This page draws with JavaScript, which is off here.</p></noscript>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""
