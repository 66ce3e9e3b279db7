"""Nights of `nightly_sweep` whose sweep and gate have ended before the flow run: they need no Ray."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from raysweep.outcome import TrainOutcome
from raysweep.pipeline import training_request
from raysweep.pipeline.gate import prepare_gate
from raysweep.runs.across_runs.champions import Line, read_champion
from raysweep.runs.across_runs.evidence import read_chain
from raysweep.runs.training import RunFolder
from raysweep.specs import TrainSpec
from raysweep.specs.approval import read_approval
from raysweep.specs.identity import slug
from raysweep.storage.objects.opening import open_store
from tests.begun_trainings import begin_training
from tests.orchestrators.prefect import PrefectOrchestrator, ask_patiently
from tests.prefect.flowruns import create
from tests.prefect.shelf import shelved
from tests.unit.pipeline.gates import configs, gave
from tests.unit.verify.stored import store_sweep

FORM = "paused-approval-"
PATIENCE_S = 240.0
"""Of a machine with other work."""


class Desk:
    """Begins nights, answers their forms, and looks at what is true of them.

    Args:
        prefect: The servers.
        home: A folder of its own.
    """

    def __init__(self, prefect: PrefectOrchestrator, home: Path) -> None:
        self.prefect, self.home = prefect, home
        self.storage = home / "store"
        self.shelf = home / "shelf"
        self.name = slug(home.name)
        """For champions of its own."""

    # --- nights

    def night(self, key: str, score: float = 1.0, *, champion: str = "", **fields: Any) -> dict[str, Any]:
        """The parameters of a night of which sweep and gate have ended; the gate promotes its candidate.

        Args:
            key: Names it.
            score: Of each seed in the gate.
            champion: Names the line of champions; default: `night`.
            fields: Further parameters.
        """
        stored = store_sweep(self.home, is_ended=True, key=key)
        outcome = stored.folder.read_outcome()
        assert outcome is not None
        gate = {"confirm_top_k": 1, "seeds": 2, "test": "mean", "champion": champion or "night"}
        prepared = prepare_gate(stored.asked.spec, outcome, gate, read_approval(fields.get("approval")))
        if prepared.verdict is None:
            # The candidate, and after it the champion, which is worse tonight.
            again = [score, *(score + 1.0 for _ in configs(prepared)[1:])]
            prepared.settle(gave(prepared, *again, *again))
        registry = {"tests.prefect.shelf:Shelf": {"path": str(self.shelf)}}
        spec = stored.asked.spec.to_dict()
        return {"spec": spec, "gate_spec": gate, "key": key, "registry": registry, **fields}

    def begin(self, parameters: dict[str, Any]) -> str:
        """Begin a run of the deployment; returns the flow run's id."""
        return create(self.prefect.servers, self.prefect._deployment, parameters)

    def end(self, run: str, state: str = "COMPLETED") -> dict[str, tuple[str, str]]:
        """Wait for the flow run's end; the name and the message of the last state of each task."""
        self.prefect.wait_for(run, "COMPLETED", "FAILED", "CRASHED", "CANCELLED", timeout_s=PATIENCE_S)
        found = self.prefect._flow_run(run)
        assert found["state_type"] == state, (found["state"], self.prefect._logs(run))
        # The server learns the states of tasks by events, some time after that of the flow run.
        return wait_until(lambda: None if _are_open(found := self.tasks(run)) else found)

    def tasks(self, run: str) -> dict[str, tuple[str, str]]:
        """The name and the message of the last state of each task, by the first word of its name."""
        asked = {"flow_runs": {"id": {"any_": [run]}}}
        rows = ask_patiently(self.prefect.servers, "POST", "/task_runs/filter", asked)
        rows.sort(key=lambda row: str(row["created"]))
        return {row["name"].split()[0]: (row["state_name"], str(row["state"]["message"])) for row in rows}

    # --- forms

    def waits(self, run: str) -> str:
        """Wait until the flow run is paused; the text of its form."""
        self.prefect.wait_for(run, "PAUSED", timeout_s=PATIENCE_S)
        return max(self.forms(run).values(), key=len)

    def forms(self, run: str) -> dict[str, str]:
        """The forms of a flow run, by their keys, and what was answered."""
        asked = {"prefix": FORM, "limit": 200, "exclude_keys": []}
        rows = ask_patiently(self.prefect.servers, "POST", f"/flow_runs/{run}/input/filter", asked)
        return {row["key"]: row["value"] for row in rows}

    def answer(self, run: str, *, approved: bool, by: str = "ann", note: str = "") -> str:
        """Answer the form, as Prefect's page does; what the server made of it."""
        given = {"run_input": {"approved": approved, "by": by, "note": note}}
        return str(ask_patiently(self.prefect.servers, "POST", f"/flow_runs/{run}/resume", given)["status"])

    # --- what is true

    def truth(self, key: str, champion: str = "night") -> tuple[str, list[tuple[str, bool]], list[str]]:
        """Whose night is champion, how the evidence has the night's decisions, and what the registry got."""
        store, line = open_store(self.storage), Line(name=champion, metric="loss", mode="min")
        now, chain = read_champion(store, line).champion, read_chain(store, line)
        assert chain.flaws == ()
        told = [each.decision for each in chain.entries if each.key == key and each.decision is not None]
        return (
            now.key if now is not None else "",
            [(each.by, each.approved) for each in told],
            [each for each in shelved(self.shelf) if each == key],
        )

    def events(self, what: str, champion: str = "night") -> list[dict[str, Any]]:
        """The events about a line of champions."""
        found = self.prefect.events(f"raysweep.champion.{what}")
        resource = f"raysweep.champion.{champion}"
        return [each for each in found if each["resource"]["prefect.resource.id"] == resource]


def _are_open(tasks: dict[str, tuple[str, str]]) -> bool:
    return any(state in ("Pending", "Running") for state, _ in tasks.values())


def store_training(storage: Path, key: str, took_s: float) -> dict[str, Any]:
    """A training's spec, of which one has completed before, in so many seconds."""
    fields = {"name": "full", "trainable": "m:f", "storage_path": str(storage)}
    request = training_request(TrainSpec.model_validate(fields), None, key)
    folder = RunFolder(open_store(storage), request.run.id)
    begin_training(folder, request.spec, request.run.key)
    ended = {"started_at": 1.0, "ended_at": 1.0 + took_s}
    folder.write_outcome(TrainOutcome(run_id=request.run.id, name="full", status="completed", **ended))
    return fields


def wait_until(holds: Callable[[], Any], timeout_s: float = 120.0) -> Any:
    """Wait until it holds; what it gave."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            found = holds()
        except httpx.HTTPError:
            found = None
        if found:
            return found
        assert time.monotonic() < deadline, "it never was so"
        time.sleep(0.2)
