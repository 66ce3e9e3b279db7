"""What each command prints with `--json` is the document that docs/json-documents.json publishes.

RAYSWEEP_GOLDEN=write adds what a document has and the file does not: look at the diff. A field that goes, or
that has another type, raises `SCHEMA_VERSION`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest

from raysweep.cli import consoles
from raysweep.cli.commands.running.sweep import show_outcome
from raysweep.cli.consoles import SCHEMA_VERSION
from raysweep.runs.ownership.holder import current_holder
from raysweep.specs.approval import ApprovalSpec
from tests.unit.cli.conftest import Stored
from tests.unit.pages.odd_sweeps import ODD
from tests.unit.pipeline.gates import night

PAGE: Final = Path(__file__).parents[3] / "docs" / "json-documents.json"
TYPES: Final = {
    dict: "object", list: "array", str: "string", bool: "boolean", int: "number", float: "number",
}  # fmt: skip
COMMANDS: Final[dict[str, str]] = {
    "status": "status",
    "status SWEEP": "status {sweep}",
    "nights": "nights night",
    "best": "best {scored}",
    "sweep": "sweep done.json --key k",
    "compare": "compare {scored} {scored}",
    "attach": "attach {ended}",
    "trials": "trials {sweep}",
    "trials --history": "trials {sweep} --history",
    "report": "report {sweep} --output report.html",
    "top": "top {store} --once",
    "checkpoints": "checkpoints {sweep}",
    "logs": "logs {sweep}",
    "verify": "verify {sweep}",
    "gc": "gc {sweep} --dry-run",
    "export": "export {sweep} --to csv --out out",
    "cancel": "cancel {ended}",
    "rm": "rm {ended} --yes",
    "plan": "plan spec.json",
    "budget": "budget agent --cpu-hours 100",
    "init": "init project",
    "evidence": "evidence flights --storage {line}",
    "approve": "approve flights@latest --storage {line}",
    "rollback": "rollback flights --to 2026-11-24 --storage {line}",
    "error: spec": "plan bad.json",
    "error: sweep_not_found": "best nothing",
    "error: usage": "best",
    "error: sweep_held": "rm {held} --yes",
    "error: no_best_trial": "best {begun}",
    "error: spec_changed": "sweep changed.json --key k",
    "error: infeasible": "plan huge.json --cluster 1x2",
}
WITHOUT_STORAGE: Final = ("init", "top", "evidence", "approve", "rollback", "error: usage")
"""Those that are told no storage, or have one of their own."""
FAILING: Final = ("verify", "sweep", "attach")
"""Their document says what was found, and their exit code that it is not well."""


@pytest.fixture
def printed(
    cli: Callable[..., Any], store_sweep: Callable[..., Stored], tmp_path: Path
) -> Callable[[str], dict[str, Any]]:
    """The document of an example of a command."""
    stored = store_sweep(is_ended=True)
    stored.end()
    at = {
        "sweep": stored.sweep_id,
        "ended": store_sweep("other", is_ended=True).sweep_id,
        "store": str(tmp_path / "store"),
        "line": str(tmp_path / "line"),
    }

    def run(name: str) -> dict[str, Any]:
        words = COMMANDS[name].split()
        if "{held}" in words:
            held = store_sweep("held")
            held.beat(current_holder())
            at["held"] = held.sweep_id
        if "{line}" in words:
            night(Path(at["line"]), "2026-11-24", 0.5)
            night(Path(at["line"]), "2026-11-25", 0.7)
            night(Path(at["line"]), "2026-11-26", 0.9, approval=ApprovalSpec(timeout=3600))
        for odd, label in (("no metric", "begun"), ("one trial", "scored")):
            if f"{{{label}}}" in words:
                at[label] = ODD[odd](Path(at["store"])).sweep_id
        spec = {"name": "s", "trainable": "examples.quick:steps", "param_space": {"x": {"uniform": [0, 1]}}}
        Path("spec.json").write_text(json.dumps({**spec, "metric": "loss", "mode": "min", "num_samples": 2}))
        Path("bad.json").write_text(json.dumps({**spec, "num_samples": -1}))
        Path("huge.json").write_text(json.dumps({**spec, "resources": {"num_cpus": 64}}))
        record = stored.folder.read_spec()
        assert record is not None
        Path("done.json").write_text(json.dumps(record.spec))
        Path("changed.json").write_text(json.dumps({**record.spec, "param_space": {"x": 1}}))
        words = [word.format(**at) for word in words] + ["--json"]
        if name not in WITHOUT_STORAGE:
            words += ["--storage", at["store"]]
        ran = cli(*words)
        document: dict[str, Any] = json.loads(ran.out)
        assert (ran.code == 0) == (not name.startswith("error: ")) or name in FAILING, ran
        return document

    return run


def _schema_of(document: dict[str, Any]) -> dict[str, Any]:
    """The fields at the top, each with its type; those of an error too."""
    fields: dict[str, Any] = {name: _type_of(value) for name, value in document.items()}
    fields["schema_version"] = {"const": SCHEMA_VERSION}
    if "code" in (document.get("error") or {}):
        fields["error"] |= _schema_of(document["error"] | {"schema_version": 0})
        del fields["error"]["properties"]["schema_version"]
        fields["error"]["required"].remove("schema_version")
    known = {**fields, "next": {"type": "string"}} if "truncated" in fields else fields
    return {"type": "object", "properties": known, "required": list(fields)}


def _type_of(value: object) -> dict[str, Any]:
    """Its type; of null nothing, as it stands for what is not known yet."""
    return {} if value is None else {"type": TYPES[type(value)]}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_document_is_as_published(name: str, printed: Callable[[str], dict[str, Any]]) -> None:
    document = printed(name)
    page = json.loads(PAGE.read_text()) if PAGE.exists() else {}
    if os.environ.get("RAYSWEEP_GOLDEN") == "write":
        page[name] = _schema_of(document)
        PAGE.write_text(json.dumps({key: page[key] for key in COMMANDS if key in page}, indent=2) + "\n")
    jsonschema.validate(document, page[name])
    assert set(document) <= set(page[name]["properties"]), "a field that is not published"


def test_the_page_has_these_documents() -> None:
    assert list(json.loads(PAGE.read_text())) == list(COMMANDS)


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
