"""Text of others stays text, in Markdown as a real parser reads it, and in a line that a real shell runs."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from raysweep.documents.quoting import code_block, markdown, paragraph, shell_line
from tests.sampling import examples

HOSTILE = (
    "![x](http://h/leak.png)",
    "<img src=http://h/b.png>",
    "a` ![x](http://h/p.png) `",
    "[y][1]",
    "\\[x](http://h)",
    "http://h/phish www.h.example",
    "# heading",
    "12. a list",
    "- a list",
    "a | b",
    "a \\| ![x](y)",
    "&lt;img src=x&gt;",
    "```\n![x](http://h/leak.png)\n```",
    "line\n\n<script>1</script>",
    "\x1b[31mred\x07\r",
)
TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(alphabet="`![]()<>\\|&#-*_~ \n a1.:/", max_size=40))


def kinds(text: str) -> set[str]:
    """What a reader of GitHub's Markdown makes of it."""
    parser = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")
    found = parser.parse(text)
    return {each.type for token in found for each in (token, *(token.children or ()))}


@settings(max_examples=examples(300), deadline=None)
@given(TEXTS)
def test_no_text_becomes_mark_up(text: str) -> None:
    plain = {"paragraph_open", "paragraph_close", "inline", "text", "text_special"}
    assert kinds(paragraph(text)) <= plain
    row = kinds(f"| a | b |\n|---|---|\n| {markdown(text)} | c |")
    assert {each.removesuffix("_open").removesuffix("_close") for each in row} <= {
        "table", "thead", "tbody", "tr", "th", "td", "inline", "text", "text_special"
    }  # fmt: skip


@settings(max_examples=examples(300), deadline=None)
@given(TEXTS)
def test_no_text_leaves_its_block_of_code(text: str) -> None:
    assert kinds(code_block(text)) == {"fence"}


@pytest.mark.parametrize("word", [*HOSTILE, "$(touch pwned)", "'; touch pwned; '", "-x", "it's", "\u202egnp"])
def test_a_shell_gets_the_words_and_runs_nothing(word: str, tmp_path: object) -> None:
    line = shell_line(["printf", "%s", word])
    assert line.isprintable()
    ran = subprocess.run(["bash", "-c", line], capture_output=True, cwd=str(tmp_path), check=True)
    assert ran.stdout.decode() == word
