"""What others wrote (names, texts of errors) is printed as text: no escape, no turned letters, no mark-up."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.control import Control
from rich.table import Table

from raysweep.live import LiveTable
from raysweep.terminal import TextConsole
from tests.unit.cli.conftest import Cli
from tests.unit.pages.odd_sweeps import ODD

COMMANDS = (
    ["status"], ["status", "SWEEP"], ["best", "SWEEP"], ["trials", "SWEEP"], ["nights", "NAME"], ["top"],
    ["verify", "SWEEP"], ["logs", "SWEEP"],
)  # fmt: skip
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.mark.parametrize("name", ["hostile", "right to left"])
def test_no_face_prints_what_a_terminal_obeys(cli: Cli, tmp_path: Path, name: str) -> None:
    folder = ODD[name](tmp_path)
    names = {"SWEEP": folder.sweep_id, "NAME": folder.read_spec().spec["name"]}
    for command in COMMANDS:
        if "NAME" in command and "/" in names["NAME"]:
            continue  # it is read as a folder
        words = [names.get(word, word) for word in command]
        place = [folder.store.url, "--once"] if command == ["top"] else ["--storage", folder.store.url]
        ran = cli(*words, *place)
        assert not ran.err.startswith("error"), (command, ran.err)
        assert not OBEYED.findall(ran.out + ran.err), (command, ran.out)


def test_a_name_in_brackets_is_shown_whole(cli: Cli, tmp_path: Path) -> None:
    folder = ODD["hostile"](tmp_path)
    for command in ("best", "trials"):
        assert "[a](b)" in cli(command, folder.sweep_id, "--storage", folder.store.url).out


def test_the_live_table_shows_text_alone(tmp_path: Path) -> None:
    folder = ODD["hostile"](tmp_path)
    console = TextConsole(file=io.StringIO(), width=400)
    with LiveTable(console, name=folder.read_spec().spec["name"]) as table:
        table.note("ended by \x1b[2J\u202eevil [bold]x[/bold]")
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "evil [bold]x[/bold]" in said
    assert not OBEYED.findall(said)


def test_richs_own_colours_and_movements_stay() -> None:
    console = TextConsole(file=io.StringIO(), force_terminal=True, color_system="standard")
    table = Table("[a](b)")
    table.add_row("x\x1by", style="green")
    console.print(table)
    console.control(Control.home())
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "[a](b)" in said
    assert "x\ufffdy" in said
    assert "\x1b[32m" in said
    assert said.endswith("\x1b[H")
