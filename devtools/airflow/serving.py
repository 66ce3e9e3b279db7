"""`python -m devtools.airflow.serving`: an Airflow with a folder of DAGs, and a Ray head, until Ctrl-C."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from devtools.airflow.local import USER, LocalAirflow, connection_to
from devtools.head import LocalHead, free_ports
from devtools.servers import serve_until_interrupted

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def serve(
    home: Annotated[Path, typer.Option(help="The folder for everything.")] = Path(".airflow"),
    dags: Annotated[Path, typer.Option(help="The folder of DAG files.")] = Path("dags"),
    port: Annotated[int, typer.Option(help="Of Airflow's pages; 0: a free one.")] = 8080,
    cpus: Annotated[int, typer.Option(help="The CPUs of the Ray head.")] = 2,
    example: Annotated[str, typer.Option(help="The example that the nightly DAG runs by itself.")] = "quick",
) -> None:
    """Start all of it on loopback, print where it is, and end it with Ctrl-C."""
    serve_until_interrupted(
        lambda stack, console: _start(
            stack, console, home.absolute(), dags.absolute(), port or free_ports(1)[0], cpus, example
        ),
        "Ctrl-C ends all of it; the sweeps stay, Airflow's database is made anew.",
    )


def _start(
    stack: ExitStack, console: Console, home: Path, dags: Path, port: int, cpus: int, example: str
) -> None:
    console.print("starting a Ray head and Airflow: about half a minute …")
    sweeps, own = home / "sweeps", home / "home"
    shutil.rmtree(own, ignore_errors=True)
    sweeps.mkdir(parents=True, exist_ok=True)
    head = stack.enter_context(LocalHead(num_cpus=cpus))
    ours = {"RAYSWEEP_EXAMPLE": example, "PYTHONPATH": str(Path.cwd())}
    environment = connection_to(head, str(sweeps)) | ours
    airflow = stack.enter_context(LocalAirflow(own, dags=dags, port=port, environment=environment))
    console.print(f"\n  Airflow      {airflow.address}", soft_wrap=True)
    console.print(f"  login        {USER}  {airflow.password}", soft_wrap=True)
    console.print(f"  Ray          {head.address}   (the connection raysweep_default)", soft_wrap=True)
    console.print(f"  sweeps       {sweeps}", soft_wrap=True)
    console.print(f"  logs         {own}", soft_wrap=True)
    console.print(
        f"\nLast night runs now, as Airflow does it for a new DAG: {airflow.address}/dags/nightly_sweep\n"
        "The page of its sweep: the task `sweep`, tab Sweep. Another night: Trigger.",
        soft_wrap=True,
    )


if __name__ == "__main__":
    app()
