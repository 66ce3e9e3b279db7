"""`raysweep report`: one HTML file that shows a sweep."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass

import typer

from raysweep.cli.bars import progress_bar
from raysweep.cli.consoles import print_json
from raysweep.cli.exit_codes import DONE
from raysweep.pages import write_report


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The output file, and what it shows besides."""

    output: str | None
    compare: tuple[str, ...]
    is_opened: bool
    is_json: bool


def make_report(name: str, storage: str | None, wanted: Wanted) -> int:
    """Write the report and say where it is."""
    with progress_bar() as advance:
        path = write_report(
            name, wanted.output, storage=storage, compare=wanted.compare, on_progress=advance
        ).resolve()
    if wanted.is_json:
        print_json({"path": str(path), "size_bytes": path.stat().st_size})
    else:
        typer.echo(str(path))
    if wanted.is_opened:
        webbrowser.open(path.as_uri())
    return DONE
