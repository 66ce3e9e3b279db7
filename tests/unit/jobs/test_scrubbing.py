"""Secrets are taken out of texts, in whatever form a server, a log or a traceback shows them."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from raysweep.jobs.scrubbing import Scrubber


def test_scrubbing_takes_the_longest_first_and_leaves_short_words() -> None:
    scrubber = Scrubber([SecretStr("abcd"), SecretStr("abcd-efgh"), SecretStr("a"), None])
    assert scrubber.clean("a abcd abcd-efgh") == "a ********** **********"
    assert "abcd" not in repr(scrubber.with_more([SecretStr("x" * 9)]))


KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBg\tkq'hkiG9w0\nBAQE\\FAASC\"Bkcw&gg=\n-----END KEY-----\n"
SEEN: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "as JSON": json.dumps,
    "in JSON in JSON": lambda text: json.dumps({"error": json.dumps({"env": text})}),
    "as Python": repr,
    "in a dict of Python": lambda text: str({"it's": text}),
    "as Python in JSON": lambda text: json.dumps(f"failed: {text!r}"),
    "in bytes": lambda text: repr(text.encode()),
    "in HTML": html.escape,
    "in a URL": quote,
    "in a query": quote_plus,
    "on one line": lambda text: " ".join(text.split()),
    "its last line but one": lambda text: text.splitlines()[-2],
    "line by line": lambda text: "\n".join(f"> {line}" for line in text.splitlines()),
    "lines as Python": lambda text: str(text.splitlines()),
}


@pytest.mark.parametrize("see", SEEN.values(), ids=SEEN)
def test_scrubbing_knows_what_servers_make_of_a_secret(see: Callable[[str], str]) -> None:
    """Keys have newlines, passwords quotes: an answer, a traceback or a log shows them escaped."""
    for secret in (
        KEY,
        "pass\"word'with&<all>",
        "pässwörd ☃",
        "back\\slash",
        "'quoted'",
        "it's\x1b-a-secret",
    ):
        lines = secret.splitlines()
        if len(lines) == 1 and see is SEEN["its last line but one"]:
            continue
        said = f"the server said: {see(secret)} and so on"
        cleaned = Scrubber([SecretStr(secret)]).clean(said)
        for line in lines:
            for part in re.findall(r"[a-zA-Z0-9äö]{4,}", line):
                assert part not in cleaned.replace("said", ""), (said, cleaned)
        assert cleaned.startswith("the server said: ")
        assert cleaned.endswith(" and so on")


def test_scrubbing_hides_the_environment_of_a_job_that_another_process_submitted() -> None:
    plain = {"env_vars": {"A": "hunter22", "B": "a { brace } and 'quotes\" hunter22", "C": "}"}, "pip": ["x"]}
    for said in (json.dumps(plain), str(plain), json.dumps(json.dumps(plain))):
        cleaned = Scrubber().clean(f"runtime_env {said} failed")
        assert "hunter22" not in cleaned
        assert "{**********}" in cleaned
        assert cleaned.endswith("failed")
        assert ("pip" in cleaned) == (said in (json.dumps(plain), str(plain)))
    assert "hunter22" not in Scrubber().clean(json.dumps(plain)[:40]), "a text that was cut"


@given(st.text(min_size=4, max_size=30))
def test_scrubbing_leaves_nothing_of_a_secret_and_all_else(secret: str) -> None:
    if len(secret.strip()) < 4 or not secret.isprintable():
        return
    for shown in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1]):
        cleaned = Scrubber([SecretStr(secret)]).clean(f"[{shown}]")
        assert cleaned == "[**********]" or secret.strip() in "[]**********"
