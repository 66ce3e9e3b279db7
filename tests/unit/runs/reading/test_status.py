"""How a sweep stands: the same from a state as from the outcome, right curves, bounded sizes and costs."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import pytest

from raysweep.core import SweepState, step
from raysweep.core.vocabulary import lifecycle
from raysweep.errors import JournalDamagedError
from raysweep.outcome import Holder, Standing, SweepOutcome, SweepProgress, TrainOutcome, TrialOutcome, curve
from raysweep.outcome.curve import MAX_POINTS, Dot, best_so_far
from raysweep.outcome.ended import status_of_outcome
from raysweep.outcome.progress import RunningTrial
from raysweep.outcome.standing import TOP
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.holder import current_holder
from raysweep.runs.reading.glances import glance, read_training
from raysweep.runs.reading.reader import SweepReader
from raysweep.runs.reading.state_status import status_of_state
from raysweep.runs.reading.status import status_of_heartbeat
from raysweep.runs.training import RunFolder
from raysweep.simulate import simulate
from raysweep.specs import TrainSpec
from raysweep.storage.objects.opening import open_store
from tests.begun_trainings import begin_training
from tests.unit.verify.stored import Stored, store_sweep

SPEC: dict[str, Any] = {
    "name": "hills",
    "trainable": "m:f",
    "metric": "auc",
    "mode": "max",
    "num_samples": 40,
    "seed": 3,
    "param_space": {"x": {"uniform": [0, 1]}},
    "failure": {"max_failures": 0},
}


def hills(config: dict[str, float], iteration: int) -> dict[str, float] | None:
    if 0.4 < config["x"] < 0.45:
        raise ValueError(f"x is {config['x']}\nand more")
    return {"auc": 1 - (config["x"] - 0.7) ** 2} if iteration <= 3 else None


def smooth(config: dict[str, float], iteration: int) -> dict[str, float] | None:
    return {"auc": 1 - (config["x"] - 0.7) ** 2} if iteration <= 3 else None


@pytest.fixture(scope="module")
def night() -> tuple[SweepOutcome, list[Any]]:
    simulated = simulate(SPEC, hills, slots=4)
    return simulated.outcome, list(simulated.journal)


def trial(number: int, at: float, score: float | None, state: Any = "completed") -> TrialOutcome:
    return TrialOutcome(trial_id=f"{number:05d}", number=number, state=state, score=score, ended_at=at)


def curve_of(trials: list[TrialOutcome], mode: str) -> tuple[tuple[Dot, ...], tuple[Dot, ...]]:
    endings = [(trial.ended_at, trial.state, trial.score, trial.trial_id) for trial in trials]
    return best_so_far(endings, is_max=mode == "max")


def read_status(storage: str, sweep_id: str) -> Standing | None:
    return SweepReader(storage, sweep_id).read()


# --- pure


def test_the_curve_has_a_point_for_each_new_best() -> None:
    trials = [
        trial(0, 3.0, 0.5),
        trial(1, 1.0, 0.3),
        trial(2, 2.0, 0.9, "failed"),
        trial(3, 4.0, 0.4),
        trial(4, 5.0, 0.7, "stopped"),
        trial(5, 6.0, None),
        trial(6, 7.0, math.nan),
    ]
    curve, dots = curve_of([*trials, TrialOutcome(trial_id="00007", number=7, state="running")], "max")
    assert [(p.at, p.ended, p.score, p.trial_id) for p in curve] == [
        (1.0, 1, 0.3, "00001"),
        (3.0, 3, 0.5, "00000"),
        (5.0, 5, 0.7, "00004"),
    ]
    assert [(d.ended, d.score) for d in dots] == [(1, 0.3), (3, 0.5), (4, 0.4), (5, 0.7)]
    lowest, _ = curve_of(trials, "min")
    assert [p.score for p in lowest] == [0.3]


def test_trials_that_end_at_one_instant_take_places_of_their_own() -> None:
    _, dots = curve_of([trial(number, 1.0, 0.1) for number in range(3)], "max")
    assert [dot.ended for dot in dots] == [1, 2, 3]


def test_no_trials_no_curve() -> None:
    assert curve_of([], "min") == ((), ())


def test_ten_thousand_trials_make_a_small_status() -> None:
    # Each better than the one before: the worst that a curve can grow to.
    trials = tuple(
        trial(number, float(number), float(number)).model_copy(update={"config": {"x": number}})
        for number in range(10_000)
    )
    outcome = SweepOutcome(
        sweep_id="s-1", name="s", status="completed", metric="auc", mode="max", best=trials[-1],
        trials=trials, counts={"completed": 10_000}, started_at=0.0, ended_at=10_000.0,
    )  # fmt: skip
    began = time.perf_counter()
    status = status_of_outcome(outcome, now=10_001.0)
    assert time.perf_counter() - began < 5.0
    assert len(status.curve) == len(status.dots) == MAX_POINTS
    assert (status.curve[0].score, status.curve[-1].score) == (0.0, 9999.0)
    assert [each.score for each in status.top[:2]] == [9999.0, 9998.0]
    assert len(status.top) == TOP
    assert len(status.to_json()) < 200_000


def test_a_state_gives_what_the_outcome_gives(night: tuple[SweepOutcome, list[Any]]) -> None:
    outcome, journal = night
    state = replayed(journal)
    of_outcome = status_of_outcome(outcome, now=1.0)
    of_state = status_of_state(state, None, uri=of_outcome.uri, key=outcome.key, now=1.0)
    for name in ("best", "curve", "dots", "top", "failures", "counts", "started_at", "metric"):
        assert getattr(of_state, name) == getattr(of_outcome, name), name
    assert outcome.counts["failed"] >= 1
    assert of_outcome.failures[0].problem.startswith("ValueError: x is 0.4")
    assert "\n" not in of_outcome.failures[0].problem
    assert of_outcome.best is not None
    assert of_outcome.curve[-1].score == of_outcome.best.score
    assert [each.trial_id for each in of_outcome.top] == [each.trial_id for each in outcome.top(TOP)]


def test_an_outcome_that_is_handed_on_without_its_trials_still_counts_them(
    night: tuple[SweepOutcome, list[Any]],
) -> None:
    outcome = night[0]
    small = outcome.model_copy(update={"trials": outcome.trials[:2]})
    assert status_of_outcome(small, now=1.0).num_trials == len(outcome.trials)


def replayed(journal: list[Any]) -> SweepState:
    from raysweep.specs import SweepSpec

    state = SweepState.create(SweepSpec.from_any(SPEC), 3)
    for event in journal:
        step(state, event)
    return state


def test_half_a_sweep(night: tuple[SweepOutcome, list[Any]]) -> None:
    outcome, journal = night
    half = replayed(journal[: len(journal) // 2])
    progress = SweepProgress(
        sweep_id="hills-1", name="hills", status="running", holder=current_holder(), generation=1,
        at=time.time(), started_at=0.0, num_trials=40, metric="auc", mode="max", slots=4,
    )  # fmt: skip
    status = status_of_state(half, progress, uri="u/hills-1", now=half.clock.last_at)
    assert (status.status, status.is_running, status.has_ended) == ("running", True, False)
    assert 0 < status.counts.ended < 40
    assert status.expected_end_at is not None
    assert status.expected_end_at > half.clock.last_at
    whole = status_of_outcome(outcome, now=1.0)
    assert whole.dots[: len(status.dots)] == status.dots
    gone = progress.model_copy(update={"holder": Holder(host="elsewhere", pid=1), "at": 0.0})
    status = status_of_state(half, gone, uri="u/hills-1", now=half.clock.last_at + 1000)
    assert (status.status, status.is_running, status.running) == ("interrupted", False, ())
    assert status.expected_end_at is None


def test_only_a_heartbeat() -> None:
    progress = SweepProgress(
        sweep_id="s-1", name="s", status="starting", holder=current_holder(), generation=1,
        at=time.time(), started_at=1.0, metric="loss", mode="min", notes=("a node is gone",),
        best={"trial_id": "00003", "score": 0.5, "config": {"x": 1}},
        running=({"trial_id": "00003", "number": 3},),
    )  # fmt: skip
    status = status_of_heartbeat(progress, uri="u/s-1", now=time.time(), problem="no journal")
    assert (status.status, status.notes) == ("starting", ("a node is gone", "no journal"))
    assert status.best is not None
    assert (status.best.state, status.best.score, status.best.number) == ("completed", 0.5, 3)
    assert progress.best is not None
    odd = progress.model_copy(update={"best": progress.best.model_copy(update={"trial_id": "x"})})
    nameless = status_of_heartbeat(odd, uri="u/s-1", now=time.time()).best
    assert nameless is not None
    assert nameless.number == 0
    assert Standing.model_validate_json(status.to_json()) == status


# --- from the storage


@pytest.fixture
def unfinished(tmp_path: Path) -> Stored:
    return store_sweep(tmp_path, is_ended=False)


def test_nothing_is_stored_yet(tmp_path: Path) -> None:
    assert read_status(str(tmp_path), "night-1") is None
    assert not list(tmp_path.iterdir())


def test_a_sweep_that_nobody_runs(unfinished: Stored) -> None:
    store = unfinished.folder.store
    status = read_status(store.url, unfinished.folder.sweep_id)
    assert status is not None
    assert (status.status, status.is_running, status.key) == ("interrupted", False, "k")
    assert (status.metric, status.mode, status.num_trials) == ("loss", "min", 4)
    assert status.generation == 3
    assert status.uri == f"{store.url}/{unfinished.folder.sweep_id}"


def test_it_writes_nothing(unfinished: Stored) -> None:
    before = {name: (unfinished.path / name).stat().st_mtime_ns for name in unfinished.files()}
    assert read_status(unfinished.folder.store.url, unfinished.folder.sweep_id) is not None
    assert before == {name: (unfinished.path / name).stat().st_mtime_ns for name in unfinished.files()}


def test_a_reader_follows_to_the_end_and_reads_only_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = store_sweep(tmp_path, is_ended=True, per_segment=1)
    later = sorted(whole.segments())
    parts = {name: (whole.path / name).read_bytes() for name in later}
    outcome = (whole.path / "outcome.json").read_bytes()
    (whole.path / "outcome.json").unlink()
    for name in later[3:]:
        (whole.path / name).unlink()
    for snapshot in (whole.path / "snapshots").iterdir():
        snapshot.unlink()
    reader = SweepReader(whole.folder.store.url, whole.folder.sweep_id, fresh_s=0.0)
    first = reader.read()
    assert first is not None
    assert first.counts.ended == 0

    reads: list[str] = []
    get = type(whole.folder.store).get
    monkeypatch.setattr(
        type(whole.folder.store), "get", lambda self, key: (reads.append(key), get(self, key))[1]
    )
    for name in later[3:]:
        (whole.path / name).write_bytes(parts[name])
    last = reader.read()
    assert last is not None
    assert (last.status, last.has_ended) == ("completed", False)
    assert last.counts.ended == 4
    journal = [key.rpartition("/")[2] for key in reads if "/journal/" in key]
    assert sorted(set(journal)) == [name.rpartition("/")[2] for name in later[3:]]

    (whole.path / "outcome.json").write_bytes(outcome)
    ended = reader.read()
    assert ended is not None
    assert (ended.status, ended.has_ended) == ("completed", True)
    assert (ended.top, ended.curve, ended.failures) == (last.top, last.curve, last.failures)
    assert reader.read() is ended

    # Continued with: the outcome is put aside, and the sweep runs again.
    whole.folder.archive_outcome()
    again = reader.read()
    assert again is not None
    assert not again.has_ended


def test_a_damaged_journal_leaves_the_heartbeat(unfinished: Stored) -> None:
    for snapshot in (unfinished.path / "snapshots").iterdir():
        snapshot.unlink()
    segment = unfinished.path / unfinished.segments()[2]
    segment.write_bytes(segment.read_bytes().replace(b"TrialStarted", b"TrialStartet"))
    reader = SweepReader(unfinished.folder.store.url, unfinished.folder.sweep_id, fresh_s=0.0)
    for _ in range(2):
        status = reader.read()
        assert status is not None
        assert status.curve == ()
        assert "the journal cannot be read" in status.notes[-1]
    name = status.name
    (unfinished.path / "progress.json").unlink()
    status = reader.read()
    assert status is not None
    assert (status.status, status.metric, status.name, status.generation) == ("interrupted", "loss", name, 0)


def test_statuses_are_shared_for_a_while(unfinished: Stored) -> None:
    reader = SweepReader(unfinished.folder.store.url, unfinished.folder.sweep_id, fresh_s=60.0)
    assert reader.read() is reader.read()


def test_a_long_sweep_is_read_in_a_moment(tmp_path: Path) -> None:
    """Two thousand trials in a journal without a snapshot."""
    from raysweep.core import encode
    from raysweep.core.vocabulary import events as ev
    from raysweep.runs.folder import SweepRecord
    from raysweep.specs import SweepSpec
    from raysweep.storage.journal.writer import JournalWriter

    asked = SPEC | {"num_samples": 2000, "search": "random"}
    simulated = simulate(asked, smooth, slots=16)
    folder = SweepFolder(open_store(tmp_path), "hills-1")
    spec = SweepSpec.from_any(asked)
    folder.write_spec_if_absent(SweepRecord(digest=spec.digest(), key="k", seed=3, spec=spec.to_dict()))
    journal = folder.journal()
    assert not list(journal.read())
    first, *rest = simulated.journal
    assert isinstance(first, ev.ControllerStarted)
    claim = journal.claim(lambda _: encode(first))
    with JournalWriter(
        journal.backend, claim.generation, claim.next_number, lambda error: None, writer=claim.writer
    ) as writer:
        for event in rest:
            writer.write(encode(event))
    reader = SweepReader(str(tmp_path), "hills-1", fresh_s=0.0)
    began = time.perf_counter()
    status = reader.read()
    first_s = time.perf_counter() - began
    assert status is not None
    assert status.counts.ended == 2000
    took_s = []
    for _ in range(5):  # one of them may be held up by what else runs on the machine
        began = time.perf_counter()
        again = reader.read()
        took_s.append(time.perf_counter() - began)
        assert again is not None
        assert again.curve == status.curve
    assert first_s < 20.0
    assert min(took_s) < first_s / 3


def test_who_looks_once_is_told_of_damage(unfinished: Stored) -> None:
    for snapshot in (unfinished.path / "snapshots").iterdir():
        snapshot.unlink()
    segment = unfinished.path / unfinished.segments()[2]
    segment.write_bytes(segment.read_bytes().replace(b"TrialStarted", b"TrialStartet"))
    reader = SweepReader(unfinished.folder.store.url, unfinished.folder.sweep_id, is_strict=True)
    for call in (reader.read, reader.trials, reader.read):
        with pytest.raises(JournalDamagedError):
            call()


def test_all_trials_before_the_end_and_after(tmp_path: Path) -> None:
    whole = store_sweep(tmp_path, is_ended=True)
    reader = SweepReader(whole.folder.store.url, whole.folder.sweep_id)
    ended = reader.trials()
    assert [trial.number for trial in ended] == [0, 1, 2, 3]
    (whole.path / "outcome.json").unlink()
    assert reader.trials() == ended
    assert SweepReader(whole.folder.store.url, "no-such-sweep").trials() == ()


def test_a_glance_reads_no_journal(unfinished: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = unfinished.folder
    monkeypatch.setattr(type(folder), "journal", lambda self: pytest.fail("the journal is read"))
    seen = glance(folder)
    assert (seen.status, seen.num_trials, seen.held) == ("interrupted", 4, "gone")
    (unfinished.path / "progress.json").unlink()
    assert (glance(folder).status, glance(folder).is_running, glance(folder).holder) == (
        "starting",
        True,
        None,
    )
    os.utime(unfinished.path / "sweep.json", (1000.0, 1000.0))
    assert (glance(folder).status, glance(folder).is_running, glance(folder).holder) == (
        "interrupted",
        False,
        None,
    )


@pytest.mark.parametrize("earlier", ["no controller", "an earlier controller"])
def test_a_sweep_that_a_controller_has_just_claimed_is_starting(
    earlier: str, unfinished: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first heartbeat comes up to seconds later; until then nothing is wrong with it."""
    heartbeat = unfinished.folder.read_progress()
    assert heartbeat is not None
    (unfinished.path / "progress.json").unlink()
    if earlier == "an earlier controller":
        old = heartbeat.model_copy(update={"generation": heartbeat.generation - 1, "has_left": True})
        unfinished.folder.write_progress(old)
    reader = SweepReader(unfinished.folder.store.url, unfinished.folder.sweep_id, fresh_s=0.0)
    claimed_at = unfinished.state.controller.started_at
    monkeypatch.setattr("raysweep.runs.reading.reader.time.time", lambda: claimed_at + 3)
    status = reader.read()
    assert status is not None
    assert (status.status, status.is_running, status.running) == ("starting", True, ())
    monkeypatch.setattr("raysweep.runs.reading.reader.time.time", lambda: claimed_at + 300)
    status = reader.read()
    assert status is not None
    assert (status.status, status.is_running) == ("interrupted", False)


def test_the_last_word_comes_from_the_storage_and_not_from_the_reader(tmp_path: Path) -> None:
    """Who shows a sweep every second, and once more after its end, must not show it as it was before."""
    whole = store_sweep(tmp_path, is_ended=True)
    outcome = (whole.path / "outcome.json").read_bytes()
    (whole.path / "outcome.json").unlink()
    reader = SweepReader(whole.folder.store.url, whole.folder.sweep_id, fresh_s=3600.0)
    before = reader.read()
    assert before is not None
    (whole.path / "outcome.json").write_bytes(outcome)
    cached, last = reader.read(), reader.read(is_fresh=True)
    assert cached is before
    assert last is not None
    assert (before.has_ended, last.has_ended, last.status) == (False, True, "completed")


def test_a_training_from_its_first_heartbeat_to_its_end(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    folder, swept = RunFolder(store, "full-1"), SweepFolder(store, "full-1")
    assert read_training(str(tmp_path), "full-1") is None
    begin_training(folder, TrainSpec(name="full", trainable="m:f"), "k")
    status = read_training(str(tmp_path), "full-1")
    assert status is not None
    assert (status.kind, status.status) == ("train", "starting")
    beat = SweepProgress(
        sweep_id="full-1", name="full", status="running", holder=current_holder(), generation=1, at=50.0,
        started_at=1.0, running=(RunningTrial(trial_id="00000", number=0, iteration=3),), metric="",
        mode="max", notes=("a worker died",),
    )  # fmt: skip
    swept.write_progress(beat)
    status = read_training(str(tmp_path), "full-1")
    assert status is not None
    assert (status.kind, status.status, status.is_running, status.reports) == ("train", "running", True, 3)
    assert status.notes == ("a worker died",)
    # A try that failed may be followed by another: it is no outcome of the training.
    failed = SweepOutcome(
        sweep_id="full-1", name="full", key="k", status="failed", metric="", mode="min", started_at=1.0,
        ended_at=9.0,
    )  # fmt: skip
    swept.write_outcome_if_absent(failed)
    status = read_training(str(tmp_path), "full-1")
    assert status is not None
    assert (status.kind, status.status, status.is_running) == ("train", "failed", False)
    folder.write_outcome(
        TrainOutcome(run_id="full-1", name="full", key="k", status="completed", started_at=1.0, ended_at=61.0)
    )
    status = read_training(str(tmp_path), "full-1")
    assert status is not None
    assert (status.status, status.has_ended, status.elapsed_s, status.key) == ("completed", True, 60.0, "k")
    assert (status.kind, status.storage) == ("train", str(tmp_path))


def test_how_long_it_took_or_has_taken() -> None:
    plain = Standing(run_id="s-1", status="interrupted", started_at=100.0, read_at=500.0)
    beat = SweepProgress(
        sweep_id="s-1", name="s", status="running", holder=current_holder(), generation=1, at=300.0,
        started_at=100.0, metric="loss", mode="min",
    )  # fmt: skip
    assert plain.elapsed_s is None, "nobody knows until when"
    assert plain.model_copy(update={"heartbeat": beat}).elapsed_s == 200.0
    assert plain.model_copy(update={"heartbeat": beat, "held": "alive"}).elapsed_s == 400.0
    assert plain.model_copy(update={"ended_at": 150.0}).elapsed_s == 50.0
    assert plain.model_copy(update={"heartbeat": beat}).silent_s == 200.0


def test_the_curve_knows_the_final_states() -> None:
    assert curve.FINAL == lifecycle.FINAL
