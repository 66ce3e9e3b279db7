"""With `--json` a command that fails prints one JSON document, whose codes are stable."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep.errors as errors
from raysweep.cli import error_documents
from raysweep.cli.error_documents import code_of
from raysweep.errors import RaysweepError

CODES = {
    "budget_spent",
    "champion_kept", "checkpoint_damaged", "cluster", "cluster_auth", "cluster_certificate", "cluster_lost",
    "cluster_request", "cluster_server", "cluster_start", "cluster_unreachable", "connection_unreadable",
    "fenced", "gate_outdated", "infeasible", "infeasible_resources", "job_exists", "job_failed",
    "job_not_found", "job_stopped", "journal_damaged", "log_not_found", "metric_never_reported",
    "outside_storage", "plan_changed", "program_failed", "raysweep", "sample_from", "segment_exists",
    "spec", "spec_changed",
    "storage", "storage_not_shared", "storage_not_writable", "storage_unavailable", "sweep_damaged",
    "sweep_failed", "sweep_held", "sweep_not_found", "token_missing", "token_refused", "trainable_import",
    "training_failed", "wait_failed",
}  # fmt: skip


def test_the_codes_are_those_that_programs_know() -> None:
    """Programs compare them: one that goes or is renamed breaks them."""
    kinds = [
        each
        for each in vars(errors).values()
        if inspect.isclass(each)
        and issubclass(each, RaysweepError)
        and not issubclass(each, KeyboardInterrupt)
    ]
    assert {code_of(each) for each in kinds} - {"sweep_interrupted"} == CODES


@pytest.fixture
def fails(cli: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """The error document of a command that fails; checks all that holds of each."""

    def run(*arguments: Any) -> dict[str, Any]:
        ran = cli(*arguments, "--json")
        document = json.loads(ran.out)
        assert (set(document), document["schema_version"]) == ({"schema_version", "error"}, 1)
        found: dict[str, Any] = document["error"]
        assert found["exit_code"] == ran.code
        assert found["message"]
        assert ran.err.startswith("error: "), "people still get their line"
        assert cli(*arguments).out == "", "and only programs get the document"
        return found

    return run


def test_a_spec_that_is_refused(fails: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    spec = tmp_path / "sweep.json"
    spec.write_text('{"name": "x", "trainable": 3}')
    found = fails("sweep", spec)
    assert (found["code"], found["exit_code"], found["retryable"]) == ("spec", 2, False)
    assert found["field"] == "trainable"
    assert "package.module:function" in found["fix"]
    (other,) = found["others"]
    assert other.startswith("param_space: ")
    assert found["docs"].endswith("#specerror")


def test_a_sweep_that_is_not_there(fails: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    found = fails("status", "flights@latest", "--storage", tmp_path / "store")
    assert found["code"] == "sweep_not_found"
    assert "check the name" in found["fix"] or "flights" in found["message"]


def test_an_option_that_is_none(fails: Callable[..., dict[str, Any]]) -> None:
    found = fails("best", "x", "--frobnicate")
    assert (found["code"], found["exit_code"]) == ("usage", 2)
    assert found["next"] == "raysweep best --help"


def test_an_error_that_is_no_ones(
    fails: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr("raysweep.cli.commands.status.show", broken)
    found = fails("status", "x", "--storage", tmp_path)
    assert (found["code"], found["exit_code"]) == ("bug", 1)
    assert found["message"] == "ZeroDivisionError: by nothing"
    assert "docs" not in found


def test_what_a_user_derives_has_the_code_of_what_it_is() -> None:
    class OwnError(errors.SpecError):
        pass

    assert code_of(OwnError) == "spec"
    assert error_documents.code_of(KeyError) == "bug"


@pytest.mark.parametrize("given", [("status", "\udcff"), ("plan", "spec.yaml", "--key=\udce9")])
def test_an_argument_that_is_no_text_is_named(fails: Callable[..., dict[str, Any]], given: Any) -> None:
    error = fails(*given)
    assert (error["code"], error["exit_code"]) == ("usage", 2)
    assert error["message"] == f"argument {len(given)} is not valid UTF-8"
