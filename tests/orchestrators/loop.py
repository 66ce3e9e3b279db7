"""A third orchestrator: a plain loop that retries, as cron would start it; its state is a folder."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from raysweep.errors import RaysweepError
from raysweep.jobs import JobOptions
from raysweep.pipeline import prepare_gate, training_request, with_gate
from raysweep.specs import RunRequest, SweepSpec, TrainSpec
from raysweep.step import Canceller, Intent, Place, Step, brief, connected, details_of, why_not_trained
from tests.jobs.head import ROOT, Head
from tests.orchestrators.suite import Night, State


def run_night(folder: Path) -> None:
    """The steps in order; the folder is the key."""
    night, key = json.loads((folder / "night.json").read_text()), str(folder)
    how: dict[str, Any] = {"options": JobOptions(**night["job"]), "place": Place.of(os.environ["HEAD"])}
    how["accept_partial"] = night["accept_partial"]

    def tried(name: str, request: Callable[[], Any]) -> Any:
        for left in reversed(range(night["retries"] + 1)):
            note(folder, name, "running", tries=read(folder, name)["tries"] + 1)
            intent, why = Intent(), (folder / "over").read_text
            try:
                step = Step(request=request(), **how)
                outcome = step.finish(step.run(announce=intent.announce))
                note(folder, name, "success", brief=brief(outcome))
                return outcome
            except KeyboardInterrupt:
                # Who is ended cancels nothing, unless a person has left word why it is over.
                to = connected(step.cluster.connection)
                asyncio.run(Canceller(to=to, by="a loop", log=logging).call_off_if_over(intent, why))
                note(folder, name, "cancelled")
                raise
            except RaysweepError as error:
                print(f"{name}: {error}\n{details_of(error)}", flush=True)
                if not error.retryable or not left:
                    note(folder, name, "failed")
                    raise
                time.sleep(1)

    outcome = tried("sweep", lambda: RunRequest.of(SweepSpec.from_any(night["sweep"]), key))
    if night["gate"] is not None:
        gate = prepare_gate(night["sweep"], outcome, night["gate"])
        outcome = with_gate(outcome, gate.verdict or gate.settle(tried("gate", lambda: gate.request)))
    if night["train"] is not None and why_not_trained(outcome):
        note(folder, "train", "skipped")
    elif night["train"] is not None:
        train = TrainSpec.from_any(night["train"])
        tried("train", lambda: training_request(train, outcome, key))


def read(folder: Path | str, name: str) -> dict[str, Any]:
    path = Path(folder, f"{name}.json")
    return dict(json.loads(path.read_text())) if path.exists() else {"state": "waiting", "tries": 0}


def note(folder: Path, name: str, state: State, **more: Any) -> None:
    (folder / "new").write_text(json.dumps(read(folder, name) | more | {"state": state}))
    (folder / "new").replace(folder / f"{name}.json")


class LoopOrchestrator:
    """Each night is a process of its own; a run is named by its folder."""

    def __init__(self, head: Head, home: Path) -> None:
        self.env = os.environ | {"HEAD": head.address, "RAY_AUTH_TOKEN": head.token}
        self.home, self.processes = home, dict[str, subprocess.Popen[bytes]]()

    def begin(self, night: Night) -> str:
        (folder := self.home / f"night {len(self.processes)}").mkdir()
        (folder / "night.json").write_text(json.dumps(asdict(night)))
        (folder / "over").touch()
        self.again(str(folder))
        return str(folder)

    def state(self, run: str, step: str) -> Any:
        return read(run, step)["state"]

    def tries(self, run: str, step: str) -> int:
        return int(read(run, step)["tries"])

    def handed_on(self, run: str) -> Mapping[str, Any]:
        return dict(read(run, "sweep")["brief"])

    def message(self, run: str, step: str) -> str:
        return Path(run, "log").read_text()

    def shown(self, run: str) -> str:
        return "".join(path.read_text() for path in Path(run).iterdir())

    def kill_step(self, run: str) -> None:
        self.processes[run].kill()
        self.again(run)

    kill_submission = kill_step

    def move(self, run: str, night: Night) -> str:
        Path(run, "night.json").write_text(json.dumps(asdict(night)))
        for step in ("sweep", "gate", "train"):
            Path(run, f"{step}.json").unlink(missing_ok=True)
        self.again(run)
        return run

    def cancel(self, run: str) -> None:
        Path(run, "over").write_text("its night was cancelled")
        self.processes[run].terminate()

    def reach(self, address: str) -> None:
        self.env["HEAD"] = address

    def again(self, run: str) -> None:
        command = [sys.executable, "-m", "tests.orchestrators.loop", run]
        with Path(run, "log").open("ab") as log:
            self.processes[run] = subprocess.Popen(command, cwd=ROOT, env=self.env, stdout=log, stderr=log)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run_night(Path(sys.argv[1]))
