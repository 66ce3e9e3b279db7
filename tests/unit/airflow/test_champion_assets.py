"""Outlets of gate and approval: an event for each promotion, none without, a partition for each data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, Asset
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.sdk.execution_time.context import OutletEventAccessors

from raysweep.pipeline import with_gate
from raysweep.step import brief
from raysweep_airflow import ApproveOperator, GateOperator
from raysweep_airflow.champion_assets import announce
from tests.unit.pipeline.gates import night, swept

CHAMPION = Asset("flights-champion")
SPEC = {
    "name": "flights",
    "trainable": "m:f",
    "param_space": {"x": {"uniform": [0, 1]}},
    "metric": "auc",
    "mode": "max",
}


class State(dict[str, Any]):
    """In place of an asset's state."""

    is_down = False

    def set(self, key: str, value: Any) -> None:
        if self.is_down:
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.ASSET_NOT_FOUND))
        self[key] = value


def handed(storage: Path, key: str, score: float, data: str | None = None) -> dict[str, Any]:
    verdict = night(storage, key, score, data=data)
    outcome = swept(key, score).model_copy(update={"uri": f"{storage}/{key}"})
    return brief(with_gate(outcome, verdict))


def announced(result: dict[str, Any], state: State) -> tuple[Any, list[Any]]:
    """The accessor of the asset's event, and the outlets that Airflow makes events for."""
    with DAG("d", schedule=None):
        gate = GateOperator(task_id="gate", spec=SPEC, outcome=result, outlets=[CHAMPION])
    events = OutletEventAccessors()
    gate.announce({"outlet_events": events, "asset_state_store": {CHAMPION: state}}, result)
    return events[CHAMPION], list(gate.outlets)


def test_only_a_promotion_is_an_event_and_the_state_has_the_champion(tmp_path: Path) -> None:
    state = State()
    event, outlets = announced(handed(tmp_path, "n1", 0.5), state)
    assert outlets == [CHAMPION]
    told = event.extra["champion"]
    wanted = {"sweep_id": "n1", "trial_id": "00000", "spec_digest": "spec-n1", "code_digest": "code-n1"}
    assert told | wanted == told
    assert told["uri"] == f"{tmp_path}/n1/checkpoints/00000/3"
    assert event.extra["promoted"] is True
    assert state == {"champion": told}

    event, outlets = announced(handed(tmp_path, "n2", 0.4), state)
    assert (event.extra, outlets) == ({}, [])
    assert state == {"champion": told}


def test_each_data_set_is_a_partition_with_its_own_champion(tmp_path: Path) -> None:
    state = State()
    event, _ = announced(handed(tmp_path, "n1", 0.5, "west"), state)
    assert event.partition_keys == {"west"}
    event, _ = announced(handed(tmp_path, "n2", 0.4, "east"), state)
    assert event.partition_keys == {"east"}
    assert {key: each["sweep_id"] for key, each in state.items()} == {
        "champion.west": "n1",
        "champion.east": "n2",
    }


def test_a_task_that_is_cleared_after_the_next_promotion_announces_nothing(tmp_path: Path) -> None:
    state, first = State(), handed(tmp_path, "n1", 0.5)
    handed(tmp_path, "n2", 0.9)
    event, outlets = announced(first, state)
    assert (event.extra, outlets) == ({}, [])
    assert state["champion"]["sweep_id"] == "n2"


def test_a_state_that_is_not_written_costs_a_line_in_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = State()
    state.is_down = True
    event, _ = announced(handed(tmp_path, "n1", 0.5), state)
    assert event.extra["champion"]["sweep_id"] == "n1"
    assert "the state of asset flights-champion was not written" in "".join(capsys.readouterr())


def test_an_approval_announces_and_an_airflow_without_states_is_enough(tmp_path: Path) -> None:
    result = handed(tmp_path, "n1", 0.5)
    with DAG("d", schedule=None):
        approve = ApproveOperator(task_id="approve", outcome=result, outlets=[CHAMPION])
    events = OutletEventAccessors()
    announce(approve, {"outlet_events": events}, result)
    assert events[CHAMPION].extra["champion"]["sweep_id"] == "n1"
