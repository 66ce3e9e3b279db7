"""Ctrl-C on a terminal, in async code and in a notebook: one clean interruption, to be resumed from."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.reader import SweepReader
from raysweep.specs.identity import sweep_id
from raysweep.storage.objects.opening import open_store
from tests.engine.conftest import ROOT, session_of, wait_for

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

CTRL_C = b"\x03"
NAME = sweep_id("t", "k")


def take_terminal() -> None:
    """In the new process: it has the terminal, and hears Ctrl-C even where pytest is in the background."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A program with a terminal of its own: keys in, text out."""

    def __init__(self, *arguments: str) -> None:
        ours, theirs = pty.openpty()
        self._keys = ours
        self.text = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.engine.interrupted", *arguments],
            cwd=ROOT,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=take_terminal,
            env={**os.environ, "COLUMNS": "120", "TERM": "xterm"},
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # how a terminal says that its program is gone
            while data := os.read(self._keys, 65536):
                self.text += data.decode(errors="replace")

    def press(self, keys: bytes) -> None:
        """As a person does: Ctrl-C goes to every process of the terminal's foreground."""
        os.write(self._keys, keys)

    def wait(self) -> int:
        code = self.process.wait(timeout=200)
        self._reader.join(timeout=10)
        return code

    def close(self) -> None:
        for pid in session_of(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        self.process.wait()
        os.close(self._keys)


@pytest.fixture
def start(storage: Path, log: Path) -> Iterator[Callable[..., Terminal]]:
    started: list[Terminal] = []

    def start(how: str, address: str) -> Terminal:
        started.append(Terminal(how, str(storage), address, str(log)))
        return started[-1]

    yield start
    for terminal in started:
        terminal.close()


def one_is_ahead(storage: Path, generation: int) -> Callable[[], bool]:
    """Whether that controller has said that a trial has reported."""
    folder = SweepFolder(open_store(str(storage)), NAME)

    def look() -> bool:
        progress = folder.read_progress()
        is_there = progress is not None and progress.generation == generation and progress.is_at_work
        return is_there and progress is not None and (progress.ahead or progress.best) is not None

    return look


def folder_of(pid: int) -> Path | None:
    """The folder of the Ray that a process has begun to start."""
    owners = Path("/tmp").glob("rs-*/owner.json")
    return next((owner.parent for owner in owners if f'"pid": {pid},' in owner.read_text()), None)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_ray_starts(
    number: signal.Signals, start: Callable[..., Terminal], storage: Path
) -> None:
    terminal = start("script", "local")
    folder: Path = wait_for(lambda: folder_of(terminal.process.pid))
    if number == signal.SIGINT:
        terminal.press(CTRL_C)
    else:
        wait_for(lambda: len(session_of(terminal.process.pid)) > 1)  # its handlers are those of then
        os.kill(terminal.process.pid, number)
    assert terminal.wait() == 1, terminal.text  # below 0: by a signal, as a crash in C does
    assert f"SweepInterrupted: sweep {NAME!r} was interrupted" in terminal.text
    traceback = terminal.text[terminal.text.index("Traceback") :]
    assert traceback.count("Traceback") == 1
    assert "cluster/run.py" not in traceback
    assert "starting Ray" in terminal.text
    assert not folder.exists()
    assert session_of(terminal.process.pid) == []
    assert not (storage / NAME).exists()


def test_ctrl_c_while_trials_run_says_which_is_ahead_and_how_to_resume(
    start: Callable[..., Terminal], storage: Path, address: str
) -> None:
    terminal = start("script", address)
    wait_for(one_is_ahead(storage, 1))
    terminal.press(CTRL_C)
    assert terminal.wait() == 1, terminal.text
    said = " ".join(terminal.text[terminal.text.index("SweepInterrupted:") :].split())
    assert "0 of 4 trials ended" in said
    assert "ahead loss" in said, "no trial has ended, so none is the best"
    assert "run it again with the same key to resume it" in said
    assert "no running event loop" not in terminal.text
    status = SweepReader(str(storage), NAME).read()
    assert status is not None
    assert status.status == "interrupted"
    assert status.counts.get("failed", 0) == 0


@pytest.mark.slow
def test_ctrl_c_in_async_code(start: Callable[..., Terminal], storage: Path, address: str) -> None:
    terminal = start("asyncio", address)
    wait_for(one_is_ahead(storage, 1))
    terminal.press(CTRL_C)
    assert terminal.wait() == 1, terminal.text
    assert "SweepInterrupted" in terminal.text
    assert "ahead loss" in terminal.text
    assert not any(line.startswith("LOST") for line in terminal.text.splitlines())


@pytest.mark.slow
def test_ctrl_c_in_a_notebook_and_again_in_the_next_cell(
    start: Callable[..., Terminal], storage: Path, address: str
) -> None:
    terminal = start("cells", address)
    for generation in (1, 2):
        wait_for(one_is_ahead(storage, generation))
        terminal.press(CTRL_C)
        wait_for(lambda cell=generation: f"CELL {cell}:" in terminal.text)
    assert terminal.wait() == 0, terminal.text
    for cell in (1, 2):
        assert f"CELL {cell}: SweepInterrupted: sweep {NAME!r} was interrupted" in terminal.text
    assert terminal.text.count("CONNECTED False") == 2
