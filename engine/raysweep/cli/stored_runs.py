"""Declares the commands that inspect and maintain stored runs."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Optional

import typer

from raysweep.cli.options import AsJson, SpecKind, StoredAt, SweepName, Task
from raysweep.cli.run_names import by_name

app = typer.Typer()


@app.command()
@by_name
def status(
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="[SWEEP_ID]", help="Default: list all sweeps."),
    ] = None,
    storage: StoredAt = None,
    as_json: AsJson = False,
    training: str | None = None,
) -> Task:
    """Show how a sweep or a training run is doing, or list them all."""
    from raysweep.cli.commands import status

    if name is None:
        return partial(status.show_list, storage, as_json)
    return partial(status.show, name, storage, as_json, training)


@app.command()
@by_name
def best(name: SweepName, storage: StoredAt = None, as_json: AsJson = False) -> Task:
    """Show the best trial: its config, metrics and checkpoint."""
    from raysweep.cli.commands.results import show_best

    return partial(show_best, name, storage, as_json)


@app.command()
@by_name
def trials(
    name: SweepName,
    storage: StoredAt = None,
    attempts: Annotated[
        bool, typer.Option("--attempts", help="Every attempt: how it ended, on which node, its error.")
    ] = False,
    history: Annotated[bool, typer.Option("--history", help="Every report, from the journal.")] = False,
    sort: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="NAME",
            help="Sort by a metric, a parameter, time, reports, state, …; -NAME: the other way round. "
            "The sweep's metric comes best first.",
        ),
    ] = None,
    top: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, metavar="N", help="The first N only; without --sort, the best N."),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV, with every metric and parameter.")] = False,
    as_json: AsJson = False,
) -> Task:
    """List the trials of a sweep."""
    from raysweep.cli.commands.results import View, show_trials

    # Every attempt is in the JSON anyway.
    view = View(sort=sort, top=top, is_csv=as_csv, is_json=as_json, attempts=attempts, history=history)
    return partial(show_trials, name, storage, view)


@app.command()
@by_name
def report(
    name: SweepName,
    storage: StoredAt = None,
    output: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file, or its folder. Default: SWEEP_ID.html here."
        ),
    ] = None,
    compare: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(metavar="SWEEP_ID", help="Show this sweep beside it. Repeatable."),
    ] = None,
    is_opened: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    as_json: AsJson = False,
) -> Task:
    """Write a report of a sweep: one HTML file with its results, curves, failures and timeline.

    The sweep may still run.
    """
    from raysweep.cli.commands.report import Wanted, make_report

    wanted = Wanted(output=output, compare=tuple(compare or ()), is_opened=is_opened, is_json=as_json)
    return partial(make_report, name, storage, wanted)


@app.command()
def dashboard(
    storage: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="[STORAGE]", help="The storage path. Default: ~/raysweep."),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0: any free one.")
    ] = 8266,
    host: Annotated[
        str, typer.Option(metavar="HOST", help="The address to bind. Another than loopback needs a token.")
    ] = "127.0.0.1",
    is_opened: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> Task:
    """Show all sweeps and trainings of a storage path in the browser, live and read-only.

    Bound to loopback it asks for no token. With RAYSWEEP_DASHBOARD_TOKEN set it does, wherever it is bound.
    """
    from raysweep.cli.commands.dashboard import serve

    return partial(serve, storage, host, port, is_opened=is_opened)


@app.command()
@by_name
def checkpoints(name: SweepName, storage: StoredAt = None, as_json: AsJson = False) -> Task:
    """List the checkpoints of a sweep or training: their sizes, what each was the first to store, and why."""
    from raysweep.cli.commands.checkpoints import show_checkpoints

    return partial(show_checkpoints, name, storage, as_json)


@app.command()
def pull(
    uri: Annotated[str, typer.Argument(metavar="URI", help="A checkpoint's, as `best` shows it.")],
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="A new or an empty one.")],
    as_json: AsJson = False,
) -> Task:
    """Fetch a checkpoint into a folder, verified: it appears whole or not at all."""
    from raysweep.cli.commands import checkpoints

    return partial(checkpoints.pull, uri, folder, as_json)


@app.command()
@by_name
def gc(
    name: SweepName,
    storage: StoredAt = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be deleted, and why.")
    ] = False,
    budget: Annotated[
        Optional[str],  # noqa: UP045  typer reads the annotation at run time
        typer.Option(
            metavar="BYTES", help="In place of the spec's checkpoint.storage_budget, such as 50GiB."
        ),
    ] = None,
    as_json: AsJson = False,
) -> Task:
    """Delete what no kept checkpoint refers to, and what is over the storage budget of the sweep's name.

    Takes an id, or a name: then all sweeps of it. What a champion or a training needs stays, and so does all
    of a sweep that runs or has not ended.
    """
    from raysweep.cli.commands import checkpoints
    from raysweep.specs.policies import CheckpointPolicy

    asked = CheckpointPolicy.model_validate({"storage_budget": budget}).storage_budget
    how = checkpoints.Collecting(is_dry=dry_run, is_json=as_json, budget_bytes=asked)
    return partial(checkpoints.collect, name, storage, how)


@app.command()
@by_name
def verify(
    name: SweepName,
    storage: StoredAt = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Compare the sizes of checkpoint files, and do not read them.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete what nothing refers to. Not while the sweep runs.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Make anew what the journal can give. Not while the sweep runs.")
    ] = False,
    as_json: AsJson = False,
) -> Task:
    """Check everything that is stored of a sweep: exit code 0 if it is sound, 1 if something is damaged."""
    from raysweep.cli.commands.verify import Wanted, run_verify

    wanted = Wanted(is_quick=quick, is_pruned=prune, is_repaired=repair, is_json=as_json)
    return partial(run_verify, name, storage, wanted)


@app.command()
def schema(kind: Annotated[SpecKind, typer.Argument(help="Which document.")] = SpecKind.sweep) -> Task:
    """Print the JSON Schema of a spec."""
    from raysweep.cli.commands.schema import show_schema

    return partial(show_schema, kind.value)
