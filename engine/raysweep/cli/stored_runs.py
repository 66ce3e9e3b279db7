"""Declares the commands that inspect and maintain stored runs."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Optional

import typer

from raysweep.cli.options import (
    AsJson,
    BudgetKey,
    ExportKind,
    FirstRow,
    Here,
    SchemaKind,
    StoredAt,
    SweepName,
    Task,
)
from raysweep.cli.run_names import by_name, complete_name, complete_sweep

app = typer.Typer()


@app.command()
@by_name
def status(
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="[SWEEP]", help="Default: list all nights."),
    ] = None,
    states: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--state", metavar="STATE", help="List those in this state: failed. Repeatable."),
    ] = None,
    since: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="AGE", help="List those that began since: 36h, 7d, or a date."),
    ] = None,
    storage: StoredAt = None,
    as_json: AsJson = False,
    start: FirstRow = 0,
    training: str | None = None,
    only: str | None = None,
) -> Task:
    """Show how a sweep or training is doing, or list all nights.

    A row of the list is a night: the sweep with its gate and its training. `--name` alone lists the nights of
    a name where there are several.
    """
    from raysweep.cli.commands import status

    filters = status.Filters(name=only, states=tuple(states or ()), since=since, start=start)
    if only is not None:
        return partial(status.show_named, only, storage, as_json, filters)
    if name is None:
        return partial(status.show_list, storage, as_json, filters)
    if states or since:
        raise typer.BadParameter("--state and --since filter the list: give no sweep, or --name")
    return partial(status.show, name, storage, as_json, training)


@app.command()
def nights(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The spec's name.", autocompletion=complete_name)
    ],
    last: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, metavar="N", help="The newest N. Default: 20; with --json all."),
    ] = None,
    storage: StoredAt = None,
    as_json: AsJson = False,
    start: FirstRow = 0,
) -> Task:
    """Show the nights of a name, and why one took longer.

    Each has its status, best, champion, promoted or not and why, hours, cost and failures.
    A night that took longer than those before it says what there was more of: trials, time per trial,
    repeated attempts, time without a controller.
    """
    from raysweep.cli.commands.nights import show_nights

    return partial(show_nights, name, storage, last if last or as_json else 20, as_json, start)


@app.command()
@by_name
def best(name: SweepName, storage: StoredAt = None, as_json: AsJson = False) -> Task:
    """Show the best trial: its config, metrics and checkpoint."""
    from raysweep.cli.commands.results import show_best

    return partial(show_best, name, storage, as_json)


@app.command()
@by_name
def transfer(
    name: SweepName,
    scale: Annotated[
        list[str], typer.Option("--scale", metavar="NAME=SIZE", help="The scale to carry to: rows=336776.")
    ],
    storage: StoredAt = None,
    as_json: AsJson = False,
) -> Task:
    """Show how the best config moves with the scale.

    Of each parameter the optimum at each scale of the sweep, and by their law at another; with a verdict.
    """
    from raysweep.cli.commands.transfer import show_transfer

    return partial(show_transfer, name, storage, scale, is_json=as_json)


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
    start: FirstRow = 0,
) -> Task:
    """List the trials of a sweep."""
    from raysweep.cli.commands.results import View, show_trials

    # Every attempt is in the JSON anyway.
    view = View(
        sort=sort, top=top, is_csv=as_csv, is_json=as_json, attempts=attempts, history=history, start=start
    )
    return partial(show_trials, name, storage, view)


@app.command()
def compare(
    base: Annotated[
        str,
        typer.Argument(
            metavar="BASE",
            help="A sweep, as elsewhere; SWEEP#3: the config of its trial 3.",
            autocompletion=complete_sweep,
        ),
    ],
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="The same, of the change.", autocompletion=complete_sweep)
    ],
    by: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--by", metavar="PARAM", help="A seed or fold. Repeatable. Default: the seed_param of the specs."
        ),
    ] = None,
    level: Annotated[
        float,
        typer.Option(min=0.0001, max=0.5, help="The chance to call a change without effect better."),
    ] = 0.095,
    storage: StoredAt = None,
    as_json: AsJson = False,
) -> Task:
    """Compare two sweeps or configs: better, worse or undecided.

    Trials with the same seed or fold are paired, and tested as a gate does. It says how many more seeds would
    decide it.
    """
    from raysweep.cli.commands.compare import run

    return partial(run, base, new, by or (), level, storage, is_json=as_json)


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
    """Write a report of a sweep as one HTML file.

    It has results, curves, failures and a timeline. The sweep may still run.
    """
    from raysweep.cli.commands.report import Wanted, make_report

    wanted = Wanted(output=output, compare=tuple(compare or ()), is_opened=is_opened, is_json=as_json)
    return partial(make_report, name, storage, wanted)


@app.command()
def top(
    storage: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="[STORAGE]", help="The storage path. Default: ~/raysweep."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print the table once, and end.")] = False,
    as_json: AsJson = False,
) -> Task:
    """Show all sweeps of a storage path, live in the terminal.

    Each has its trials, best, pace, end and last event; `q` ends it.
    Where there is no terminal, and with --json, it prints them once.
    """
    from raysweep.cli.commands.top import show_top

    return partial(show_top, storage, as_json, once=once)


@app.command()
@by_name
def export(
    name: SweepName,
    to: Annotated[ExportKind, typer.Option("--to", help="Tables, an Optuna study, or runs on MLflow.")],
    out: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="PATH",
            help="The folder of the tables (default: SWEEP_ID), the study's database (SWEEP_ID.db), or the "
            "MLflow server (MLFLOW_TRACKING_URI).",
        ),
    ] = None,
    storage: StoredAt = None,
    as_json: AsJson = False,
) -> Task:
    """Write a sweep's trials and reports for other tools.

    The sweep may still run. `deliver` completes the runs of a sweep that has trackers of its own.
    """
    from raysweep.cli.commands.export import export

    return partial(export, name, storage, to.value, out, as_json)


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
    """Show all sweeps of a storage path in the browser, live.

    It shows trainings too, and changes nothing.
    Bound to loopback it asks for no token. With RAYSWEEP_DASHBOARD_TOKEN set it does, wherever it is bound.
    """
    from raysweep.cli.commands.dashboard import serve

    return partial(serve, storage, host, port, is_opened=is_opened)


Bound = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(min=0.0, metavar="N", help="Set the bound. Default: it stays."),
]


@app.command()
def budget(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The budget key of the sweeps.")],
    storage: StoredAt = None,
    cpu_hours: Bound = None,
    gpu_hours: Bound = None,
    cost: Bound = None,
    as_json: AsJson = False,
) -> Task:
    """Show or set how much all sweeps of a budget key may use.

    A sweep reserves its stop.budget when it starts; once it has ended, what it used counts.
    """
    from raysweep.cli.commands.budget import run

    return partial(run, key, storage, cpu_hours=cpu_hours, gpu_hours=gpu_hours, cost=cost, is_json=as_json)


@app.command()
def mcp(
    storage: StoredAt = None,
    allow_approve: Annotated[
        bool, typer.Option("--allow-approve", help="Let agents approve and reject candidates.")
    ] = False,
    budget_key: BudgetKey = None,
    here: Here = False,
) -> Task:
    """Serve these commands to agents as MCP tools.

    It speaks over standard input and output, and knows one storage path.
    """
    from raysweep.cli.commands.mcp import serve

    return partial(serve, storage, allows_approval=allow_approve, budget_key=budget_key, is_here=here)


@app.command()
@by_name
def checkpoints(
    name: SweepName, storage: StoredAt = None, as_json: AsJson = False, start: FirstRow = 0
) -> Task:
    """List the checkpoints of a sweep or training, with their sizes.

    It says how much each was the first to store, and why it is kept.
    """
    from raysweep.cli.commands.checkpoints import show_checkpoints

    return partial(show_checkpoints, name, storage, as_json, start)


@app.command()
@by_name
def deliver(
    name: SweepName,
    storage: StoredAt = None,
    within_s: Annotated[
        float, typer.Option("--within-s", min=1, metavar="S", help="The longest delivery, in seconds.")
    ] = 600.0,
    to: Annotated[
        Optional[list[str]],  # noqa: UP045  typer reads the annotation at run time
        typer.Option(metavar="ADDRESS", help="A stored address or folder to which callbacks may send."),
    ] = None,
) -> Task:
    """Deliver what the callbacks of an ended sweep missed.

    A tracker may have been down, or slow.
    """
    from raysweep.cli.commands.deliver import deliver

    return partial(deliver, name, storage, within_s, to or ())


@app.command()
def pull(
    uri: Annotated[str, typer.Argument(metavar="URI", help="A checkpoint's, as `best` shows it.")],
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="A new or an empty one.")],
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Also what a trial stored by itself outside of the storage path."),
    ] = False,
    as_json: AsJson = False,
) -> Task:
    """Fetch a checkpoint into a folder, and verify it.

    The folder appears whole or not at all.
    """
    from raysweep.cli.commands import checkpoints

    return partial(checkpoints.pull, uri, folder, as_json, follows=follow)


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
    """Delete what no kept checkpoint needs, or is over the budget.

    The budget is `checkpoint.storage_budget` of the sweep's name.

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
    """Check everything that is stored of a sweep.

    Exit code 0 if it is sound, 1 if something is damaged.
    """
    from raysweep.cli.commands.verify import Wanted, run_verify

    wanted = Wanted(is_quick=quick, is_pruned=prune, is_repaired=repair, is_json=as_json)
    return partial(run_verify, name, storage, wanted)


@app.command()
def schema(kind: Annotated[SchemaKind, typer.Argument(help="The document.")] = SchemaKind.sweep) -> Task:
    """Print the JSON Schema of a spec."""
    from raysweep.cli.commands.schema import show_schema

    return partial(show_schema, kind.value)
