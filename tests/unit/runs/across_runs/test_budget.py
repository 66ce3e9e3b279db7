"""What the sweeps of one name may take up, and what is pinned: by champions, trainings, what continues."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest

from raysweep.core import encode
from raysweep.core.vocabulary import events as ev
from raysweep.outcome import TrainOutcome
from raysweep.runs.across_runs.budget import asked_budget, keep_budget, plan_budget
from raysweep.runs.across_runs.champions import Champion, Night
from raysweep.runs.across_runs.pins import PinReader
from raysweep.runs.across_runs.releases import add_night
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.holder import current_holder
from raysweep.runs.reading.checkpoints import list_kept
from raysweep.runs.reading.progress import make_progress
from raysweep.runs.reading.reader import SweepReader
from raysweep.runs.training import RunFolder
from raysweep.specs import TrainSpec
from raysweep.specs.continuing import Continue
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.objects.store import Store
from raysweep.storage.objects.wrapped import Operation, WrappedStore
from raysweep.verify import prune, verify_sweep
from tests.begun_trainings import begin_training
from tests.unit.core.sweep import running
from tests.unit.verify.conftest import *  # noqa: F403  the fixture `cli`
from tests.unit.verify.stored import TRIALS, Stored, resume, store_sweep

Cli = Callable[..., Any]
T = TypeVar("T")


@pytest.fixture
def sweeps(tmp_path: Path) -> list[Stored]:
    """Two that have ended, the older first, and one that has not; without what dead workers leave."""
    found = [
        store_sweep(tmp_path, is_ended=True, key="old", at=1000.0),
        store_sweep(tmp_path, is_ended=True, key="new", at=5000.0),
        store_sweep(tmp_path, is_ended=False, key="unfinished", at=9000.0),
    ]
    for stored in found:
        prune(stored.folder, verify_sweep(stored.folder))
    return found


def used(stored: Stored) -> int:
    folder = stored.folder
    return sum(info.size_bytes for info in folder.store.list(f"{folder.sweep_id}/checkpoints"))


def kept(stored: Stored) -> list[tuple[str, int]]:
    reader = SweepReader(stored.folder.store.url, stored.folder.sweep_id, is_strict=True)
    return [(each.trial_id, each.number) for each in reader.checkpoints() if each.needed_by]


def apply(store: Store, budget_bytes: int) -> list[str]:
    return [each.uri for each in keep_budget(store, plan_budget(store, "night", budget_bytes))]


def crown(store: Store, uri: str, sweep_id: str) -> None:
    champion = Champion(
        name="night",
        metric="loss",
        mode="min",
        config={},
        mean=0.0,
        spread=0.0,
        n=1,
        sweep_id=sweep_id,
        checkpoint_uri=uri,
        at=1.0,
    )
    night = Night(sweep_id=sweep_id, at=1.0, promoted=True)
    add_night(store, champion.line, sweep_id, lambda _: (night, champion))


def train_from(store: Store, uri: str, run_id: str = "train-0123456789") -> RunFolder:
    folder = RunFolder(store, run_id)
    begin_training(folder, TrainSpec(trainable="m:f", warm_start_checkpoint=uri, storage_path=store.url), "k")
    return folder


# -- the budget ---------------------------------------------------------------------------------------


def test_within_the_budget_nothing_goes(sweeps: list[Stored]) -> None:
    store = sweeps[0].folder.store
    plan = plan_budget(store, "night", sum(map(used, sweeps)))
    assert (plan.releases, plan.used_bytes, plan.over_bytes) == ((), sum(map(used, sweeps)), 0)


def test_the_oldest_sweep_gives_first_and_its_worst_trial_first(sweeps: list[Stored]) -> None:
    old, new, unfinished = sweeps
    store, before = old.folder.store, [kept(each) for each in sweeps]
    plan = plan_budget(store, "night", plan_used(sweeps) - 1)
    assert [(each.sweep_id, each.trial) for each in plan.releases] == [(old.folder.sweep_id, 3)]
    assert "place 3" in plan.releases[0].why
    (gone,) = keep_budget(store, plan)
    assert not CheckpointStore(store, old.folder.sweep_id).exists(gone.uri)
    assert kept(old) == [each for each in before[0] if each != ("00003", gone.number)]
    assert [kept(new), kept(unfinished)] == before[1:]
    assert all(verify_sweep(each.folder).is_sound for each in sweeps)
    assert not verify_sweep(old.folder).orphans


def plan_used(sweeps: list[Stored]) -> int:
    return sum(map(used, sweeps))


def stored_bytes(store: Store) -> int:
    return sum(info.size_bytes for info in store.list() if "/checkpoints/" in info.key)


def test_what_is_said_to_be_freed_is_freed(sweeps: list[Stored]) -> None:
    store = sweeps[0].folder.store
    for less_bytes in (1, 600, 10**9):
        data = stored_bytes(store)
        plan = plan_budget(store, "night", max(0, plan_used(sweeps) - less_bytes))
        keep_budget(store, plan)
        left = stored_bytes(store)
        assert data - left == plan.freed_bytes > 0


def test_of_the_newest_sweep_the_best_stays_and_of_an_unfinished_one_all(sweeps: list[Stored]) -> None:
    old, new, unfinished = sweeps
    before = kept(unfinished)
    store = old.folder.store
    plan = plan_budget(store, "night", 0)
    assert plan.over_bytes > 0
    assert any("it has not ended" in note for note in plan.notes)
    keep_budget(store, plan)
    assert kept(old) == []
    assert kept(new) == [("00000", new.state.trials[0].checkpoint.number)]
    assert kept(unfinished) == before
    assert all(verify_sweep(each.folder).is_sound for each in sweeps)
    assert apply(store, 0) == [], "there is nothing left to give"


def test_a_sweep_without_checkpoints_is_not_replayed(
    sweeps: list[Stored], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A budget is kept every night: after a year nearly all sweeps of a name have nothing left to give."""
    from raysweep.runs.across_runs import budget

    old, new, _ = sweeps
    store = old.folder.store
    apply(store, plan_used(sweeps) - used(old))
    assert used(old) == 0
    replay, seen = budget._replay, list[str]()

    def counted(folder: SweepFolder, record: Any) -> Any:
        seen.append(folder.sweep_id)
        return replay(folder, record)

    monkeypatch.setattr(budget, "_replay", counted)
    plan = plan_budget(store, "night", 0)
    assert seen == [new.folder.sweep_id]
    assert [why for _, why in plan.pinned] == ["the best of the newest sweep"]


def test_the_outcome_names_no_checkpoint_that_is_gone(sweeps: list[Stored]) -> None:
    old = sweeps[0]
    apply(old.folder.store, 0)
    outcome = old.folder.read_outcome()
    assert [each.checkpoint_uri for each in outcome.trials] == [None] * TRIALS
    assert (outcome.best.number, outcome.best.checkpoint_uri) == (0, None)
    assert outcome.best.metrics == old.state.trials[0].results.last


def test_a_sweep_that_is_taken_up_meanwhile_keeps_its_own(sweeps: list[Stored]) -> None:
    old = sweeps[0]
    store = old.folder.store
    plan = plan_budget(store, "night", 0)
    again = Stored(
        old.folder,
        type(old.asked)(**{**vars_of(old.asked), "continuing": Continue(retry="failed")}),
        old.state,
    )
    held = resume(again)
    assert held.started.is_reopening
    progress = make_progress(
        held.state, sweep_id=old.folder.sweep_id, holder=current_holder(), at=time.time(), total=TRIALS
    )
    old.folder.write_progress(progress.model_copy(update={"generation": held.claim.generation}))
    before = {info.key for info in store.list(f"{old.folder.sweep_id}/checkpoints")}
    assert all(each.sweep_id != old.folder.sweep_id for each in keep_budget(store, plan))
    assert {info.key for info in store.list(f"{old.folder.sweep_id}/checkpoints")} == before


def vars_of(asked: Any) -> dict[str, Any]:
    return {name: getattr(asked, name) for name in asked.__dataclass_fields__}


def test_who_wins_the_claim_while_a_budget_is_kept_keeps_its_own(
    sweeps: list[Stored], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the journal and the claim another process takes the sweep up."""
    from raysweep.runs.across_runs import budget

    old = sweeps[0]
    plan = plan_budget(old.folder.store, "night", 0)
    claim = budget._claim  # the moment between two of its steps has no other seam

    def late(journal: Any, released: Any) -> Any:
        rival = old.folder.journal()
        for _ in rival.read():
            pass
        rival.claim(lambda number: encode(ev.ControllerStarted(at=1.0, generation=number, is_reopening=True)))
        return claim(journal, released)

    before = kept(old)
    monkeypatch.setattr(budget, "_claim", late)
    gone = keep_budget(old.folder.store, plan)
    assert old.folder.sweep_id not in {each.sweep_id for each in gone}
    assert kept(old) == before


def test_a_sweep_that_gave_all_up_goes_on_and_says_what_begins_anew(tmp_path: Path) -> None:
    stored = store_sweep(tmp_path, is_ended=True)
    store_sweep(tmp_path, is_ended=True, key="newer", at=9000.0)
    apply(stored.folder.store, 0)
    held = resume(
        Stored(
            stored.folder,
            type(stored.asked)(**{**vars_of(stored.asked), "continuing": Continue(retry="failed")}),
            stored.state,
        )
    )
    assert held.state.trials[0].checkpoint is None
    sweep = running(1, checkpoint={"keep_best": False}, failure={"max_failures": 0, "breaker_trials": 0})
    sweep.report(0, 0.5)
    sweep.saved(0, 0, report=0)
    sweep.failed(0)
    sweep.send(ev.SweepEnded)
    assert sweep.state.phase == "ended"
    gone = sweep.send(ev.ControllerStarted, generation=2, released=((0, 0), (0, 7), (9, 0)))
    assert [each.uri for each in gone] == ["mem://0/0"]
    sweep.send(ev.ControllerStarted, generation=3, is_reopening=True, retried=(0,))
    assert [note for note in sweep.state.notes if "starts over" in note]


def test_a_running_sweep_takes_no_notice_of_a_release() -> None:
    sweep = running(1)
    sweep.report(0, 0.5)
    sweep.saved(0, 0, report=0)
    sweep.send(ev.ControllerStarted, generation=2, released=((0, 0),))
    assert sweep.state.trials[0].checkpoint is not None


def test_the_newest_spec_says_the_budget(tmp_path: Path) -> None:
    stored = store_sweep(tmp_path, is_ended=True)
    assert asked_budget(stored.folder.store, "night") is None
    assert asked_budget(stored.folder.store, "nobody") is None
    store_sweep(tmp_path, is_ended=True, key="newer", storage_budget="3KiB")
    assert asked_budget(stored.folder.store, "night") == 3072


# -- pins ---------------------------------------------------------------------------------------------


def test_what_a_champion_or_a_training_needs_stays(sweeps: list[Stored]) -> None:
    old = sweeps[0]
    store, state = old.folder.store, old.state
    champion, start = (old.uri(number) for number in (0, 3))
    crown(store, champion, old.folder.sweep_id)
    training = train_from(store, start)
    plan = plan_budget(store, "night", 0)
    pinned = dict(plan.pinned)
    assert pinned[champion] == "the champion of 'night'"
    assert pinned[start] == "training train-0123456789 starts from it"
    keep_budget(store, plan)
    assert kept(old) == [
        ("00000", state.trials[0].checkpoint.number),
        ("00003", state.trials[3].checkpoint.number),
    ]
    store.put(f"{training.run_id}/train_outcome.json", b"{}")
    assert apply(store, 0) == [start], "the training has ended"


@pytest.mark.parametrize("spell", ["{}/", "file://{}", "{}/../../00000/{number}"])
def test_a_training_pins_however_its_spec_spells_the_checkpoint(sweeps: list[Stored], spell: str) -> None:
    old = sweeps[0]
    newest = old.state.trials[0].checkpoint
    train_from(old.folder.store, spell.format(old.uri(0), number=newest.number))
    assert old.uri(0) in dict(plan_budget(old.folder.store, "night", 0).pinned)


def test_what_is_pinned_after_the_plan_was_made_stays(sweeps: list[Stored]) -> None:
    old = sweeps[0]
    plan = plan_budget(old.folder.store, "night", 0)
    uri = old.uri(0)
    crown(old.folder.store, uri, old.folder.sweep_id)
    assert uri in {each.uri for each in plan.releases}
    assert uri not in {each.uri for each in keep_budget(old.folder.store, plan)}


def test_the_list_says_what_pins(cli: Cli, sweeps: list[Stored]) -> None:
    old, _, unfinished = sweeps
    store, state = old.folder.store, old.state
    crown(store, old.uri(0), old.folder.sweep_id)
    train_from(store, old.uri(0))
    listed = json.loads(cli("checkpoints", old.path, "--json").out)["checkpoints"]
    rows = {(row["trial_id"], row["number"]): row for row in listed}
    best = rows["00000", state.trials[0].checkpoint.number]
    assert best["needed_by"] == ["the newest"]
    assert best["pinned_by"] == ["the champion of 'night'", "training train-0123456789 starts from it"]
    assert "pinned: the champion of 'night'" in " ".join(cli("checkpoints", old.path).out.split())
    running_rows = json.loads(cli("checkpoints", unfinished.path, "--json").out)["checkpoints"]
    pins = [pin for row in running_rows for pin in row["pinned_by"]]
    assert pins == ["trial 2 is running, and continues from it"]


def test_a_pause_a_donor_and_a_retry_pin(tmp_path: Path) -> None:
    from raysweep.schedulers import Pause
    from tests.unit.core.scheduled import Scheduled, exploiting

    folder = store_sweep(tmp_path, is_ended=False).folder
    it = exploiting()
    it.sweep.stopped(1)
    pins = {each.uri.rpartition("checkpoints/")[2]: each.pinned_by for each in list_kept(folder, it.state)}
    assert pins["00000/0"] == ("trial 0 is running, and continues from it", "trial 1 continues from it")
    paused = Scheduled(2)
    paused.sweep.report(0, 0.5)
    paused.sweep.saved(0, 0, report=0)
    paused.decide(0, (0, Pause()))
    paused.sweep.stopped(0)
    assert [each.pinned_by for each in list_kept(folder, paused.state)] == [
        ("trial 0 is paused, and continues from it",)
    ]
    retried = running(1, failure={"backoff_initial_s": 60})
    retried.report(0, 0.5)
    retried.saved(0, 0, report=0)
    retried.failed(0)
    assert [each.pinned_by for each in list_kept(folder, retried.state)] == [
        ("trial 0 is retried, and continues from it",)
    ]


def test_a_pinned_checkpoint_that_its_sweep_has_let_go_of_is_no_orphan(
    cli: Cli, sweeps: list[Stored]
) -> None:
    """The sweep was extended, say: the champion's checkpoint is not its trial's newest any more."""
    old = sweeps[0]
    store = old.folder.store
    checkpoints = CheckpointStore(store, old.folder.sweep_id)
    source = old.path.parent.parent / "source"
    uri = checkpoints.save("00000", 9 * 10**9, source).uri
    crown(store, uri, old.folder.sweep_id)
    assert not verify_sweep(old.folder).orphans
    assert json.loads(cli("gc", old.path, "--json").out)["freed_bytes"] == 0
    checkpoints.verify(uri)
    rows = json.loads(cli("checkpoints", old.path, "--json").out)["checkpoints"]
    (row,) = [row for row in rows if row["uri"] == uri]
    assert (row["iteration"], row["needed_by"], row["pinned_by"]) == (None, [], ["the champion of 'night'"])
    crown(store, old.uri(0), "another-0123456789")
    crown(store, old.uri(0), "third-0123456789")
    assert json.loads(cli("gc", old.path, "--json").out)["freed_bytes"] > 0
    assert not checkpoints.exists(uri)


# -- the command --------------------------------------------------------------------------------------


def test_gc_by_name_says_what_goes_and_why_and_then_does_it(cli: Cli, sweeps: list[Stored]) -> None:
    old, new, _ = sweeps
    storage = ("--storage", old.folder.store.url)
    before = [kept(each) for each in sweeps]
    ran = cli("gc", "night", *storage, "--dry-run", "--budget", "1 B")
    assert ran.code == 0
    assert "would free" in ran.out
    assert "over the budget" in ran.out
    assert "place 3" in " ".join(ran.out.split())
    assert f"pinned: {new.uri(0)} (the best of the newest sweep)" in ran.out
    assert "it has not ended" in ran.out
    assert [kept(each) for each in sweeps] == before
    said = json.loads(cli("gc", "night", *storage, "--budget", "1 B", "--json").out)
    assert {each["sweep_id"] for each in said["budget"]["releases"]} == {
        old.folder.sweep_id,
        new.folder.sweep_id,
    }
    assert kept(old) == []
    assert json.loads(cli("gc", "night", *storage, "--budget", "1 B", "--json").out)["freed_bytes"] == 0


def test_gc_takes_name_and_slug_and_the_option(cli: Cli, sweeps: list[Stored]) -> None:
    storage = ("--storage", sweeps[0].folder.store.url, "--dry-run", "--json", "--budget", "0 B")
    said = [
        json.loads(cli("gc", *how, *storage).out) for how in (("night",), ("Night",), ("--name", "night"))
    ]
    assert said[0]["budget"]["releases"]
    assert said[0] == said[1] == said[2]
    ran = cli("gc", "nights", *storage)
    assert ran.code == 2
    assert "did you mean night?" in ran.err


def test_gc_takes_the_budget_of_the_newest_spec(cli: Cli, tmp_path: Path) -> None:
    old = store_sweep(tmp_path, is_ended=True, key="old")
    new = store_sweep(tmp_path, is_ended=True, key="new", at=5000.0, storage_budget=0)
    said = json.loads(cli("gc", new.path, "--json").out)
    assert said["budget"]["budget_bytes"] == 0
    assert kept(old) == []
    assert len(kept(new)) == 1


def test_gc_by_name_passes_a_running_sweep_over(cli: Cli, sweeps: list[Stored]) -> None:
    old, _, unfinished = sweeps
    progress = make_progress(
        unfinished.state,
        sweep_id=unfinished.folder.sweep_id,
        holder=current_holder(),
        at=time.time(),
        total=4,
    )
    unfinished.folder.write_progress(progress)
    left = old.path / "checkpoints" / "00000" / "5-0123abcd" / "left"
    left.parent.mkdir()
    left.write_bytes(b"x" * 5000)
    said = json.loads(cli("gc", "night", "--storage", old.folder.store.url, "--json").out)
    assert said["freed_bytes"] == 5000
    (skipped,) = said["skipped"]
    assert unfinished.folder.sweep_id in skipped


def test_gc_refuses_a_budget_that_is_none(cli: Cli, sweeps: list[Stored]) -> None:
    ran = cli("gc", "night", "--storage", sweeps[0].folder.store.url, "--budget", "much")
    assert ran.code == 2
    assert "50GiB" in ran.err


def test_a_sweep_whose_policy_cannot_be_imported_is_passed_over(sweeps: list[Stored]) -> None:
    old = sweeps[0]
    key = f"{old.folder.sweep_id}/sweep.json"
    record = old.folder.read_spec()
    spec = {**record.spec, "scheduler": {"nowhere.policies:Mine": {}}}
    SweepFolder(old.folder.store, old.folder.sweep_id).replace_spec(
        type(record)(**{**vars_of(record), "spec": spec})
    )
    assert orjson.loads(old.folder.store.get(key))
    plan = plan_budget(old.folder.store, "night", 0)
    assert any(note.startswith(f"{old.folder.sweep_id} is left alone") for note in plan.notes)
    assert old.folder.sweep_id not in {each.sweep_id for each in plan.releases}


def test_the_controller_of_a_sweep_that_is_reopened_knows_its_pins_and_that_of_a_new_one_asks_nobody(
    sweeps: list[Stored],
) -> None:
    old, _, unfinished = sweeps
    uri = old.uri(0)
    crown(old.folder.store, uri, old.folder.sweep_id)
    asked = type(old.asked)(**{**vars_of(old.asked), "continuing": Continue(retry="failed")})
    assert set(resume(Stored(old.folder, asked, old.state)).find_pins()) == {
        old.state.trials[0].checkpoint.uri
    }
    assert resume(unfinished).find_pins() == ()


class Counted(WrappedStore):
    """Notes the keys of all calls."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.keys: list[str] = []

    def around(self, operation: Operation, key: str, call: Callable[[], T]) -> T:
        self.keys.append(key)
        return call()


def test_each_other_run_is_looked_at_once_however_many_sweeps_give_up(tmp_path: Path) -> None:
    ended = [store_sweep(tmp_path, is_ended=True, key=key, at=1000.0) for key in ("a", "b", "c")]
    store = Counted(ended[0].folder.store)
    outcome = TrainOutcome(run_id="x", name="train", status="completed", started_at=1.0, ended_at=2.0)
    train_from(store, ended[0].uri(0)).write_outcome(outcome)
    store.keys.clear()
    pins = PinReader(store)
    plan = plan_budget(store, "night", 0, pins)
    assert len({each.sweep_id for each in plan.releases}) == 3
    keep_budget(store, plan, pins)
    looks = [key for key in store.keys if key.endswith(("/train.json", "/train_outcome.json"))]
    assert looks == ["train-0123456789/train.json", "train-0123456789/train_outcome.json"]


def test_a_training_that_begins_between_two_sweeps_pins(sweeps: list[Stored]) -> None:
    old, new, _ = sweeps
    store, pins = old.folder.store, PinReader(old.folder.store)
    plan = plan_budget(store, "night", 0, pins)
    uri = next(each.uri for each in plan.releases if each.sweep_id == new.folder.sweep_id)
    train_from(store, uri)
    assert uri not in {each.uri for each in keep_budget(store, plan, pins)}
