"""`raysweep top`: a table once, or live on a terminal until `q` or Ctrl-C."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raysweep.cli.commands.top import draw
from raysweep.runs.ownership.holder import current_holder
from raysweep.runs.reading.watch import StorageWatch
from raysweep.storage.objects.opening import open_store
from raysweep.terminal import TextConsole
from tests.unit.cli.conftest import Cli, Stored

Store = Callable[..., Stored]


def test_the_table_once(cli: Cli, store_sweep: Store, tmp_path: Path) -> None:
    running = store_sweep("runs")
    running.beat(current_holder())
    store_sweep("ended").end()
    ran = cli("top", tmp_path / "store", "--once")
    assert (ran.code, ran.err) == (0, "")
    head, first, second = ran.out.splitlines()
    assert head.split()[:6] == ["sweep", "status", "ended", "running", "failed", "best"]
    assert first.split()[:7] == [running.sweep_id, "running", "2/4", "1", "1", "loss", "5"]
    assert second.split()[1] == "cancelled"
    assert cli("top", tmp_path / "store").out.split()[:3] == head.split()[:3], "without a terminal too"
    rows = json.loads(cli("top", tmp_path / "store", "--json").out)["runs"]
    assert [(row["name"], row["ended"], row["is_running"]) for row in rows] == [
        ("runs", 2, True), ("ended", 4, False),
    ]  # fmt: skip


def test_nothing_is_there(cli: Cli, tmp_path: Path) -> None:
    ran = cli("top", tmp_path / "nowhere", "--once")
    assert ran.code == 0
    assert len(ran.out.splitlines()) == 1


def test_what_runs_is_shown_first_and_the_rest_is_counted(store_sweep: Store, tmp_path: Path) -> None:
    for number in range(6):
        store_sweep(f"ended-{number}").end()
    store_sweep("zz-runs").beat(current_holder())
    rows = StorageWatch(open_store(tmp_path / "store")).look()
    console = TextConsole(width=120, file=io.StringIO(), record=True)
    console.print(draw(rows, 8))
    text = console.export_text().splitlines()
    assert text[0].startswith("7 sweeps, 1 running, 4 more")
    assert text[2].startswith("zz-runs")
    assert text[-1].strip() == "q: quit"
    assert all(len(line) <= 120 for line in text)


@pytest.mark.parametrize("ending", ["q", "interrupt"])
def test_live_until_it_is_ended(store_sweep: Store, tmp_path: Path, ending: str) -> None:
    """On a real terminal; a sweep goes away meanwhile."""
    stored = store_sweep("runs")
    stored.beat(current_holder())
    here, there = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "raysweep.cli", "top", str(tmp_path / "store")],
        stdin=there, stdout=there, stderr=there, env=os.environ | {"TERM": "xterm", "COLUMNS": "120"},
        start_new_session=True,
    ) as process:  # fmt: skip
        os.close(there)
        _read_until(here, "runs-")
        stored.folder.store.delete(f"{stored.sweep_id}/sweep.json")
        _read_until(here, "0 sweeps")
        if ending == "q":
            os.write(here, b"q")
        else:
            process.send_signal(signal.SIGINT)
        _drain(here, process)
        assert process.returncode == 0
    os.close(here)


def _read_until(descriptor: int, text: str) -> None:
    seen, until = "", time.monotonic() + 60
    while text not in seen:
        assert time.monotonic() < until, seen
        if select.select([descriptor], [], [], 1.0)[0]:
            seen += os.read(descriptor, 65536).decode("utf-8", "replace")


def _drain(descriptor: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while process.poll() is None:
        assert time.monotonic() < until, "it does not end"
        if select.select([descriptor], [], [], 0.1)[0]:
            try:
                os.read(descriptor, 65536)
            except OSError:
                break
    process.wait(30)
