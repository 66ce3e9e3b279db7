"""Agents that try what they may not: tokens by hand, paths, control characters, documents without end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysweep.mcp_server import started
from tests.unit.pages.sweeps import learn, store

Ask = Callable[..., Any]
CODE = """
import pathlib, time
import raysweep as rs

def f(config):
    here = pathlib.Path(__file__).parent
    with open(here / "ran.txt", "a") as ran:
        ran.write(f"{config['x']}\\n")
    while not (here / "go").exists():
        time.sleep(0.02)
    rs.report({"loss": config["x"]})
"""
SPEC: dict[str, Any] = {
    "name": "attacked",
    "trainable": "attacked_trainable:f",
    "param_space": {"x": {"uniform": [0, 1]}},
    "metric": "loss",
    "mode": "min",
    "num_samples": 2,
    "isolation": "inline",
    "max_concurrent_trials": 1,
}


@pytest.fixture
def spec(tmp_path: Path) -> str:
    (tmp_path / "attacked_trainable.py").write_text(CODE)
    path = tmp_path / "attacked.json"
    path.write_text(json.dumps(SPEC))
    return str(path)


@pytest.mark.slow
def test_a_running_sweep_lends_its_name_to_no_other_token(
    ask: Ask, spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"spec": spec, "key": "k"}
    token = ask("plan", **given)["document"]["token"]
    elsewhere = ask("plan", storage=tmp_path / "other", **given)["document"]["token"]
    first = ask("apply", **given, token=token)["document"]
    assert first["started"] is True
    head, sweep_id, *parts = token.split(".")
    edited = ".".join((head, sweep_id, parts[0], "0123456789", *parts[2:]))
    for other, named in ((edited, "code"), (elsewhere, "storage path")):
        refused = ask("apply", **given, token=other)["document"]["error"]
        assert (refused["code"], f"another {named}" in refused["message"]) == ("plan_changed", True)
    # A key of another sweep, with the token of the one that runs.
    refused = ask("apply", spec=spec, key="other", token=token)["document"]["error"]
    assert refused["code"] == "plan_changed"
    monkeypatch.setattr(started, "ELSEWHERE_S", 1.0)
    second = ask("apply", **given, token=token)["document"]
    assert (second["sweep_id"], second["started"]) == (sweep_id, False), "another agent's runs it"
    (tmp_path / "go").touch()
    while ask("status", sweep=sweep_id)["document"]["status"] != "completed":
        time.sleep(0.1)
    assert len((tmp_path / "ran.txt").read_text().split()) == SPEC["num_samples"], "nothing ran twice"
    assert len(ask("nights")["document"]["nights"]) == 1


@pytest.mark.parametrize(
    "token",
    ["plan1", "plan1./etc.a.b.c.d", "plan1.../..a.b.c.d", "plan1.x.a.b.c.d\x1b[2J", "9" * 100_000],
)
def test_what_is_no_token_of_the_plan_is_refused(ask: Ask, spec: str, token: str, tmp_path: Path) -> None:
    error = ask("apply", spec=spec, key="k", token=token)["document"]["error"]
    assert error["code"] in ("spec", "plan_changed", "usage")
    assert "\x1b" not in json.dumps(error, ensure_ascii=False)
    assert not (tmp_path / "store").exists()


def test_a_file_that_is_no_spec_is_not_read_out(ask: Ask, tmp_path: Path) -> None:
    secret = tmp_path / "credentials.yaml"
    secret.write_text("token: hunter2-secret\npassword: [hunter2-secret\n")
    for path in (secret, "/etc/passwd", "a\x1b[2Jb.yaml"):
        found = ask("plan", spec=str(path))
        assert found["document"]["error"]["exit_code"] == 2
        said = json.dumps(found, ensure_ascii=False)
        assert "hunter2" not in said
        assert "root:" not in said
        assert "\x1b" not in said


@pytest.mark.parametrize(
    "given",
    [
        {"key": "k\x1b[2J\n"},
        {"settings": ["name=a\x1b[2Jb"]},
        {"settings": ["storage_path=/tmp/elsewhere"]},
    ],
)
def test_texts_of_a_plan_are_text(ask: Ask, spec: str, given: dict[str, Any], tmp_path: Path) -> None:
    found = ask("plan", spec=spec, **given)
    assert "\x1b" not in json.dumps(found, ensure_ascii=False)
    if "error" not in found["document"]:
        assert found["document"]["stored_at"].startswith(str(tmp_path / "store"))


@pytest.mark.parametrize("tool", ["report", "trials", "status"])
def test_documents_without_end_are_cut(ask: Ask, tmp_path: Path, tool: str) -> None:
    """Half a megabyte of text in each config, as a trial may have; `ask` checks the size."""
    wide = {"rate": {"loguniform": [1e-4, 1e-1]}, "text": "y" * 500_000}
    _, outcome = store(tmp_path / "store", learn, param_space=wide, num_samples=6)
    found = ask(tool, sweep=outcome.sweep_id)
    assert "error" not in found["document"]
    assert "y" * 3_000 not in json.dumps(found)
