"""The evidence of a champion whose config was carried to the scale of its training."""

from __future__ import annotations

from pathlib import Path

from raysweep.outcome import TrainOutcome
from raysweep.outcome.predicted import Predicted
from raysweep.pages.evidence import evidence_page
from raysweep.runs.across_runs.evidence import read_chain
from raysweep.runs.across_runs.records import release_id
from raysweep.runs.across_runs.registrations import add_model
from raysweep.specs.carried import CarriedConfig
from raysweep.storage.objects.opening import open_store
from tests.unit.runs.across_runs.nights import LINE, add


def test_both_configs_and_both_scores_are_evidence(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    add(store, "n1", 0.5)
    champion = read_chain(store, LINE).record.champion
    assert champion is not None
    trained = TrainOutcome(
        run_id="full-1",
        name="full",
        status="completed",
        started_at=1.0,
        ended_at=2.0,
        carried=CarriedConfig(
            proxy={"rows": 100}, scale={"rows": 400}, best={"lr": 0.1}, config={"lr": 0.05}
        ),
        predicted=Predicted(metric="auc", mode="max", score=0.75, low=0.74, high=0.76, got=0.752),
    )
    release = release_id(LINE, *champion.identity)
    add_model(store, LINE, release, "s3://b/m", trained=trained)
    chain = read_chain(store, LINE)
    assert chain.flaws == ()
    model = chain.record.models[release]
    assert (model.run_id, model.carried, model.predicted) == ("full-1", trained.carried, trained.predicted)
    page = evidence_page(LINE, chain, chain.entries)
    assert "from rows=100 to rows=400: lr 0.1" in page
    assert "auc 0.752, predicted 0.75 (0.74 to 0.76)" in page
