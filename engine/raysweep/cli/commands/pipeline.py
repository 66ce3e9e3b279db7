"""`raysweep pipeline`."""

from __future__ import annotations

import time

import typer

from raysweep.cli.consoles import clean_stdout, make_console
from raysweep.cli.exit_codes import DONE
from raysweep.cli.spec_files import search_beside
from raysweep.cli.sweep_summary import print_night
from raysweep.live import LiveTable, logged_to
from raysweep.specs.pipeline import PipelineSpec
from raysweep.storage.objects.opening import open_store


def run(path: str, *, key: str | None, storage: str | None, address: str | None, is_json: bool) -> int:
    """Run the pipeline that a file describes; returns the exit code. Without a key it is today's."""
    from raysweep.pipeline import run_pipeline

    search_beside(path)
    where = storage if storage is not None else PipelineSpec.from_file(path).sweep.storage_path
    spec = PipelineSpec.from_file(path).stored_at(open_store(where).url)
    with (
        LiveTable(make_console(is_stderr=is_json)) as table,
        logged_to(table.note),
        clean_stdout(is_json=is_json),
    ):
        night = run_pipeline(
            spec,
            key=key if key is not None else time.strftime("%Y-%m-%d"),
            address=address,
            on_progress=table,
        )
    print_night(make_console(is_stderr=is_json), night.sweep, night.train, skipped=night.skipped)
    if is_json:
        typer.echo(night.to_json())
    return DONE
