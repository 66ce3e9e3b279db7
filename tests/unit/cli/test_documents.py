"""What each command prints with `--json` is the document that docs/json-documents.json publishes.

RAYSWEEP_GOLDEN=write adds what a document has and the file does not: look at the diff. A field that goes, or
that has another type, raises `SCHEMA_VERSION`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
from typer.main import get_command

from raysweep.cli import consoles
from raysweep.cli.app import app
from raysweep.cli.commands.running.sweep import show_outcome
from raysweep.cli.consoles import SCHEMA_VERSION
from tests.unit.cli.conftest import Stored
from tests.unit.cli.document_examples import COMMANDS, FAILING, MORE, Prepared

PAGE: Final = Path(__file__).parents[3] / "docs" / "json-documents.json"
TYPES: Final = {
    dict: "object", list: "array", str: "string", bool: "boolean", int: "number", float: "number",
}  # fmt: skip


@pytest.fixture
def printed(
    cli: Callable[..., Any],
    store_sweep: Callable[..., Stored],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], list[dict[str, Any]]]:
    """The documents of the examples of a name."""
    monkeypatch.syspath_prepend(tmp_path)
    prepared = Prepared(tmp_path, store_sweep, cli)

    def run(name: str) -> list[dict[str, Any]]:
        documents = []
        for line in (COMMANDS[name], *MORE.get(name, ())):
            ran = cli(*prepared.words(line))
            documents.append(json.loads(ran.out))
            is_error = set(documents[-1]) == {"schema_version", "error"}
            assert is_error == name.startswith("error: "), ran
            assert (ran.code == 0) != is_error or name in FAILING, ran
        return documents

    return run


def _schema_of(documents: Sequence[dict[str, Any]], version: int = SCHEMA_VERSION) -> dict[str, Any]:
    """The fields at the top, each with its types; those of an error too."""
    names = list(dict.fromkeys(name for each in documents for name in each))
    fields = {name: _types_of([each[name] for each in documents if name in each]) for name in names}
    if "schema_version" in fields:
        fields["schema_version"] = {"const": version}
    if errors := [each["error"] for each in documents if "code" in (each.get("error") or {})]:
        fields["error"] |= _schema_of(errors)
    known = {**fields, "next": {"type": "string"}} if "truncated" in fields else fields
    required = [name for name in fields if all(name in each for each in documents)]
    return {"type": "object", "properties": known, "required": required}


def _types_of(values: Sequence[object]) -> dict[str, Any]:
    """Their types; of nothing but null none, as it stands for what is not known yet."""
    types = sorted({"null" if value is None else TYPES[type(value)] for value in values})
    if types == ["null"]:
        return {}
    return {"type": types[0] if len(types) == 1 else types}


@pytest.mark.parametrize("name", COMMANDS)
def test_documents_are_as_published(name: str, printed: Callable[[str], list[dict[str, Any]]]) -> None:
    documents = printed(name)
    page = json.loads(PAGE.read_text()) if PAGE.exists() else {}
    if os.environ.get("RAYSWEEP_GOLDEN") == "write":
        page[name] = _schema_of(documents)
        PAGE.write_text(json.dumps({key: page[key] for key in COMMANDS if key in page}, indent=2) + "\n")
    for document in documents:
        jsonschema.validate(document, page[name])
        assert set(document) <= set(page[name]["properties"]), "a field that is not published"


def test_the_page_has_these_documents() -> None:
    assert list(json.loads(PAGE.read_text())) == list(COMMANDS)


def test_each_command_that_prints_a_document_has_an_example() -> None:
    group: Any = get_command(app)
    printing = {
        name for name, each in group.commands.items() if any(one.name == "as_json" for one in each.params)
    }
    shown = {line.split()[0] for line in COMMANDS.values()}
    assert shown == printing
    assert len(set(COMMANDS.values())) + sum(len(lines) for lines in MORE.values()) >= 40


def test_a_long_list_is_cut_and_says_how_to_go_on(
    cli: Callable[..., Any], store_sweep: Callable[..., Stored], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = store_sweep(is_ended=True)
    monkeypatch.setattr(consoles, "MAX_ROWS", 3)
    words = ["trials", stored.sweep_id, "--storage", stored.folder.store.url, "--json"]
    first = json.loads(cli(*words).out)
    assert (first["total"], first["truncated"], len(first["trials"])) == (4, True, 3)
    rest = json.loads(cli(*words, *first["next"].split()).out)
    assert (rest["total"], rest["truncated"], "next" in rest) == (4, False, False)
    numbers = [trial["number"] for document in (first, rest) for trial in document["trials"]]
    assert numbers == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("status", "code"), [("completed", 0), ("deadline", 6), ("budget", 6), ("failed", 1)]
)
def test_programs_are_told_that_a_sweep_is_partial(
    store_sweep: Callable[..., Stored], capsys: pytest.CaptureFixture[str], status: str, code: int
) -> None:
    """People are not: a night that its deadline ends is a good night."""
    outcome = store_sweep().end().model_copy(update={"status": status})
    assert show_outcome(outcome, is_json=True) == code
    assert json.loads(capsys.readouterr().out)["status"] == status
    assert show_outcome(outcome, is_json=False) == (0 if code == 6 else code)
