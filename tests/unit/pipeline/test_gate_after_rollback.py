"""A night whose champion was rolled back is not promoted any more: neither trained again nor announced."""

from __future__ import annotations

from pathlib import Path

import pytest

from raysweep.outcome import GateOutcome, SweepOutcome
from raysweep.pipeline import gate as gates
from raysweep.pipeline import prepare_gate, training_request, with_gate
from raysweep.pipeline.rollback import why_undone
from raysweep.runs.across_runs.evidence import read_chain
from raysweep.runs.across_runs.releases import roll_back
from raysweep.runs.training import RunFolder
from raysweep.specs import SweepSpec, TrainSpec
from raysweep.step import brief, why_not_trained
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from tests.unit.pipeline.gates import GATE, configs, gave, make_spec, settled, stored, swept
from tests.unit.runs.across_runs.nights import LINE, add


@pytest.fixture
def spec(tmp_path: Path) -> SweepSpec:
    return make_spec(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path)


@pytest.fixture
def nights(spec: SweepSpec) -> list[SweepOutcome]:
    """Three nights, each better than the one before."""
    outcomes = [stored(spec, swept(f"n{n}", score)) for n, score in enumerate((0.5, 0.7, 0.9))]
    assert all(settled(spec, each).promoted for each in outcomes)
    return outcomes


def trained(outcome: SweepOutcome, verdict: GateOutcome) -> bool:
    return not why_not_trained(brief(with_gate(outcome, verdict)))


def test_asked_again_it_is_not_trained_and_says_who_rolled_it_back(
    spec: SweepSpec, store: Store, nights: list[SweepOutcome]
) -> None:
    roll_back(store, LINE, by="ann", why="bad on Mondays")
    again = settled(spec, nights[2])
    assert (again.promoted, trained(nights[2], again)) == (False, False)
    assert again.undone is not None
    assert (again.undone.by, again.undone.why) == ("ann", "bad on Mondays")
    assert again.why.startswith("not promoted: ")
    assert "rolled back by ann" in again.why
    assert settled(spec, nights[1]).promoted, "the one that is champion again"
    assert settled(spec, nights[0]).promoted, "the one under it"


def test_a_rollback_over_several_nights_takes_all_of_them_until_they_are_back(
    spec: SweepSpec, store: Store, nights: list[SweepOutcome]
) -> None:
    def promoted() -> list[bool]:
        return [settled(spec, each).promoted for each in nights]

    roll_back(store, LINE, "n0")
    assert promoted() == [True, False, False]
    roll_back(store, LINE, "n2")
    assert promoted() == [True, False, True], "n2 is champion again, n1 is not under it"


def test_a_night_of_long_ago_is_known_by_the_evidence(
    spec: SweepSpec, store: Store, nights: list[SweepOutcome]
) -> None:
    roll_back(store, LINE, by="ann")
    for number in range(70):
        add(store, f"later{number}", 0.1)
    assert [settled(spec, each).promoted for each in nights] == [True, True, False]


def test_a_kill_before_the_verdict_was_stored_and_a_rollback(
    spec: SweepSpec, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The champion's file has the night, its folder no verdict: the next try writes that, and no more."""
    assert settled(spec, stored(spec, swept("n0", 0.5))).promoted
    outcome = stored(spec, swept("n1", 0.9))
    prepared = prepare_gate(spec, outcome, GATE)
    again = gave(prepared, *(c["x"] for _ in range(2) for c in configs(prepared)))

    def die(*_: object) -> GateOutcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(gates, "keep_verdict", die)
    with pytest.raises(KeyboardInterrupt):
        prepared.settle(again)
    monkeypatch.undo()
    told: list[bool] = []
    monkeypatch.setattr(
        gates, "announce_verdict", lambda _spec, _outcome, verdict: told.append(verdict.promoted)
    )
    roll_back(store, LINE)
    verdict = prepare_gate(spec, outcome, GATE).settle(again)
    assert (verdict.promoted, told) == (False, [False])
    assert read_chain(store, LINE).flaws == ()


def test_a_training_that_comes_after_the_rollback_is_not_begun_and_one_that_has_begun_continues(
    spec: SweepSpec, store: Store, nights: list[SweepOutcome]
) -> None:
    """A retry of the training alone has the verdict from before the rollback."""
    judged = with_gate(nights[2], settled(spec, nights[2]))
    request = training_request(TrainSpec(trainable="m:f", storage_path=store.url), judged, "n2")
    assert why_undone(request, brief(judged)) == ""
    roll_back(store, LINE, by="ann")
    for given in (judged, brief(judged)):
        assert "rolled back by ann" in why_undone(request, given)
    folder = RunFolder(store, request.run.id)
    store.put(f"{request.run.id}/train.json", b"{}")
    assert folder.store.exists(f"{request.run.id}/train.json")
    assert why_undone(request, brief(judged)) == ""
