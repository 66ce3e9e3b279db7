"""A store under another name, and after a move: all that is done with a run works as before."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysweep.cli import main
from raysweep.errors import ChampionKeptError, CheckpointDamagedError
from raysweep.outcome import SweepOutcome
from raysweep.runs.across_runs.budget import keep_budget, plan_budget
from raysweep.runs.across_runs.champions import Champion, Line, Night, read_champion
from raysweep.runs.across_runs.releases import add_night, roll_back
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.removal import put_aside, remove
from raysweep.runs.ownership.reopening import check_same
from raysweep.runs.ownership.sweep_claim import Ownership, find_outcome
from raysweep.runs.reading.history import read_reports
from raysweep.runs.reading.reader import SweepReader
from raysweep.runs.reading.view import RunView
from raysweep.runs.training import RunFolder, read_warm_start
from raysweep.specs import RunRequest, TrainSpec
from raysweep.specs.continuing import Continue
from raysweep.storage.checkpoints.store import CheckpointStore, restore_uri
from raysweep.storage.objects.identity import is_same_store
from raysweep.storage.objects.opening import open_store
from raysweep.stored import StoredSweep
from raysweep.verify import verify_sweep
from tests.begun_trainings import begin_training
from tests.unit.verify.stored import Stored, make_asked, resume, store_sweep

Name = Callable[[Path, pytest.MonkeyPatch], str]
LINE = Line(name="night", metric="loss", mode="min")


def by_symlink(store: Path, _: pytest.MonkeyPatch) -> str:
    os.symlink(store, store.with_name("alias"))
    return str(store.with_name("alias"))


def by_symlink_above(store: Path, _: pytest.MonkeyPatch) -> str:
    os.symlink(store.parent, store.parent.with_name("above"))
    return str(store.parent.with_name("above") / store.name)


def by_move(store: Path, _: pytest.MonkeyPatch) -> str:
    store.rename(store.with_name("moved"))
    return str(store.with_name("moved"))


def by_slash(store: Path, _: pytest.MonkeyPatch) -> str:
    return f"{store}/"


def by_url(store: Path, _: pytest.MonkeyPatch) -> str:
    return f"file://{store}"


def by_relative_path(store: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(store.parent)
    return f"./{store.name}"


NAMES = [by_symlink, by_symlink_above, by_move, by_slash, by_url, by_relative_path]


@pytest.fixture(params=NAMES, ids=lambda name: name.__name__)
def name(request: pytest.FixtureRequest) -> Name:
    found: Name = request.param
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def under(stored: Stored, called: str, **spec: Any) -> Stored:
    """The same sweep, asked for with its store called like that."""
    asked = make_asked(called)
    asked = type(asked)(
        spec=asked.spec.replace(**spec).placed(), key="k", seed=asked.seed, continuing=asked.continuing
    )
    return Stored(SweepFolder(open_store(called), stored.folder.sweep_id), asked, stored.state)


def crown(stored: Stored) -> None:
    champion = Champion(
        name="night", metric="loss", mode="min", config={}, mean=0.0, spread=0.0, n=1,
        sweep_id=stored.folder.sweep_id, checkpoint_uri=stored.uri(0), at=1.0,
    )  # fmt: skip
    night = Night(sweep_id=stored.folder.sweep_id, at=1.0, promoted=True)
    add_night(stored.folder.store, LINE, stored.folder.sweep_id, lambda _: (night, champion))


def test_what_has_ended_comes_back_with_places_that_are_there(
    name: Name, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = store_sweep(root, is_ended=True)
    first = stored.folder.read_outcome()
    now = under(stored, called := name(root / "store", monkeypatch))
    outcome = resume(now)
    assert isinstance(outcome, SweepOutcome)
    assert first is not None
    assert (outcome.counts, outcome.uri) == (first.counts, now.folder.uri)
    assert outcome.best.checkpoint_uri == now.uri(0)
    restore_uri(now.uri(0), root / "restored")
    assert (root / "restored/weights.bin").exists()
    assert RunRequest.of(now.asked.spec, None).run == RunRequest.of(stored.asked.spec, None).run
    assert len(list(StoredSweep.of(outcome).reports())) == len(list(read_reports(now.folder.uri))) > 0
    assert verify_sweep(now.folder).is_sound
    for status in (SweepReader(called, now.folder.sweep_id).read(), None):
        if status is not None and status.best is not None:
            assert (status.uri, status.best.checkpoint_uri) == (now.folder.uri, now.uri(0))
    run = RunView("sweep", called, now.folder.sweep_id)
    assert not run.check_same(RunRequest.of(now.asked.spec, "k"), outcome)
    assert is_same_store(called, str(now.folder.store.url))


def test_what_has_not_ended_goes_on(name: Name, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = store_sweep(root, is_ended=False)
    now = under(stored, called := name(root / "store", monkeypatch), num_samples=9)
    status = SweepReader(called, now.folder.sweep_id).read()
    assert status is not None
    assert status.top
    kept = [trial for trial in status.top if trial.checkpoint_uri]
    assert [trial.checkpoint_uri for trial in kept] == [now.uri(trial.number) for trial in kept]
    assert kept
    assert not check_same(now.folder, stored.asked.spec, None)
    held = resume(now)
    assert isinstance(held, Ownership)
    assert held.state.line.counts == stored.state.line.counts
    assert held.changed is not None
    assert held.changed.changes == ("num_samples: 4 -> 9",), "the storage path is no change"
    checkpoint = held.state.trials[0].checkpoint
    assert checkpoint is not None
    CheckpointStore(now.folder.store, now.folder.sweep_id).restore(checkpoint.uri, root / "restored")


def test_failed_trials_are_retried(name: Name, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = store_sweep(root, is_ended=True)
    now = under(stored, name(root / "store", monkeypatch))
    asked = type(now.asked)(
        spec=now.asked.spec, key="k", seed=now.asked.seed, continuing=Continue(retry="failed")
    )
    assert find_outcome(now.folder, asked) is None
    held = resume(Stored(now.folder, asked, now.state))
    assert isinstance(held, Ownership)
    assert held.started.is_reopening


def test_a_champions_checkpoint_stays(name: Name, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against `rm`, `restart`, a budget and `gc`; whatever the champion is called."""
    stored = store_sweep(root, is_ended=True)
    crown(stored)
    now = under(stored, called := name(root / "store", monkeypatch))
    champion = read_champion(now.folder.store, LINE).champion
    assert champion is not None
    assert champion.checkpoint_uri == now.uri(0)
    for do in (remove, put_aside):
        with pytest.raises(ChampionKeptError, match="champion of 'night'"):
            do(called, now.folder.sweep_id)
    plan = plan_budget(now.folder.store, "night", 0)
    assert "the champion of 'night'" in dict(plan.pinned)[now.uri(0)]
    keep_budget(now.folder.store, plan)
    restore_uri(now.uri(0), root / "restored")


def test_the_checkpoint_that_a_rollback_comes_back_to_stays(root: Path) -> None:
    stored = store_sweep(root, is_ended=True)
    crown(stored)
    store = stored.folder.store
    later = Champion(
        name="night", metric="loss", mode="min", config={}, mean=-1.0, spread=0.0, n=1, sweep_id="s", at=2.0
    )
    add_night(store, LINE, "s", lambda _: (Night(sweep_id="s", at=2.0, promoted=True), later))
    for do in (remove, put_aside):
        with pytest.raises(ChampionKeptError, match="the champion of 'night' before"):
            do(store.url, stored.folder.sweep_id)
    done = roll_back(store, LINE)
    assert (done.champion.checkpoint_uri, done.lost_checkpoint) == (stored.uri(0), "")
    restore_uri(stored.uri(0), root / "restored")


def test_a_champion_of_another_name_keeps_its_checkpoint_too(root: Path) -> None:
    stored = store_sweep(root, is_ended=True)
    champion = Champion(
        name="prod", metric="auc", mode="max", config={}, mean=0.0, spread=0.0, n=1,
        sweep_id="s", checkpoint_uri=stored.uri(2), at=1.0,
    )  # fmt: skip
    made = Night(sweep_id="s", at=1.0, promoted=True), champion
    add_night(stored.folder.store, champion.line, "s", lambda _: made)
    with pytest.raises(ChampionKeptError, match="champion of 'prod'"):
        remove(stored.folder.store.url, stored.folder.sweep_id)
    assert stored.uri(2) in dict(plan_budget(stored.folder.store, "night", 0).pinned)


def test_a_training_pins_and_resumes(name: Name, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = store_sweep(root, is_ended=True)

    def train(called: str, uri: str) -> TrainSpec:
        return TrainSpec(name="full", trainable="m:f", warm_start_checkpoint=uri, storage_path=called)

    spec = train(str(root / "store"), stored.uri(3))
    run_id = RunRequest.of(spec, "k").run.id
    begin_training(RunFolder(stored.folder.store, run_id), spec, "k")
    now = under(stored, called := name(root / "store", monkeypatch))
    run = RunFolder(now.folder.store, run_id)
    checkpoint = now.state.trials[3].checkpoint
    assert checkpoint is not None
    reference = f"{now.folder.sweep_id}/{checkpoint.uri}"
    assert read_warm_start(now.folder.store, run_id) == reference
    for uri in (now.uri(3), stored.uri(3), f"{called.rstrip('/')}/{reference}"):
        assert run.has(train(called, uri))
    assert not run.has(train(called, now.uri(2)))
    pinned = dict(plan_budget(now.folder.store, "night", 0).pinned)
    assert f"training {run_id} starts from it" in pinned[now.uri(3)]


def test_the_command_line(
    name: Name, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = store_sweep(root, is_ended=True)
    crown(stored)
    called = name(root / "store", monkeypatch)
    now = under(stored, called)

    def said(*words: str) -> tuple[int, str]:
        code = main([*words])
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    sweep = now.folder.sweep_id
    assert now.folder.uri in said("status", sweep, "--storage", called)[1]
    assert json.loads(said("best", sweep, "--storage", called, "--json")[1])["checkpoint_uri"] == now.uri(0)
    assert said("verify", sweep, "--storage", called)[0] == 0
    assert "champion of 'night'" in said("rm", sweep, "--yes", "--storage", called)[1]
    assert said("gc", "night", "--storage", called, "--budget", "0 B")[0] == 0
    assert said("pull", now.uri(0), str(root / "pulled"))[0] == 0
    assert (root / "pulled/weights.bin").exists()


def test_nothing_that_is_stored_names_the_store(root: Path) -> None:
    """But the specs, which say what was asked for, and what a person has given."""
    stored = store_sweep(root, is_ended=True)
    crown(stored)
    for path in (root / "store").rglob("*"):
        text = path.read_bytes().replace(b" ", b"") if path.is_file() else b""
        asked = b'"storage_path":"%b"' % str(root / "store").encode()
        assert str(root).encode() not in text.replace(asked, b""), path


def test_a_checkpoint_of_another_sweep_is_not_taken_for_its_own(root: Path) -> None:
    stored = store_sweep(root, is_ended=True)
    store = CheckpointStore(stored.folder.store, stored.folder.sweep_id)
    with pytest.raises(CheckpointDamagedError, match="no such checkpoint"):
        store.read_manifest("checkpoints/00000/99")
    assert store.addresses.reference(stored.uri(0)) == stored.state.trials[0].checkpoint.uri  # type: ignore[union-attr]
