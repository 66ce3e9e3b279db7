"""The commands and their options.

Each returns what is to be done, and typer is through before that is called: it has its own ideas of what an
interrupt means. What is done is imported when it is wanted: `--help` must be quick.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Annotated, Optional

import typer

Task = Callable[[], int]

app = typer.Typer(
    help="Hyperparameter sweeps as pipeline steps on Ray.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Key = Annotated[
    Optional[str],  # noqa: UP045  typer reads the annotation at run time
    typer.Option(
        metavar="KEY",
        help="Names the run: the same name and key is the same run. Default: the spec itself.",
    ),
]
Storage = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="URL", help="Where sweeps are stored, in place of the spec's storage_path."),
]
StoredAt = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--storage", metavar="URL", help="Where sweeps are stored. Default: ~/raysweep."),
]
Address = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="ADDRESS", help='A Ray cluster: "auto" or host:port. Default: one of our own.'),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="JSON, and nothing else, on standard output; the rest on stderr.")
]
SpecFile = Annotated[str, typer.Argument(metavar="SPEC", help="A .yaml or .json file.")]
SweepName = Annotated[
    str, typer.Argument(metavar="SWEEP_ID", help="An id, its beginning, or the folder's URI.")
]
Takeover = Annotated[
    bool, typer.Option("--takeover", help="Take the sweep from a controller that seems to live.")
]
NumCpus = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(min=1, metavar="N", help="CPUs of a Ray of our own. Default: the machine's."),
]
Settings = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Change a field of the spec: num_samples=10. Repeatable."
    ),
]


class SpecKind(StrEnum):
    """The documents that have a schema."""

    sweep = "sweep"
    train = "train"


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from raysweep import __version__

        typer.echo(f"raysweep {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def sweep(
    spec: SpecFile,
    key: Key = None,
    storage: Storage = None,
    address: Address = None,
    as_json: AsJson = False,
    takeover: Takeover = False,
    num_cpus: NumCpus = None,
    settings: Settings = None,
) -> Task:
    """Run a sweep, or go on with it.

    The same name and key is the same sweep: one that has ended is returned at once.
    """
    from raysweep.cli.sweep import How, run_file

    how = How(address=address, is_json=as_json, takeover=takeover, num_cpus=num_cpus)
    return partial(run_file, spec, storage, settings or (), key, how)


@app.command()
def resume(
    name: SweepName,
    storage: StoredAt = None,
    address: Address = None,
    as_json: AsJson = False,
    takeover: Takeover = False,
    num_cpus: NumCpus = None,
) -> Task:
    """Go on with a stored sweep.

    Its spec and key are those that it was started with.
    """
    from raysweep.cli.sweep import How, resume

    how = How(address=address, is_json=as_json, takeover=takeover, num_cpus=num_cpus)
    return partial(resume, name, storage, how)


@app.command()
def train(
    spec: SpecFile,
    key: Key = None,
    storage: Storage = None,
    address: Address = None,
    as_json: AsJson = False,
    config: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="JSON", help="Values to put over the spec's config."),
    ] = None,
    from_sweep: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="SWEEP_ID", help="Put the best config of a sweep under it, and start from its checkpoint."
        ),
    ] = None,
    settings: Settings = None,
) -> Task:
    """Train one config at full scale.

    The same name and key is the same run: it goes on where it was; one that has ended is returned at once.
    """
    from raysweep.cli.train import Asked, run

    asked = Asked(
        path=spec, settings=tuple(settings or ()), storage=storage, config=config, from_sweep=from_sweep
    )
    return partial(run, asked, key=key, address=address, is_json=as_json)


@app.command()
def status(
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="[SWEEP_ID]", help="Default: list all sweeps."),
    ] = None,
    storage: StoredAt = None,
    as_json: AsJson = False,
) -> Task:
    """Show how a sweep is doing, or list the sweeps."""
    from raysweep.cli import status

    if name is None:
        return partial(status.show_list, storage, as_json)
    return partial(status.show, name, storage, as_json)


@app.command()
def best(name: SweepName, storage: StoredAt = None, as_json: AsJson = False) -> Task:
    """Show the best trial: its config, metrics and checkpoint."""
    from raysweep.cli.results import show_best

    return partial(show_best, name, storage, as_json)


@app.command()
def trials(
    name: SweepName,
    storage: StoredAt = None,
    attempts: Annotated[
        bool, typer.Option("--attempts", help="Every attempt: how it ended, on which node, its error.")
    ] = False,
    as_json: AsJson = False,
) -> Task:
    """List the trials of a sweep."""
    from raysweep.cli.results import show_attempts, show_trials

    # Every attempt is in the JSON anyway.
    return partial(show_attempts if attempts and not as_json else show_trials, name, storage, as_json)


@app.command()
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
    from raysweep.cli.verify import Wanted, run_verify

    wanted = Wanted(is_quick=quick, is_pruned=prune, is_repaired=repair, is_json=as_json)
    return partial(run_verify, name, storage, wanted)


@app.command()
def schema(kind: Annotated[SpecKind, typer.Argument(help="Which document.")] = SpecKind.sweep) -> Task:
    """Print the JSON Schema of a spec."""
    from raysweep.cli.schema import show_schema

    return partial(show_schema, kind.value)
