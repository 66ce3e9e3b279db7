"""`raysweep emit`: what it sends, what it answers, and how little it costs."""

from __future__ import annotations

import selectors
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from raysweep.cli import main
from raysweep.programs.emit import VARIABLE, read_arguments
from raysweep.programs.emit_server import EmitServer

NO_REASON = "--infeasible needs a reason, in quotes, and nothing else"


def test_values_are_numbers_json_or_text() -> None:
    words = [
        "loss=0.5",
        "step=2",
        "lr=1e-4",
        "nan=nan",
        "ok=true",
        "none=null",
        "name=a b",
        "list=[1, 2]",
        "n=1_0",
    ]
    found = read_arguments([*words, "--checkpoint", "/c"])
    nan = found["metrics"].pop("nan")
    assert nan != nan
    assert found == {
        "metrics": {
            "loss": 0.5, "step": 2, "lr": 1e-4,
            "ok": True, "none": None, "name": "a b", "list": [1, 2], "n": "1_0",
        },
        "checkpoint": "/c",
    }  # fmt: skip


@pytest.mark.parametrize("words", [["--infeasible", "needs = 90 GB"], ["--infeasible=needs = 90 GB"]])
def test_a_reason_why_a_config_cannot_work_is_all_of_the_request(words: list[str]) -> None:
    assert read_arguments(words) == {"metrics": {}, "checkpoint": None, "infeasible": "needs = 90 GB"}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "no metrics"),
        (["loss"], "'loss' is no NAME=VALUE"),
        (["=3"], "'=3' is no NAME=VALUE"),
        (["--step=3"], "'--step=3' is no NAME=VALUE"),
        (["loss=1", "--checkpoint"], "--checkpoint needs a folder"),
        (["--infeasible"], NO_REASON),
        (["--infeasible", ""], NO_REASON),
        (["--infeasible", "needs 90 GB", "loss=1"], NO_REASON),
    ],
)
def test_bad_arguments_are_one_line_and_exit_code_2(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["emit", *words]) == 2
    assert capsys.readouterr().err.startswith(f"raysweep emit: {problem}; usage: raysweep emit NAME=VALUE")


def test_outside_a_trial_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert main(["emit", "loss=1"]) == 2
    assert "works only in a program that a trial runs" in capsys.readouterr().err
    monkeypatch.setenv(VARIABLE, "/nowhere/emit")
    assert main(["emit", "loss=1"]) == 1
    assert "the trial's worker cannot be reached" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ({"ok": True}, 0, ""),
        ({"stopped": "scheduler"}, 3, "the trial is to end (scheduler)"),
        ({"error": "metric 'x' is bad"}, 1, "metric 'x' is bad"),
        (None, 1, "the trial has ended"),
    ],
)
def test_exit_codes(
    answer: dict[str, Any] | None,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with selectors.DefaultSelector() as selector:
        server = EmitServer(tmp_path, selector)
        monkeypatch.setenv(VARIABLE, server.address)

        def serve() -> None:
            found: list[Any] = []
            while not found:
                selector.select(1)
                found = server.read()
            if answer is None:
                found[0]._sock.close()
            else:
                found[0].answer(**answer)

        thread = threading.Thread(target=serve)
        thread.start()
        assert main(["emit", "loss=1"]) == code
        thread.join()
        assert said in capsys.readouterr().err
        server.close()


def test_a_request_counts_though_its_client_was_killed_and_a_cut_one_does_not(tmp_path: Path) -> None:
    with selectors.DefaultSelector() as selector:
        server = EmitServer(tmp_path, selector)
        for line in (b'{"metrics": {"loss": 1}}\n', b'{"metrics": {"lo', b'{"metrics": {"loss": 2}}\n'):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(server.address)
                client.sendall(line)
        assert [request.metrics["loss"] for request in server.read()] == [1, 2]
        server.close()
        assert not list(tmp_path.iterdir())


def test_a_long_path_of_the_folder_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with selectors.DefaultSelector() as selector:
        server = EmitServer(folder, selector)
        assert len(server.address) < 108
        server.close()


def test_it_imports_nothing_that_is_slow() -> None:
    code = (
        "import sys; from raysweep.cli import main; main(['emit', 'loss=1']);"
        "print(sorted(name for name in sys.modules if name.partition('.')[0] in "
        "('typer', 'pydantic', 'msgspec', 'orjson', 'ray', 'numpy', 'asyncio')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
