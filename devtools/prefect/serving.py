"""`python -m devtools.prefect.serving`: a server, a worker, a Ray head and the deployments, until Ctrl-C."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.console import Console

from devtools.head import LocalHead, free_ports
from devtools.prefect.local import LocalPrefect
from devtools.servers import serve_until_interrupted

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
BLOCK = "ray"


@app.command()
def serve(
    home: Annotated[Path, typer.Option(help="The folder for everything.")] = Path(".prefect"),
    port: Annotated[int, typer.Option(help="Of the server; 0: a free one.")] = 4200,
    cpus: Annotated[int, typer.Option(help="The CPUs of the Ray head.")] = 2,
    prefect_file: Annotated[Path, typer.Option(help="The deployments.")] = Path("prefect.yaml"),
) -> None:
    """Start all of it on loopback, print where it is, and end it with Ctrl-C."""
    serve_until_interrupted(
        lambda stack, console: _start(
            stack, console, home.absolute(), port or free_ports(1)[0], cpus, prefect_file
        ),
        "Ctrl-C ends all of it; what was found stays. Again: the same command.",
    )


def _start(stack: ExitStack, console: Console, home: Path, port: int, cpus: int, prefect_file: Path) -> None:
    console.print("starting a Ray head, a Prefect server and a worker …")
    storage = home / "sweeps"
    storage.mkdir(parents=True, exist_ok=True)
    # A terminal sends Ctrl-C to all its processes: these are in groups of their own, and end in order.
    head = stack.enter_context(LocalHead(num_cpus=cpus))
    environment = {"RAYSWEEP_STORAGE": str(storage)}
    servers = stack.enter_context(LocalPrefect(home, port=port, environment=environment))
    _save_cluster(servers, head)
    servers.command("deploy", "--all", "--prefect-file", str(prefect_file), timeout_s=300)
    save_automations(servers, prefect_file)
    console.print(f"\n  Prefect      {servers.address}", soft_wrap=True)
    console.print(
        f"  Ray          {head.address}   (the block RayCluster/{BLOCK} has its token)", soft_wrap=True
    )
    console.print(f"  deployments  {servers.address}/deployments", soft_wrap=True)
    console.print(f"  storage      {storage}", soft_wrap=True)
    console.print("\nTonight, now:", soft_wrap=True)
    command = f"PREFECT_API_URL={servers.api} prefect deployment run nightly-sweep/flights"
    console.print(f"  {command}", soft_wrap=True)


def save_automations(servers: LocalPrefect, prefect_file: Path) -> None:
    """The automations of a file, in place of those of the same names."""
    names = {each["name"] for each in yaml.safe_load(prefect_file.read_text()).get("automations", ())}
    for known in servers.ask("POST", "/automations/filter", {}):
        if known["name"] in names:
            servers.ask("DELETE", f"/automations/{known['id']}")
    if names:
        servers.command("automation", "create", "--from-file", str(prefect_file))


def _save_cluster(servers: LocalPrefect, head: LocalHead) -> None:
    from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

    from raysweep_prefect.blocks import RayCluster

    with temporary_settings({PREFECT_API_URL: servers.api, PREFECT_HOME: servers.home}):
        RayCluster(address=head.address, token=head.token, trust_env=False).save(BLOCK, overwrite=True)


if __name__ == "__main__":
    app()
