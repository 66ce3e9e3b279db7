"""The line of a gate has the score of its training and what a law predicted: once, without a registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raysweep.outcome import TrainOutcome
from raysweep.outcome.predicted import Predicted
from raysweep.pages.evidence import evidence_page
from raysweep.pipeline.registering import record_training
from raysweep.runs.across_runs.champions import Champion, ChampionRecord, Night, read_champion
from raysweep.runs.across_runs.evidence import read_chain
from raysweep.runs.across_runs.releases import add_night
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from tests.unit.runs.across_runs.nights import LINE

PREDICTED = Predicted(metric="auc", mode="max", score=0.75, low=0.74, high=0.76, got=0.752)
FAR = Predicted(metric="auc", mode="max", score=0.75, low=0.74, high=0.76, got=0.7)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = open_store(tmp_path)

    def decide(record: ChampionRecord) -> tuple[Night, Champion | None]:
        return Night(sweep_id="n1", key="k1", gate="g1", at=1.0, promoted=False, why="no better"), None

    add_night(found, LINE, "n1", decide, gate="g1")
    return found


def trained(predicted: Predicted | None = PREDICTED) -> TrainOutcome:
    return TrainOutcome(
        run_id="full-1",
        name="full",
        status="completed",
        started_at=1.0,
        ended_at=2.0,
        predicted=predicted,
    )


def brief(store: Store, **changes: Any) -> dict[str, Any]:
    return {"name": LINE.name, "uri": f"{store.url}/n1", "gate": {"gate_id": "g1"}} | changes


def test_a_training_is_recorded_once(store: Store) -> None:
    for _ in range(2):
        record_training(brief(store), trained())
    chain = read_chain(store, LINE)
    assert chain.flaws == ()
    gate, training = chain.entries
    assert (gate.kind, training.kind, training.key) == ("gate", "training", "k1")
    assert training.predicted == PREDICTED
    assert not training.promoted
    [night] = read_champion(store, LINE).history
    assert (night.trained, night.predicted) == ("full-1", PREDICTED)
    record_training(brief(store), trained(FAR))
    assert read_champion(store, LINE).history[0].predicted == FAR, "it was trained again"


@pytest.mark.parametrize(
    "changes",
    [{"gate": None}, {"gate": {}}, {"gate": {"gate_id": "other"}}, {"uri": ""}, {"name": "another"}],
)
def test_without_a_gate_nothing_is_recorded(store: Store, changes: dict[str, Any]) -> None:
    record_training(brief(store, **changes), trained())
    record_training(None, trained())
    record_training(brief(store), trained(None))
    assert len(read_chain(store, LINE).entries) == (2 if changes == {"name": "another"} else 1)


def test_the_page_says_how_good_the_prediction_was(store: Store) -> None:
    for predicted, said in ((PREDICTED, "trained, as predicted"), (FAR, "trained, not as predicted")):
        record_training(brief(store), trained(predicted))
        chain = read_chain(store, LINE)
        page = evidence_page(LINE, chain, chain.entries[-1:])
        assert said in page
        assert str(predicted) in page
