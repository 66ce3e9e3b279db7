"""`python -m raysweep_airflow.nightly`: the nightly DAG once, by `airflow dags test`, with a Ray of its own.

No servers: the tasks run in one process, one after the other. Airflow's own output goes to a file; what the
sweep is doing is read from its storage, and shown as it goes.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import pendulum
import typer
from rich.console import Console

import raysweep as rs
from raysweep.jobs.view import Asked
from raysweep.live import LiveTable
from raysweep.outcome import GateOutcome, SweepOutcome, TrainOutcome
from raysweep.pipeline import with_gate
from raysweep.pipeline.gate import RESULT
from raysweep.pipeline.night import why_skipped
from raysweep.pipeline.summary import print_night
from raysweep.spec import SweepSpec, TrainSpec, sweep_id
from raysweep.storage.folder import SweepFolder
from raysweep.storage.store import Store, open_store
from raysweep.testing.head import free_ports
from raysweep.training.folder import RunFolder
from raysweep_airflow.local import LocalAirflow, LocalAirflowError

DAG_ID: Final = "nightly_sweep"
LOOK_S: Final = 0.5
END_S: Final = 40.0
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def nightly(
    key: Annotated[str | None, typer.Option(help="The night, a date; default: today.")] = None,
    storage: Annotated[str, typer.Option(help="Where everything is kept.")] = ".nightly",
    example: Annotated[str, typer.Option(help="`flights`, or `quick`, which takes seconds.")] = "flights",
    deadline: Annotated[str, typer.Option(help="When the sweep is over.")] = "06:00 Europe/Berlin",
    specs: Annotated[Path, typer.Option(help="The folder of the examples.")] = Path("examples"),
    dags: Annotated[Path, typer.Option(help="The folder of DAG files.")] = Path("dags"),
    home: Annotated[Path, typer.Option(help="Airflow's own folder.")] = Path(".nightly/airflow"),
) -> None:
    """Sweep, gate, train, as the DAG does it. The same key again: go on where it stopped."""
    console = Console()
    began = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        night = Night.of(key, storage, example, specs)
        console.print(f"Night [bold]{night.name}[/]: starting Airflow and Ray …")
        is_done = _run(console, night, home.absolute(), dags.absolute(), deadline)
        sweep, train = night.found()
    except KeyboardInterrupt:
        console.print(f"[yellow]interrupted[/]\nGo on with: {_again()}", soft_wrap=True)
        raise typer.Exit(rs.SweepInterrupted.exit_code) from None
    except (rs.RaysweepError, LocalAirflowError) as error:
        Console(stderr=True).print(f"[red]error:[/] {error}", soft_wrap=True, highlight=False)
        raise typer.Exit(getattr(error, "exit_code", 1)) from None
    if sweep is not None:
        skipped = why_skipped(night.train, sweep)
        print_night(console, sweep, train, skipped=skipped, seconds=time.monotonic() - began)
    if not is_done:
        log = home.absolute() / "dags-test.log"
        Console(stderr=True).print(
            f"\n[red]The DAG failed.[/]\n{_errors(log)}\nAirflow's output: {log}",
            soft_wrap=True,
            highlight=False,
        )
        raise typer.Exit(1)


class Night:
    """One night of the DAG: when it is, and where its sweep and training lie."""

    def __init__(self, at: datetime, storage: str, example: str, sweep: SweepSpec, train: TrainSpec) -> None:
        self.at = at
        self.storage = storage
        self.example = example
        self.sweep = sweep
        self.train = train
        # As `airflow dags test` names the run, and the operators their sweeps.
        self.run_id = f"manual__{at.isoformat()}"
        self.store: Store = open_store(storage)
        self.sweep_id = sweep_id(sweep.name, f"{DAG_ID}/sweep/{self.run_id}")

    @classmethod
    def of(cls, key: str | None, storage: str, example: str, specs: Path) -> Night:
        """The night of a date, at 22:00 in Berlin. Raises: SpecError."""
        try:
            day = pendulum.from_format(key or time.strftime("%Y-%m-%d"), "YYYY-MM-DD", tz="Europe/Berlin")
        except ValueError:
            raise rs.SpecError("--key", f"{key!r} is no date", "write it as 2026-11-21") from None
        path = storage if "://" in storage else os.path.abspath(os.path.expanduser(storage))
        open_store(path).check_writable()
        return cls(
            day.at(22).in_timezone("UTC"),
            path,
            example,
            SweepSpec.from_file(specs / f"{example}.yaml"),
            TrainSpec.from_file(specs / f"{example}_train.yaml"),
        )

    @property
    def name(self) -> str:
        """The night's date."""
        return pendulum.instance(self.at).in_timezone("Europe/Berlin").to_date_string()

    def found(self) -> tuple[SweepOutcome | None, TrainOutcome | None]:
        """How sweep and training ended, the gate's verdict with the sweep."""
        outcome = SweepFolder(self.store, self.sweep_id).read_outcome()
        verdict = self.store.get(f"{self.sweep_id}/{RESULT}")
        if outcome is not None and verdict is not None:
            outcome = with_gate(outcome, GateOutcome.from_json(verdict))
        asked = Asked.of(self.train, f"{DAG_ID}/train/{self.run_id}")
        return outcome, RunFolder(self.store, asked.run_id).read_outcome()


def _run(console: Console, night: Night, home: Path, dags: Path, deadline: str) -> bool:
    """Run the DAG and show its sweep; whether the run succeeded."""
    shutil.rmtree(home, ignore_errors=True)
    environment = {
        "RAYSWEEP_ADDRESS": "local",
        "RAYSWEEP_STORAGE": night.storage,
        "PYTHONPATH": os.getcwd(),
    }
    airflow = LocalAirflow(home, dags=dags, port=free_ports(1)[0], environment=environment)
    home.mkdir(parents=True)
    try:
        airflow.run("db", "migrate")
        conf = json.dumps({"example": night.example, "deadline": deadline, "storage": night.storage})
        arguments = ("dags", "test", DAG_ID, night.at.isoformat(), "--conf", conf)
        process = airflow.start_command(*arguments, log=home / "dags-test.log")
        try:
            _follow(console, night, process)
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            raise
        return process.wait() == 0
    finally:
        airflow.close()


def _follow(console: Console, night: Night, process: subprocess.Popen[bytes]) -> None:
    """Show the sweep while it runs, and say when the gate and the training are at work."""
    folder = SweepFolder(night.store, night.sweep_id)
    with LiveTable(console) as table:
        while process.poll() is None and folder.read_outcome() is None:
            progress = folder.read_progress()
            if progress is not None:
                table(progress)
            time.sleep(LOOK_S)
    if process.poll() is None:
        console.print("The sweep is done: the gate, then the training …")
    process.wait()


def _errors(log: Path) -> str:
    """The last lines of Airflow's output that speak of an error."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join([line for line in lines if "error" in line.lower()][-8:])


def _again() -> str:
    return " ".join(["python", "-m", "raysweep_airflow.nightly", *map(shlex.quote, sys.argv[1:])])


if __name__ == "__main__":
    app()
