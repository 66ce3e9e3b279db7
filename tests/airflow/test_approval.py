"""Approval on a real Airflow: by its form, by `raysweep approve`, by silence; one truth everywhere."""

from __future__ import annotations

import itertools
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from raysweep.outcome import Decision
from raysweep.pipeline import with_gate
from raysweep.pipeline.candidate import find_candidate
from raysweep.runs.across_runs.champions import Line, read_champion
from raysweep.runs.across_runs.evidence import read_chain
from raysweep.specs.approval import ApprovalSpec
from raysweep.step import brief
from raysweep.storage.objects.opening import open_store
from raysweep_airflow.triggers import SETTLE_S
from tests.airflow.servers import Airflow, AirflowAnswerError
from tests.orchestrators.trainables import lines
from tests.unit.pipeline.gates import night, swept

pytestmark = [pytest.mark.servers, pytest.mark.ray, pytest.mark.timeout(900)]
_numbers = itertools.count(1)
LINE = Line(name="flights", metric="auc", mode="max")


class Desk:
    """Begins runs whose gates have ended, and answers their forms."""

    def __init__(self, airflow: Airflow, storage: Path) -> None:
        self.airflow, self.storage = airflow, storage

    def begin(
        self, key: str, score: float, timeout: float = 3600.0, data: str | None = None
    ) -> tuple[str, dict[str, Any]]:
        """A night with this score; returns the run, and what its gate handed on."""
        verdict = night(self.storage, key, score, approval=ApprovalSpec(timeout=timeout), data=data)
        outcome = brief(
            with_gate(swept(key, score).model_copy(update={"uri": f"{self.storage}/{key}"}), verdict)
        )
        self.airflow.wait_for_dag("approved")
        run_id = f"approved-{os.getpid()}-{next(_numbers)}"
        return self.airflow.trigger_run("approved", run_id, {"outcome": outcome}), outcome

    def waits(self, run_id: str, dag_id: str = "approved") -> dict[str, Any]:
        """Wait until the form is there; returns it."""
        self.airflow.wait_state(dag_id, run_id, "approve", "awaiting_input")
        time.sleep(SETTLE_S)  # as long as a person needs at least; before, Airflow itself may lose the answer
        found: dict[str, Any] = self.airflow.call("GET", self._path(dag_id, run_id))
        return found

    def answer(self, run_id: str, chosen: str, note: str = "", dag_id: str = "approved") -> None:
        body = {"chosen_options": [chosen], "params_input": {"note": note}}
        self.airflow.call("PATCH", self._path(dag_id, run_id), body)

    def ended(self, run_id: str, *states: str) -> dict[str, Any]:
        """The result of the approval, once it and the task behind it have these states."""
        for task_id, state in zip(("approve", "after"), states, strict=True):
            self.airflow.wait_state("approved", run_id, task_id, state)
        found: dict[str, Any] = self.airflow.xcom("approved", run_id, "approve")
        return found

    def decide(self, outcome: dict[str, Any], *, approved: bool) -> None:
        """As `raysweep approve` does."""
        candidate = find_candidate(outcome)
        assert candidate is not None
        candidate.decide(Decision(approved=approved, by="bob", at=time.time()))

    def truth(self, key: str) -> tuple[str, list[tuple[str, bool]]]:
        """Whose config is champion, and how the evidence has the night's decisions."""
        store = open_store(self.storage)
        champion, chain = read_champion(store, LINE).champion, read_chain(store, LINE)
        assert chain.flaws == ()
        told = [each.decision for each in chain.entries if each.key == key and each.decision is not None]
        return champion.key if champion is not None else "", [(each.by, each.approved) for each in told]

    def asset(self, *run_ids: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The events that these runs gave the asset of the champion, and its state."""
        path, name = "/assets/events", "flights-champion"
        found = self.airflow.call("GET", path, name_pattern=name, source_dag_id="approved", limit=100)
        events = [each for each in found["asset_events"] if each["source_run_id"] in run_ids]
        (asset,) = self.airflow.call("GET", "/assets", name_pattern=name)["assets"]
        answer = self.airflow.call("GET", f"/assets/{asset['id']}/state-store")
        rows = next(value for value in answer.values() if isinstance(value, list))
        return events, {row["key"]: row["value"] for row in rows}

    @staticmethod
    def _path(dag_id: str, run_id: str) -> str:
        return f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/approve/-1/hitlDetails"


@pytest.fixture
def desk(airflow: Airflow, tmp_path: Path) -> Desk:
    return Desk(airflow, tmp_path / "sweeps")


def test_approved_rejected_and_silent_nights(desk: Desk) -> None:
    first, _ = desk.begin("n1", 0.5)
    form = desk.waits(first)
    assert form["subject"] == "Promote flights@n1?"
    assert "| trial 00000 |" in form["body"]
    desk.answer(first, "Approve", "looks good")
    result = desk.ended(first, "success", "success")
    assert result["promoted"] is True
    user = result["gate"]["approval"]["decision"]["by"]
    assert user == desk.airflow.login["username"].title() or user == desk.airflow.login["username"]
    why = desk.airflow.xcom("approved", first, "after")
    assert f"approved by {user}" in why
    assert why.endswith(": looks good")
    assert desk.truth("n1") == ("n1", [(user, True)])

    second, _ = desk.begin("n2", 0.6)
    desk.waits(second)
    desk.answer(second, "Reject")
    result = desk.ended(second, "success", "skipped")
    assert result["promoted"] is False
    assert desk.truth("n2") == ("n1", [(user, False)])

    third, _ = desk.begin("n3", 0.7, timeout=12.0)
    desk.waits(third)
    assert desk.ended(third, "success", "skipped")["promoted"] is False
    assert desk.truth("n3") == ("n1", [("silence", False)])

    fourth, outcome = desk.begin("n4", 0.4, data="west")
    desk.decide(outcome, approved=True)
    assert desk.ended(fourth, "success", "success")["promoted"] is True
    events, state = desk.asset(first, second, third, fourth)
    # One for each promotion, and each data set has its champion.
    assert [(each["source_run_id"], each["partition_key"]) for each in events] == [
        (first, None),
        (fourth, "west"),
    ]
    told = [each["extra"]["champion"] for each in events]
    assert [each["sweep_id"] for each in told] == ["n1", "n4"]
    assert told[0] | {"spec_digest": "spec-n1", "trial_id": "00000"} == told[0]
    assert told[0]["uri"].endswith("/n1/checkpoints/00000/3")
    assert state == {"champion": told[0], "champion.west": told[1]}


def test_what_is_approved_twice_is_approved_once(desk: Desk) -> None:
    run_id, outcome = desk.begin("n1", 0.5)
    desk.waits(run_id)
    desk.decide(outcome, approved=True)
    with suppress(AirflowAnswerError):  # it may have seen the decision already, and be over
        desk.answer(run_id, "Reject")
    result = desk.ended(run_id, "success", "success")
    assert (result["promoted"], result["gate"]["approval"]["decision"]["by"]) == (True, "bob")
    assert desk.truth("n1") == ("n1", [("bob", True)])


@pytest.mark.slow
def test_it_continues_by_a_decision_on_the_command_line(desk: Desk) -> None:
    run_id, outcome = desk.begin("n1", 0.5)
    desk.waits(run_id)
    desk.decide(outcome, approved=False)
    assert desk.ended(run_id, "success", "skipped")["promoted"] is False
    assert desk.truth("n1") == ("", [("bob", False)])


@pytest.mark.slow
def test_cleared_it_asks_again_until_there_is_a_decision_and_then_never(desk: Desk) -> None:
    run_id, _ = desk.begin("n1", 0.5)
    desk.waits(run_id)
    desk.airflow.clear("approved", run_id, "approve")
    desk.waits(run_id)
    desk.answer(run_id, "Approve")
    desk.ended(run_id, "success", "success")
    before = desk.truth("n1")
    desk.airflow.clear("approved", run_id, "approve", downstream=True)
    time.sleep(1.0)
    assert desk.ended(run_id, "success", "success")["promoted"] is True
    assert desk.truth("n1") == before


@pytest.mark.slow
def test_an_answer_while_the_scheduler_restarts_counts(desk: Desk) -> None:
    run_id, _ = desk.begin("n1", 0.5)
    desk.waits(run_id)
    desk.airflow.kill("scheduler")
    desk.answer(run_id, "Approve")
    desk.airflow.start_component("scheduler")
    assert desk.ended(run_id, "success", "success")["promoted"] is True
    assert desk.truth("n1")[0] == "n1"


@pytest.mark.slow
def test_a_whole_night_waits_with_nothing_held_and_trains_what_is_approved(
    desk: Desk, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.touch()
    storage = str(tmp_path / "sweeps")
    sweep = {
        "name": "night",
        "trainable": "tests.orchestrators.trainables:trial",
        "param_space": {"x": {"choice": [0.5]}, "log": str(log)},
        "metric": "loss",
        "mode": "min",
        "num_samples": 1,
        "storage_path": storage,
    }
    train = {"name": "full", "trainable": "tests.orchestrators.trainables:train", "storage_path": storage}
    desk.airflow.wait_for_dag("night_approved")
    run_id = f"whole-{os.getpid()}"
    desk.airflow.trigger_run("night_approved", run_id, {"sweep": sweep, "train": train})
    for task_id in ("sweep", "gate"):
        desk.airflow.wait_state("night_approved", run_id, task_id, "success", timeout_s=240)
    body = desk.waits(run_id, "night_approved")["body"]
    assert f"/runs/{run_id}/tasks/gate/plugin/raysweep" in body
    assert [line[0] for line in lines(log)].count("train") == 0
    desk.answer(run_id, "Approve", dag_id="night_approved")
    desk.airflow.wait_state("night_approved", run_id, "train", "success", timeout_s=240)
    assert ["trained", "0.5"] in lines(log)
    champion = read_champion(open_store(storage), Line(name="night", metric="loss", mode="min")).champion
    assert champion is not None
    assert champion.config["x"] == 0.5
