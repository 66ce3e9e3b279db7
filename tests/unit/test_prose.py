"""The lint for code that reads a sentence, and for imports by a text."""

from __future__ import annotations

import ast

import pytest

from devtools.prose import hidden_imports, reads_of

PACKAGES = ("raysweep", "raysweep_airflow")


def reads(code: str) -> list[str]:
    return [place.partition(": ")[2] for place in reads_of("m", ast.parse(code))]


@pytest.mark.parametrize(
    "code",
    [
        "end.why.removeprefix('promoted: ')",
        "'by a limit' in end.why",
        "WORDS in outcome.reason",
        "error.message.partition(': ')",
        "issue.problem.replace(found, 'its value')",
        "finding.fix.rpartition('; ')",
        "entry.finding.split('; ')",
        "f'{failure.type}: {failure.message}'.strip(': ')",
        "re.search('lost', note)",
        "_LOST.match(given.get('why', ''))",
        "gate['why'].endswith('required')",
        "str(error).startswith('no ')",
        "str(self.error).lower().find('no ')",
        "outcome.why == 'nothing ran'",
        "[note for note in outcome.notes if note.startswith('nothing')]",
        "outcome.notes[-1].index('nothing')",
        "next(iter(outcome.notes), '').endswith('nothing')",
    ],
)
def test_what_reads_a_sentence_is_found(code: str) -> None:
    assert len(reads(code)) == 1


@pytest.mark.parametrize(
    "code",
    [
        "text = f'{name}: {error}'\ntext.partition(': ')",
        "head, tail = outcome.why.strip(), ''\nhead.startswith('no ')",
        "for what, fix in asked.problems:\n    'workers' in what",
        "kept = [note for note in outcome.notes]\nfor each in kept:\n    each.endswith('.')",
        "try:\n    run()\nexcept ValueError as found:\n    str(found).startswith('no ')",
        "def say(why):\n    return why.removeprefix('no ')",
        "class A:\n    def say(self, note):\n        return (text := note or '').startswith('no ')",
    ],
)
def test_a_sentence_is_followed_through_a_function(code: str) -> None:
    assert len(reads(code)) == 1


@pytest.mark.parametrize(
    "code",
    [
        "' '.join(outcome.why.split())",
        "str(error).strip().splitlines()[0][:300]",
        "document['problem'].rstrip('.')",
        "outcome.why == ''",
        "end.by.rule == outcome.reason",
        "error.path.removeprefix(url)",
        "error.field.split('.')",
        "text not in outcome.notes",
        "line.partition(': ')",
        "row['error'] = error.message\nname in row",
        "def first(why):\n    return why\ndef second(line):\n    return line.split(',')",
    ],
)
def test_layout_and_data_are_not(code: str) -> None:
    assert reads(code) == []


def test_a_place_is_named() -> None:
    code = "class Gate:\n    def said(self):\n        return self.why.split(';')"
    assert list(reads_of("a.b", ast.parse(code))) == ["a.b:Gate.said:3: self.why.split(';')"]


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("import_module('raysweep.pages')", 1),
        ("importlib.import_module(f'raysweep.{room}')", 1),
        ("import_module(name)", 1),
        ("__import__('raysweep_airflow.hooks')", 1),
        ("import_module('torch._dynamo')", 0),
        ("import_module('raysweeper')", 0),
    ],
)
def test_an_import_by_a_text_is_found(code: str, count: int) -> None:
    tree = ast.parse(code)
    assert len(list(hidden_imports("raysweep.outcome.plots", tree, PACKAGES))) == count
    assert list(hidden_imports("raysweep.documents.kinds", tree, PACKAGES)) == []
