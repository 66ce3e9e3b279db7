"""`python -m devtools.airflow.nightly`: the nightly DAG once, by `airflow dags test`, with a Ray of its own.

No servers: the tasks run in one process, one after the other. Airflow's own output goes to a file; what the
sweep is doing is read from its storage, and shown as it goes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import typer

import raysweep as rs
from devtools.airflow.local import LocalAirflow
from devtools.head import free_ports
from devtools.servers import LocalServersError
from raysweep.cli.sweep_summary import print_night
from raysweep.errors import SweepInterrupted
from raysweep.live import LiveTable
from raysweep.outcome import SweepOutcome, TrainOutcome
from raysweep.pipeline import training_request, with_gate
from raysweep.runs.across_runs.verdicts import newest_verdict
from raysweep.runs.folder import SweepFolder, list_sweeps
from raysweep.runs.training import RunFolder
from raysweep.specs import SweepSpec, TrainSpec
from raysweep.step.brief import why_not_trained
from raysweep.storage.objects.opening import open_store
from raysweep.terminal import TextConsole

DAG_ID: Final = "nightly_sweep"
LOOK_S: Final = 0.5
END_S: Final = 40.0
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def nightly(
    storage: Annotated[str, typer.Option(help="The folder for everything.")] = ".nightly",
    example: Annotated[str, typer.Option(help="`flights`, or `quick`, which takes seconds.")] = "flights",
    deadline: Annotated[str, typer.Option(help="The end of the sweep.")] = "06:00 Europe/Berlin",
    specs: Annotated[Path, typer.Option(help="The folder of the examples.")] = Path("examples"),
    dags: Annotated[Path, typer.Option(help="The folder of DAG files.")] = Path("dags"),
    home: Annotated[Path, typer.Option(help="Airflow's own folder.")] = Path(".nightly/airflow"),
) -> None:
    """Sweep, gate, train, as the DAG does it. Each call is a run, and so a night, of its own."""
    console = TextConsole()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        night = Night(storage, example, specs)
        console.print(f"The DAG {DAG_ID}: starting Airflow and Ray …")
        is_done = _run(console, night, home.absolute(), dags.absolute(), deadline)
        sweep, train = night.found()
    except KeyboardInterrupt:
        console.print("interrupted", soft_wrap=True)
        raise typer.Exit(SweepInterrupted.exit_code) from None
    except (rs.RaysweepError, LocalServersError) as error:
        TextConsole(stderr=True).print(f"error: {error}", soft_wrap=True)
        raise typer.Exit(getattr(error, "exit_code", 1)) from None
    if sweep is not None:
        skipped = why_not_trained(sweep)
        print_night(console, sweep, train, skipped=skipped)
    if not is_done:
        log = home.absolute() / "dags-test.log"
        TextConsole(stderr=True).print(
            f"\nThe DAG failed.\n{_errors(log)}\nAirflow's output: {log}",
            soft_wrap=True,
        )
        raise typer.Exit(1)


class Night:
    """One run of the DAG, as its storage tells of it. Raises: SpecError for specs or a storage of no use."""

    def __init__(self, storage: str, example: str, specs: Path) -> None:
        self.storage = storage if "://" in storage else os.path.abspath(os.path.expanduser(storage))
        self.example = example
        self.sweep = SweepSpec.from_file(specs / example / "sweep.yaml")
        self.train = TrainSpec.from_file(specs / example / "train.yaml")
        self.store = open_store(self.storage)
        self.store.check_writable()
        self._earlier = frozenset(list_sweeps(self.store))
        self._key = ""
        self._folder: SweepFolder | None = None

    def folder(self) -> SweepFolder | None:
        """The run's sweep, once it has begun: Airflow names the run, and so the sweep."""
        if self._folder is None:
            for name in frozenset(list_sweeps(self.store)) - self._earlier:
                folder = SweepFolder(self.store, name)
                record = folder.read_spec()
                if record is not None and record.key.startswith(f"{DAG_ID}/sweep/"):
                    self._folder, self._key = folder, record.key
        return self._folder

    def found(self) -> tuple[SweepOutcome | None, TrainOutcome | None]:
        """The outcomes of sweep and training, the gate's verdict with the sweep."""
        folder = self.folder()
        if folder is None:
            return None, None
        outcome = folder.read_outcome()
        verdict = newest_verdict(self.store, folder.sweep_id)
        if outcome is None or outcome.found_best is None:
            return outcome, None
        if verdict is not None:
            outcome = with_gate(outcome, verdict)
        train = self.train.replace(storage_path=self.storage)
        request = training_request(train, outcome, self._key.replace("/sweep/", "/train/", 1))
        return outcome, RunFolder(self.store, request.run.id).read_outcome()


def _run(console: TextConsole, night: Night, home: Path, dags: Path, deadline: str) -> bool:
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
        airflow.command("db", "migrate")
        conf = json.dumps({"example": night.example, "deadline": deadline, "storage": night.storage})
        process = airflow.start_command("dags-test", "dags", "test", DAG_ID, "--conf", conf)
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


def _follow(console: TextConsole, night: Night, process: subprocess.Popen[bytes]) -> None:
    """Show the sweep while it runs, and say when the gate and the training are at work."""
    with LiveTable(console) as table:
        while process.poll() is None:
            folder = night.folder()
            if folder is not None and folder.read_outcome() is not None:
                break
            progress = folder.read_progress() if folder is not None else None
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


if __name__ == "__main__":
    app()
