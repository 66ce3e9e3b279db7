"""Declares the commands about champions."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Optional

import typer

from raysweep.cli.options import AsJson, StoredAt, Task
from raysweep.cli.run_names import complete_name

app = typer.Typer()

_METRIC = Annotated[
    Optional[str],  # noqa: UP045  typer reads the annotation at run time
    typer.Option(metavar="METRIC", help="The metric, if the name has champions by several."),
]
_DATA = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="DATA", help="The data set (gate.data), if it has champions on several."),
]
_REGISTRY = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="REGISTRY",
        help="The pipeline's file, or its registry: mlflow, '{\"mlflow\": {...}}', module:Class.",
    ),
]
_BY = Annotated[str, typer.Option(metavar="WHO", help="The decider. Default: the user, at this host.")]


@app.command()
def approve(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME[@NIGHT]",
            help="The champion's name; the newest night that waits.",
            autocompletion=complete_name,
        ),
    ],
    reject: Annotated[bool, typer.Option("--reject", help="Reject it: nothing is promoted.")] = False,
    note: Annotated[str, typer.Option(metavar="TEXT", help="The reason, stored in the evidence.")] = "",
    by: _BY = "",
    metric: _METRIC = None,
    data: _DATA = None,
    storage: StoredAt = None,
    as_json: AsJson = False,
) -> Task:
    """Approve a candidate that passed its gate.

    It becomes champion, and the pipeline trains it.
    It is decided once: a later call says what the first was. Exit code 1 where that was another one.
    """
    from raysweep.cli.commands.release import Which, run_approve

    which = Which(metric=metric, data=data)
    return partial(run_approve, name, storage, which, approved=not reject, by=by, note=note, is_json=as_json)


@app.command()
def evidence(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME[@NIGHT]",
            help="The champion's name; the newest night.",
            autocompletion=complete_name,
        ),
    ],
    metric: _METRIC = None,
    data: _DATA = None,
    storage: StoredAt = None,
    as_json: AsJson = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="For a file: texts of others cannot become mark-up.")
    ] = False,
) -> Task:
    """Show why the champion is champion.

    Every score, the test, drift, cost and code.
    Each decision is an entry that has the hash of the one before. Exit code 1 where one was changed.
    """
    from raysweep.cli.commands.release import Which, show_evidence

    which = Which(metric=metric, data=data)
    return partial(show_evidence, name, storage, which, is_json=as_json, is_markdown=markdown)


@app.command()
def rollback(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The champion's name.", autocompletion=complete_name)
    ],
    to: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="NIGHT", help="The night of an earlier champion. Default: the one before the newest."
        ),
    ] = None,
    why: Annotated[str, typer.Option(metavar="TEXT", help="The reason, stored in the evidence.")] = "",
    by: _BY = "",
    registry: _REGISTRY = None,
    metric: _METRIC = None,
    data: _DATA = None,
    storage: StoredAt = None,
    as_json: AsJson = False,
) -> Task:
    """Make the champion before the newest one champion again.

    The next gate compares with it.
    Run again, it changes nothing: to go further back, name the night.
    """
    from raysweep.cli.commands.release import Which, run_rollback

    which = Which(metric=metric, data=data)
    asked: dict[str, Any] = {"to": to, "by": by, "why": why, "registry": registry}
    return partial(run_rollback, name, storage, which, **asked, is_json=as_json)


@app.command()
def register(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The champion's name.", autocompletion=complete_name)
    ],
    registry: _REGISTRY = None,
    metric: _METRIC = None,
    data: _DATA = None,
    storage: StoredAt = None,
    as_json: AsJson = False,
) -> Task:
    """Write the champion to the pipeline's model registry.

    A pipeline does so itself, if it answers, and a rollback that names it. Exit code 1 while it does not.
    """
    from raysweep.cli.commands.release import Which, run_register

    which = Which(metric=metric, data=data)
    return partial(run_register, name, storage, which, registry=registry, is_json=as_json)
