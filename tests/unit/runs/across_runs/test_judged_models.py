"""A line of champions whose models are judged: what is champion is what was released."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import StorageError
from raysweep.hooks.model_registry import RegistrySpec
from raysweep.judge.model import digest_of_model
from raysweep.outcome import Decision
from raysweep.outcome.judgement import JudgedModel, Judgement
from raysweep.outcome.predicted import Predicted
from raysweep.pages.evidence import evidence_page
from raysweep.runs.across_runs.approvals import decide_night
from raysweep.runs.across_runs.champions import Champion, ChampionRecord, Night, Waiting, read_champion
from raysweep.runs.across_runs.events import Event, ModelJudged
from raysweep.runs.across_runs.evidence import read_chain
from raysweep.runs.across_runs.line_journal import LineJournal, change_line
from raysweep.runs.across_runs.pins import find_pins
from raysweep.runs.across_runs.registrations import sync
from raysweep.runs.across_runs.releases import add_night, roll_back
from raysweep.specs.carried import CarriedConfig
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from tests.unit.runs.across_runs.nights import LINE, forge


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path)


HOW: Any = {
    "carried": CarriedConfig(proxy={"rows": 10.0}, scale={"rows": 20.0}),
    "predicted": Predicted(metric="auc", mode="max", score=0.75, low=0.74, high=0.76, got=0.752),
}
"""How a config was carried, and what was predicted of its training."""


def promote(store: Store, night: str, mean: float, *, uri: str | None = None) -> None:
    """A night whose gate promotes, with a judge behind it."""
    champion = Champion(
        name=LINE.name,
        metric=LINE.metric,
        mode=LINE.mode,
        config={"x": mean},
        mean=mean,
        spread=0.0,
        n=3,
        sweep_id=night,
        key=night,
        checkpoint_uri=uri,
        at=mean,
    )
    kept = Night(sweep_id=night, key=night, gate="g", at=1.0, promoted=True, to_judge=champion)
    add_night(store, LINE, night, lambda _: (kept, None), gate="g")


def judge(store: Store, night: str, verdict: Any, *, waits: bool = False) -> ChampionRecord:
    """What a judge says of that night's model."""
    folder = Path(store.url, f"train-{night}", "model")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.json").write_text(night)
    model = JudgedModel(uri=str(folder), digest=digest_of_model(str(folder)), run_id=f"train-{night}", **HOW)
    judgement = Judgement(
        verdict=verdict, reasons=("better",), why="so", metric="auc", mode="max", model=model, at=50.0
    )

    def told(_: LineJournal, record: ChampionRecord) -> Event | None:
        found, now = record.night(night, "g"), record.champion_beside(night)
        assert found is not None
        assert found.to_judge is not None
        waiting = Waiting(
            proposed=found.to_judge,
            against_sweep=now.sweep_id if now else "",
            against_at=now.at if now else None,
            until=2e9,
            on_silence="reject",
        )
        return ModelJudged(sweep_id=night, gate="g", judgement=judgement, waiting=waiting if waits else None)

    return change_line(store, LINE, told).record


def champion_of(store: Store) -> str:
    champion = read_champion(store, LINE).champion
    return champion.sweep_id if champion is not None else ""


def test_only_a_passed_judgement_makes_a_champion(store: Store) -> None:
    promote(store, "n1", 0.5)
    assert champion_of(store) == ""
    assert judge(store, "n1", "passed").champion is not None
    promote(store, "n2", 0.6)
    assert judge(store, "n2", "failed").champion is not None
    promote(store, "n3", 0.7)
    judge(store, "n3", "undecided")
    assert champion_of(store) == "n1"
    nights = read_champion(store, LINE).history
    assert [(each.sweep_id, each.promoted, each.has_released) for each in nights] == [
        ("n1", True, True),
        ("n2", True, False),
        ("n3", True, False),
    ]
    # Judged again, it is released.
    judge(store, "n3", "passed")
    record = read_champion(store, LINE)
    assert (champion_of(store), record.released and record.released.run_id) == ("n3", "train-n3")
    kinds = [(each.kind, each.promoted) for each in read_chain(store, LINE).entries]
    assert kinds == [
        ("gate", False),
        ("judgement", True),
        ("gate", False),
        ("judgement", False),
        ("gate", False),
        ("judgement", False),
        ("judgement", True),
    ]


def test_the_evidence_has_the_figures_of_both_models(store: Store) -> None:
    promote(store, "n1", 0.5)
    judge(store, "n1", "passed")
    promote(store, "n2", 0.6)
    judge(store, "n2", "failed")
    chain = read_chain(store, LINE)
    page = evidence_page(LINE, chain, chain.entries)
    assert "Night n1: model released" in page
    assert "Night n2: model failed" in page
    assert "| auc | new model | released model | better by |" in page


def test_a_rollback_returns_the_model_before(store: Store) -> None:
    promote(store, "n1", 0.5)
    first = judge(store, "n1", "passed").released
    promote(store, "n2", 0.6)
    judge(store, "n2", "passed")
    roll_back(store, LINE, by="ann")
    record = read_champion(store, LINE)
    assert (champion_of(store), record.released) == ("n1", first)


@pytest.mark.parametrize(("approved", "champion"), [(True, "n1"), (False, "")])
def test_approval_after_the_judgement(store: Store, approved: bool, champion: str) -> None:
    promote(store, "n1", 0.5)
    assert judge(store, "n1", "passed", waits=True).champion is None
    assert decide_night(store, LINE, "n1", "g") is None
    decide_night(store, LINE, "n1", "g", Decision(approved=approved, by="ann", at=60.0))
    assert champion_of(store) == champion
    night = read_champion(store, LINE).night("n1", "g")
    assert night is not None
    assert (night.promoted, night.has_released) == (True, approved)


def test_a_checkpoint_is_kept_until_its_model_is_judged(store: Store) -> None:
    uri = f"{store.url}/n1/checkpoints/00000/1"
    promote(store, "n1", 0.5, uri=uri)
    assert list(find_pins(store)) == ["n1/checkpoints/00000/1"]
    judge(store, "n1", "failed")
    assert not find_pins(store)


def test_an_edited_judgement_is_refused(store: Store) -> None:
    promote(store, "n1", 0.5)
    judge(store, "n1", "failed")
    forge(store, 2, b'"verdict":"failed"', b'"verdict":"passed"')
    with pytest.raises(StorageError, match=r"0002\.jsonl: is not as it was written"):
        read_champion(store, LINE)


def test_a_judgement_of_another_store_is_refused(store: Store, tmp_path: Path) -> None:
    other = open_store(tmp_path / "other")
    promote(other, "n1", 0.5)
    judge(other, "n1", "passed")
    promote(store, "n1", 0.4)
    key = LineJournal(store, LINE.path).key(2)
    store.put(key, other.get(key) or b"")
    with pytest.raises(StorageError, match="is not as it was written: event 2 names another before it"):
        read_champion(store, LINE)


def test_a_registry_gets_no_model_whose_files_changed(store: Store) -> None:
    promote(store, "n1", 0.5)
    model = judge(store, "n1", "passed").released
    assert model is not None
    Path(model.source, "model.json").write_text("swapped")
    registry = RegistrySpec.model_validate({"kind": "mlflow", "options": {"tracking_uri": "http://x:1"}})
    synced = sync(store, LINE, registry, give_up_after_s=0)
    assert synced is not None
    assert "changed since they were judged: their digest is" in synced.pending
    assert synced.version == ""


def test_a_released_model_says_how_its_config_was_carried_and_what_was_predicted(store: Store) -> None:
    promote(store, "n1", 0.5)
    model = judge(store, "n1", "passed").released
    assert model is not None
    assert {"carried": model.carried, "predicted": model.predicted} == HOW
