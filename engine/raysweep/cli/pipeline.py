"""`raysweep pipeline`."""

from __future__ import annotations

import time

import typer

from raysweep.cli.consoles import clean_stdout, logged_to, make_console, print_facts
from raysweep.cli.process import DONE
from raysweep.cli.sweep import show_outcome
from raysweep.live import LiveTable, show_config
from raysweep.outcome import PipelineOutcome
from raysweep.spec.pipeline import PipelineSpec
from raysweep.storage.store import open_store


def run(path: str, *, key: str | None, storage: str | None, address: str | None, is_json: bool) -> int:
    """Run the night that a file describes; returns the exit code. Without a key it is today's."""
    from raysweep.pipeline import run_pipeline

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
    _summarise(night, is_json=is_json)
    if is_json:
        typer.echo(night.to_json())
    return DONE


def _summarise(night: PipelineOutcome, *, is_json: bool) -> None:
    # The sweep's own lines; the JSON is the whole night's.
    if not is_json:
        show_outcome(night.sweep, is_json=False)
    console = make_console(is_stderr=is_json)
    facts = []
    if night.gate is not None:
        facts.append(("gate", night.gate.why))
    if night.train is not None:
        model = night.train.model_uri or night.train.uri
        facts += [("full scale", show_config(night.train.metrics)), ("model", model)]
    if night.skipped:
        facts.append(("train", night.skipped))
    print_facts(console, *facts)
