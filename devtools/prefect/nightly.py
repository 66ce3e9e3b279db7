"""`python -m devtools.prefect.nightly`: one night in one process, everything embedded, shown as it goes."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import raysweep as rs
from raysweep.cli.sweep_summary import print_night
from raysweep.errors import SweepInterrupted
from raysweep.specs.pipeline import PipelineSpec
from raysweep.storage.objects.opening import open_store
from raysweep.terminal import TextConsole

if TYPE_CHECKING:
    from raysweep_prefect.flows import NightOutcome

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

# The embedded server is this command's own business: quiet, unless the user says otherwise.
QUIET = {
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_SERVER_LEVEL": "CRITICAL",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
}


@app.command()
def nightly(
    spec: Annotated[Path | None, typer.Option(help="The sweep's spec, YAML or JSON.")] = None,
    train: Annotated[Path | None, typer.Option(help="The training's spec.")] = None,
    pipeline: Annotated[Path | None, typer.Option(help="Sweep, gate and training in one file.")] = None,
    key: Annotated[str | None, typer.Option(help="Names the night; default: today's date.")] = None,
    storage: Annotated[str, typer.Option(help="The folder for everything.")] = ".nightly",
    address: Annotated[str | None, typer.Option(help="A Ray cluster; default: an embedded Ray.")] = None,
) -> None:
    """Sweep, then train the best config at full scale. The same key again: continue where it stopped."""
    console = TextConsole()
    name = key or time.strftime("%Y-%m-%d")
    sys.path.insert(0, os.getcwd())
    try:
        outcome = _run(console, _read(spec, train, pipeline), name, storage, address)
    except KeyboardInterrupt as error:
        console.print(f"{str(error) or 'interrupted'}\nGo on with: {_again()}", soft_wrap=True)
        raise typer.Exit(SweepInterrupted.exit_code) from None
    except rs.RaysweepError as error:
        if os.environ.get("RAYSWEEP_DEBUG"):
            raise
        TextConsole(stderr=True).print(f"error: {error}", soft_wrap=True)
        if error.retryable:
            console.print(f"A retry may help: {_again()}", soft_wrap=True)
        raise typer.Exit(error.exit_code) from None
    print_night(console, outcome.sweep, outcome.train, skipped=outcome.skipped)


def _read(spec: Path | None, train: Path | None, pipeline: Path | None) -> PipelineSpec:
    """The pipeline that the command line names; a mistake in a spec is said before anything starts."""
    if (spec is None) == (pipeline is None):
        raise rs.SpecError("--pipeline", "is given together with --spec, or neither is", "give one of them")
    if pipeline is None:
        return PipelineSpec.from_parts(spec, train)
    if train is not None:
        raise rs.SpecError("--train", "is part of the pipeline's file", "leave it out")
    return PipelineSpec.from_file(pipeline)


def _run(
    console: TextConsole, spec: PipelineSpec, key: str, storage: str, address: str | None
) -> NightOutcome:
    open_store(storage).check_writable()
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if not {"PREFECT_API_URL", "PREFECT_HOME"} & os.environ.keys() and "://" not in storage:
        home = Path(storage).expanduser().absolute() / "prefect"
        home.mkdir(parents=True, exist_ok=True)
        os.environ["PREFECT_HOME"] = str(home)
    console.print(f"Night {key}: starting Prefect and Ray …")
    from devtools.prefect.embedded import prefect_server
    from raysweep.live import LiveTable
    from raysweep_prefect.flows import nightly_sweep
    from raysweep_prefect.listening import listening

    with prefect_server(), LiveTable(console) as table, listening(table):
        return nightly_sweep(
            spec=spec.sweep,
            train_spec=spec.train,
            gate_spec=spec.gate,
            judge_spec=spec.judge,
            key=key,
            cluster=address,
            storage_path=storage,
        )


def _again() -> str:
    return " ".join(["python", "-m", "devtools.prefect.nightly", *map(shlex.quote, sys.argv[1:])])


if __name__ == "__main__":
    app()
