"""A gate is named by what it judges and how: tried again it says the same, and of something else its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from raysweep.errors import GateOutdatedError, SweepFailedError
from raysweep.outcome import GateOutcome, TrainOutcome
from raysweep.pipeline import prepare_gate, training_request, with_gate
from raysweep.runs.across_runs.verdicts import newest_verdict
from raysweep.runs.reading.view import RunView
from raysweep.runs.training import RunFolder
from raysweep.specs import RunRequest, TrainSpec
from raysweep.specs.identity import sweep_id
from raysweep.step import best_trials, brief, why_not_trained
from raysweep.storage.objects.opening import open_store
from tests.begun_trainings import begin_training
from tests.unit.pipeline.gates import GATE, champions, gave, make_spec, settled, stored, swept


def test_a_sweep_that_has_gone_on_is_judged_by_what_it_has_now(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    first = stored(spec, swept("n1", 0.5, 0.9838))
    before = settled(spec, brief(first))
    later = stored(spec, swept("n1", 0.5, 0.9838, 0.9963).model_copy(update={"generation": 2}))
    now = settled(spec, brief(later))
    assert before.best is not None
    assert now.best is not None
    assert (before.best.config, now.best.config) == ({"x": 0.9838}, {"x": 0.9963})
    record = champions(tmp_path)
    assert record.champion is not None
    assert record.champion.config == {"x": 0.9963}
    assert [night.sweep_id for night in record.history] == ["n1", "n1"]
    assert newest_verdict(open_store(tmp_path), "n1") == now


def test_a_night_that_was_refused_is_promoted_once_it_is_better(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    assert settled(spec, stored(spec, swept("before", 0.8))).promoted
    assert not settled(spec, stored(spec, swept("n1", 0.6))).promoted
    later = stored(spec, swept("n1", 0.6, 0.9).model_copy(update={"generation": 2}))
    verdict = settled(spec, later)
    assert verdict.promoted
    assert verdict.improvement == pytest.approx(0.1)


def test_a_sweep_that_goes_on_does_not_have_to_beat_itself(tmp_path: Path) -> None:
    """Its first gate promoted 0.9 over 0.8; the second judges what it has by 0.8 too."""
    spec = make_spec(tmp_path)
    assert settled(spec, stored(spec, swept("before", 0.8))).promoted
    assert settled(spec, stored(spec, swept("n1", 0.9, 0.85))).promoted
    later = stored(spec, swept("n1", 0.9, 0.85, 0.89).model_copy(update={"generation": 2}))
    verdict = settled(spec, later)
    assert verdict.promoted, "0.89 is new, and 0.9 still is the best"
    assert verdict.best is not None
    assert verdict.best.config == {"x": 0.9}
    assert verdict.champion is not None
    assert verdict.champion.sweep_id == "before"


def test_two_gates_of_one_sweep_have_verdicts_and_champions_of_their_own(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    for name in ("flights", "strict"):
        assert settled(spec, stored(spec, swept("before", 0.8)), champion=name).promoted
    outcome = stored(spec, swept("n1", 0.85))
    easy, strict = settled(spec, outcome), settled(spec, outcome, champion="strict", min_improvement=0.1)
    assert (easy.promoted, strict.promoted) == (True, False)
    assert settled(spec, outcome) == easy
    assert settled(spec, outcome, champion="strict", min_improvement=0.1) == strict
    found = [champions(tmp_path, name).champion for name in ("flights", "strict")]
    assert [champion.config for champion in found if champion] == [{"x": 0.85}, {"x": 0.8}]
    assert settled(spec, outcome, champion="third").promoted
    assert champions(tmp_path, "third").champion is not None


def test_the_same_gate_of_the_same_outcome_runs_once(tmp_path: Path) -> None:
    """By the outcome or its brief; also where the sweep has continued and found nothing better."""
    spec = make_spec(tmp_path)
    outcome = stored(spec, swept("n1", 0.5, 0.7, 0.6, 0.4))
    first = prepare_gate(spec, outcome, GATE)
    assert prepare_gate(spec, brief(outcome), GATE).request == first.request
    assert first.request.run.key.startswith("n1/gate-")
    verdict = settled(spec, outcome)
    assert prepare_gate(spec, brief(outcome), GATE).verdict == verdict
    later = stored(spec, swept("n1", 0.5, 0.7, 0.6, 0.4, 0.3).model_copy(update={"generation": 2}))
    assert prepare_gate(spec, later, GATE).verdict == verdict


@pytest.mark.parametrize("changed", [{"score": 0.71}, {"checkpoint_uri": "later"}, {"config": {"x": 0.71}}])
def test_a_trial_that_has_gone_on_is_judged_again(tmp_path: Path, changed: dict[str, Any]) -> None:
    """What was interrupted may have another score since, or another checkpoint to begin a training from."""
    spec = make_spec(tmp_path)
    outcome = stored(spec, swept("n1", 0.5, 0.7, 0.3, 0.2))
    settled(spec, outcome)
    for number, update, is_new in (
        (1, changed, True),
        (0, changed, True),
        (3, {"checkpoint_uri": "x"}, False),
    ):
        trials = list(outcome.trials)
        trials[number] = trials[number].model_copy(update=update)
        found = prepare_gate(spec, outcome.model_copy(update={"uri": "", "trials": tuple(trials)}), GATE)
        assert (found.verdict is None) == is_new


def test_what_ran_for_another_outcome_decides_nothing(tmp_path: Path) -> None:
    """The sweep continued while the gate ran: worth a retry, which runs what the sweep has now."""
    spec = make_spec(tmp_path)
    before = prepare_gate(spec, stored(spec, swept("n1", 0.7)), GATE)
    again = gave(before, 0.7, 0.7)
    later = stored(spec, swept("n1", 0.7, 0.9).model_copy(update={"generation": 2}))
    with pytest.raises(GateOutdatedError, match="run the gate again") as caught:
        prepare_gate(spec, later, GATE).settle(again)
    assert caught.value.retryable
    assert newest_verdict(open_store(tmp_path), "n1") is None


def test_what_was_run_anew_for_this_gate_decides(tmp_path: Path) -> None:
    """As where a task is cleared whose gate had failed: its sweep has a key that follows the gate's."""
    spec = make_spec(tmp_path)
    prepared = prepare_gate(spec, stored(spec, swept("n1", 0.7)), GATE)
    key = f"{prepared.request.run.key}#2"
    anew = gave(prepared, 0.7, 0.7).model_copy(update={"key": key, "sweep_id": sweep_id("flights-gate", key)})
    for other in ({"key": "n1/gate-0"}, {"name": "flights"}):
        with pytest.raises(GateOutdatedError):
            prepared.settle(anew.model_copy(update=other))
    assert prepared.settle(anew).promoted


@pytest.mark.parametrize("status", ["deadline", "budget", "cancelled"])
def test_a_gate_that_was_cut_short_decides_nothing_and_its_next_run_does(tmp_path: Path, status: Any) -> None:
    """A verdict is final: it is not for what a deadline, a budget or a person ended before all had run."""
    spec, store = make_spec(tmp_path), open_store(tmp_path)
    assert settled(spec, stored(spec, swept("before", 0.8))).promoted
    outcome = stored(spec, swept("n1", 0.9))
    prepared = prepare_gate(spec, outcome, GATE)
    whole = gave(prepared, 0.9, 0.8, 0.9, 0.8)
    cut = whole.model_copy(update={"status": status, "trials": whole.trials[:3]})
    wanted = (
        rf"^gate not decided: '{cut.sweep_id}' was cut short \({status}\) after 3 of 4 runs; run the gate"
    )
    with pytest.raises(SweepFailedError, match=wanted):
        prepared.settle(cut)
    assert newest_verdict(store, "n1") is None
    assert [night.sweep_id for night in champions(tmp_path).history] == ["before"]
    later = prepare_gate(spec, outcome, GATE)
    assert (later.verdict, later.request) == (None, prepared.request)
    assert later.settle(whole).promoted


def test_a_gate_that_ran_out_of_time_behind_its_last_run_decides(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    prepared = prepare_gate(spec, stored(spec, swept("n1", 0.7)), GATE)
    assert prepared.settle(gave(prepared, 0.7, None).model_copy(update={"status": "deadline"})).promoted


def test_gates_of_other_metrics_have_champions_of_their_own(tmp_path: Path) -> None:
    """A test by another metric every night; with one file for both, each forgot the other's champion."""
    spec = make_spec(tmp_path)

    def night(name: str, score: float) -> list[GateOutcome]:
        outcome = swept(name, score)
        trials = tuple(
            trial.model_copy(update={"metrics": {"auc": score, "test_auc": score}})
            for trial in outcome.trials
        )
        outcome = stored(spec, outcome.model_copy(update={"trials": trials}))
        return [settled(spec, outcome), settled(spec, outcome, metric="test_auc", mode="max")]

    first, second = night("n1", 0.9)
    assert (first.promoted, second.promoted) == (True, True)
    assert first.notes == ()
    assert second.notes == (
        "champion 'flights' has auc (max); this gate compares test_auc (max) and begins a new line",
    )
    for name, score in (("n2", 0.5), ("n3", 0.3)):
        assert [verdict.promoted for verdict in night(name, score)] == [False, False]
        assert [verdict.notes for verdict in night(f"{name}b", score)] == [(), ()]
    for metric in ("auc", "test_auc"):
        found = champions(tmp_path, metric=metric).champion
        assert found is not None
        assert (found.sweep_id, found.config) == ("n1", {"x": 0.9})


def test_a_renamed_metric_and_another_data_set_begin_a_line_and_say_so(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    assert settled(spec, stored(spec, swept("n1", 0.9)), data="25").promoted
    other = settled(spec, stored(spec, swept("n2", 0.5)), data="26")
    assert other.promoted
    assert other.notes == (
        "champion 'flights' has auc (max) on 25; this gate compares auc (max) on 26 and begins a new line",
    )
    same = settled(spec, stored(spec, swept("n3", 0.5)), data="25")
    assert (same.promoted, same.notes) == (False, ())


def test_a_damaged_line_of_another_metric_is_a_note_of_the_gate(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    assert settled(spec, stored(spec, swept("n1", 0.9))).promoted
    open_store(tmp_path).put("champions/flights/loss.min/000000000001.jsonl", b"{torn\n")
    other = settled(spec, stored(spec, swept("n2", 0.5)), data="26")
    assert other.promoted
    assert [note.partition(": ")[0] for note in other.notes] == [
        "champion 'flights' has auc (max); this gate compares auc (max) on 26 and begins a new line",
        "another line of champion 'flights' cannot be read",
    ]
    assert "loss.min/000000000001.jsonl: is damaged" in other.notes[1]


TRAIN = {"name": "full", "trainable": "m:f", "config": {"rounds": 9}}


def test_another_best_config_is_another_training(tmp_path: Path) -> None:
    """By outcome or brief; tried again, or with a gate's verdict around it, the same."""
    spec = make_spec(tmp_path)
    train = TrainSpec.from_any(TRAIN | {"storage_path": str(tmp_path)})
    first = stored(spec, swept("n1", 0.5, 0.7))
    request = training_request(train, first, "night")
    assert request.spec.config == {"x": 0.7, "rounds": 9}
    begin_training(RunFolder(open_store(tmp_path), request.run.id), request.spec, request.run.key)
    assert training_request(train, brief(first), "night") == request
    assert training_request(train, with_gate(first, settled(spec, first)), "night") == request
    later = stored(spec, swept("n1", 0.5, 0.7, 0.9).model_copy(update={"generation": 2}))
    other = training_request(train, brief(later), "night")
    assert other.spec.config == {"x": 0.9, "rounds": 9}
    assert other.run.id != request.run.id
    # What the night's spec itself says is still held against the run.
    changed = training_request(train.replace(config={"rounds": 5}), first, "night")
    assert changed.run == request.run
    assert not RunView("train", str(tmp_path), request.run.id).has(changed)
    assert training_request(train, None, "night") == RunRequest.of(train, "night")


def test_the_best_of_a_refused_sweep_are_listed_with_the_refusal() -> None:
    """Each goes to a training of its own, which asks whether it is to be trained."""
    outcome = swept("n1", 0.5, 0.7)
    refused = brief(with_gate(outcome, GateOutcome(promoted=False, why="champion 0.9; not promoted")))
    listed = best_trials(refused)
    assert [each["config"] for each in listed] == [{"x": 0.7}, {"x": 0.5}]
    assert [why_not_trained(each) for each in listed] == [
        "training skipped: champion 0.9; not promoted",
        "training skipped: champion 0.9; not promoted",
    ]
    assert orjson.loads(orjson.dumps(listed)) == listed
    assert [why_not_trained(each) for each in best_trials(brief(outcome), 1)] == [""]


def test_the_outcome_of_a_training_is_of_its_own_config(tmp_path: Path) -> None:
    train = TrainSpec.from_any(TRAIN | {"storage_path": str(tmp_path)})
    request = training_request(train, swept("n1", 0.7), "night")
    ended = TrainOutcome(run_id=request.run.id, name="full", status="completed", started_at=1.0, ended_at=2.0)
    RunFolder(open_store(tmp_path), request.run.id).write_outcome(ended)
    found = [
        RunView("train", str(tmp_path), training_request(train, swept("n1", best), "night").run.id).outcome()
        for best in (0.7, 0.9)
    ]
    assert found == [ended, None]
