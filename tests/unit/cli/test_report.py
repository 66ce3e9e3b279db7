"""`raysweep report` writes one file, says where, and opens it when asked to."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Cli, Stored

Store = Callable[..., Stored]


def test_the_file_lies_here_under_the_id(cli: Cli, store_sweep: Store, tmp_path: Path) -> None:
    stored = store_sweep()
    ran = cli("report", stored.sweep_id, "--storage", stored.folder.store.url)
    path = tmp_path / f"{stored.sweep_id}.html"
    assert (ran.code, ran.out, ran.err) == (0, f"{path}\n", "")
    assert path.read_text().startswith("<!doctype html>")


def test_by_name_and_key_beside_another_and_as_json(cli: Cli, store_sweep: Store, tmp_path: Path) -> None:
    stored, other = store_sweep(is_ended=True), store_sweep(key="other")
    ran = cli(
        "report", "--name", "night", "--key", "k", "--storage", stored.folder.store.url,
        "--compare", other.sweep_id, "--output", tmp_path / "a.html", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    path = tmp_path / "a.html"
    assert json.loads(ran.out)["size_bytes"] == path.stat().st_size
    assert other.sweep_id in path.read_text()


def test_it_is_opened_when_asked_to(
    cli: Cli, store_sweep: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    stored = store_sweep()
    assert cli("report", stored.sweep_id, "--storage", stored.folder.store.url, "--open").code == 0
    assert opened == [(tmp_path / f"{stored.sweep_id}.html").as_uri()]


@pytest.mark.parametrize(
    ("arguments", "token", "said"),
    [
        (
            ["--host", "0.0.0.0"],
            "",
            "error: --host: 0.0.0.0 can be reached from outside, and there is no token;",
        ),
        (["--host", "0.0.0.0"], "short", "error: RAYSWEEP_DASHBOARD_TOKEN: has 5 characters; 16 are needed;"),
        (["--port", "70000"], "", "error: "),
    ],
)
def test_a_dashboard_that_cannot_be_served_is_one_line(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], token: str, said: str
) -> None:
    monkeypatch.setenv("RAYSWEEP_DASHBOARD_TOKEN", token)
    ran = cli("dashboard", tmp_path, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(said)


def test_what_is_not_there_is_one_line(cli: Cli, store_sweep: Store, tmp_path: Path) -> None:
    stored = store_sweep()
    at = ("--storage", stored.folder.store.url)
    ran = cli("report", "unknown", *at)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    ran = cli("report", stored.sweep_id, *at, "--compare", "unknown")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    ran = cli("report", stored.sweep_id, *at, "-o", tmp_path / "no" / "a.html")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith("error: --output: ")
    assert not list(tmp_path.glob("*.html"))
