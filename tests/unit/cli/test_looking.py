"""`status`, `best`, `trials`: while a sweep runs, after a crash, after its end; by id, beginning and URI."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysweep.outcome import Holder, TrainOutcome
from raysweep.runs.ownership.holder import current_holder
from raysweep.runs.training import CHECKPOINT_OWNER, RunFolder
from raysweep.specs import TrainSpec
from raysweep.specs.identity import RunId
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.objects.opening import open_store
from tests.begun_trainings import begin_training

Cli = Callable[..., Any]
Store = Callable[..., Any]


def at(stored: Any) -> list[str]:
    return ["--storage", stored.folder.store.url]


# -- status -------------------------------------------------------------------------------------------


def test_status_of_a_running_sweep(cli: Cli, store_sweep: Store) -> None:
    stored = store_sweep()
    stored.beat(current_holder())
    ran = cli("status", stored.sweep_id, *at(stored))
    assert (ran.code, ran.err) == (0, "")
    assert f"{stored.sweep_id}  running" in ran.out
    assert "2 of 4 trials ended: 1 completed, 1 failed, 1 running" in ran.out
    assert "best loss 5 (trial 00000): x=0 net.width=0" in ran.out
    row = next(line.split() for line in ran.out.splitlines() if line.startswith("00002"))
    assert row[:3] == ["00002", "2", "2"]
    assert f"process {current_holder().pid}" in ran.out


def test_status_after_a_crash_says_how_to_go_on(cli: Cli, store_sweep: Store, gone_holder: Holder) -> None:
    stored = store_sweep()
    stored.beat(gone_holder, at=time.time() - 300)
    ran = cli("status", stored.sweep_id, *at(stored))
    assert ran.code == 0
    assert f"interrupted {stored.sweep_id}" in ran.out
    assert "not running: its controller is gone" in ran.out
    assert f"process {gone_holder.pid}" in ran.out
    assert "last seen 5 min ago" in ran.out
    assert f"raysweep resume {stored.sweep_id} --storage {stored.folder.store.url}" in ran.out
    # From the journal: the heartbeat may be older than the last events.
    assert "best     " in ran.out
    assert "loss 5 (trial 00000)" in ran.out


def test_status_names_the_first_failure(cli: Cli, store_sweep: Store) -> None:
    stored = store_sweep()
    stored.end()
    ran = cli("status", stored.sweep_id, *at(stored))
    assert ran.code == 0
    assert "error       trial 00001: KeyError: 'rate'\n" in ran.out
    where = f"{stored.sweep_id} --storage {stored.folder.store.url}"
    assert f"next        raysweep best {where}\n" in ran.out
    assert f"report      raysweep report {where} --open\n" in ran.out
    assert f"failures    raysweep trials {where} --attempts\n" in ran.out


def test_status_before_the_first_heartbeat_and_from_another_host(cli: Cli, store_sweep: Store) -> None:
    stored = store_sweep()
    assert "its controller is gone" in cli("status", stored.sweep_id, *at(stored)).out
    elsewhere = current_holder().model_copy(update={"host": "elsewhere", "boot_id": "other"})
    stored.beat(elsewhere, at=time.time() - 300)
    assert "its controller was last seen 5 min ago" in cli("status", stored.sweep_id, *at(stored)).out
    stored.beat(elsewhere)
    assert "running" in cli("status", stored.sweep_id, *at(stored)).out.splitlines()[0]


def test_status_of_one_that_ended_without_an_outcome(
    cli: Cli, store_sweep: Store, gone_holder: Holder
) -> None:
    """Its controller died right then, or it could give none."""
    stored = store_sweep(is_ended=True)
    stored.beat(gone_holder)
    ran = cli("status", stored.sweep_id, *at(stored))
    assert f"cancelled {stored.sweep_id}" in ran.out
    assert "ended without an outcome: enough" in ran.out
    assert f"raysweep resume {stored.sweep_id}" in ran.out


def test_a_holder_that_lives_but_has_left(cli: Cli, store_sweep: Store) -> None:
    stored = store_sweep()
    progress = stored.beat(current_holder())
    stored.folder.write_progress(progress.model_copy(update={"has_left": True}))
    assert f"interrupted {stored.sweep_id}" in cli("status", stored.sweep_id, *at(stored)).out
    assert " interrupted " in cli("status", *at(stored)).out


def test_status_after_the_end(cli: Cli, store_sweep: Store) -> None:
    stored = store_sweep()
    stored.end()
    ran = cli("status", stored.sweep_id, *at(stored))
    assert f"cancelled {stored.sweep_id}" in ran.out
    assert "enough" in ran.out
    assert f"next        raysweep best {stored.sweep_id}" in ran.out
    assert re.search(r"^ +ended +\d+ s ago, after 1:00$", ran.out, re.MULTILINE)


def test_status_as_json(cli: Cli, store_sweep: Store, gone_holder: Holder) -> None:
    stored = store_sweep()
    stored.beat(gone_holder)
    shown = json.loads(cli("status", stored.sweep_id, "--json", *at(stored)).out)
    assert (shown["status"], shown["is_running"], shown["key"]) == ("interrupted", False, "k")
    assert (shown["best"]["score"], shown["ahead"]) == (5.0, None)
    assert shown["counts"] == {"completed": 1, "failed": 1, "running": 1, "pending": 1}
    stored.end()
    shown = json.loads(cli("status", stored.sweep_id, "--json", *at(stored)).out)
    assert (shown["status"], shown["progress"]) == ("cancelled", None)


def test_the_list_of_sweeps(cli: Cli, store_sweep: Store, gone_holder: Holder) -> None:
    running, crashed, ended, unread = (store_sweep(name) for name in ("a", "b", "c", "d"))
    running.beat(current_holder())
    crashed.beat(gone_holder)
    ended.end()
    store = unread.folder.store
    store.put(f"{unread.sweep_id}/outcome.json", b"{torn")

    ran = cli("status", *at(running))
    assert (ran.code, ran.err) == (0, "")
    rows = {line.split()[0]: line.split() for line in ran.out.splitlines()[1:]}
    assert rows[running.sweep_id][1:4] == ["running", "2/4", "5"]
    assert rows[crashed.sweep_id][1:4] == ["interrupted", "2/4", "5"]
    assert rows[crashed.sweep_id][-1] == "(gone)"
    assert rows[ended.sweep_id][1:4] == ["cancelled", "4/4", "2"]
    assert rows[unread.sweep_id][1:3] == ["damaged", "0"]
    assert "outcome.json" in " ".join(rows[unread.sweep_id])

    listed = {row["sweep_id"]: row for row in json.loads(cli("status", "--json", *at(running)).out)["nights"]}
    assert listed[crashed.sweep_id]["status"] == "interrupted"
    assert listed[ended.sweep_id]["best_score"] == 2.0


def test_a_training_run_beside_sweeps(cli: Cli, store_sweep: Store, gone_holder: Holder) -> None:
    sweep = store_sweep("night")
    store = sweep.folder.store
    spec = TrainSpec(name="full", trainable="m:f", config={"lr": 0.1}, storage_path=store.url)
    done, left = RunFolder(store, "full-0000000001"), RunFolder(store, "full-0000000002")
    for folder in (done, left):
        begin_training(folder, spec, "k")
    now = time.time()
    os.utime(Path(store.url) / left.run_id / "train.json", (now - 900, now - 900))
    done.write_outcome(
        TrainOutcome(
            run_id=done.run_id, name="full", status="completed", started_at=now - 90, ended_at=now - 30,
            metrics={"auc": 0.74}, config={"lr": 0.1}, model_uri="/m", uri=done.uri,
        )
    )  # fmt: skip
    rows = {line.split()[0]: line.split()[1:] for line in cli("status", *at(sweep)).out.splitlines()}
    assert (rows[sweep.sweep_id][0], "sweep" in rows[sweep.sweep_id]) == ("starting", True)
    assert (rows[done.run_id][0], rows[done.run_id][-1]) == ("completed", "train")
    assert (rows[left.run_id][0], rows[left.run_id][-2:]) == ("interrupted", ["train", "k"])
    one = cli("status", done.run_id, *at(sweep))
    assert (one.code, one.err) == (0, "")
    assert one.out.startswith(f"completed {done.run_id}\n")
    assert re.search(r"^ +ended +[345]\d s ago, after 1:00$", one.out, re.MULTILINE)
    for fact in ("metrics    auc=0.74", "model      /m"):
        assert fact in one.out
    assert json.loads(cli("status", done.uri, "--json").out)["outcome"]["metrics"] == {"auc": 0.74}
    assert "not running: its process is gone" in cli("status", "full-0000000002", *at(sweep)).out
    either = cli("status", "full-", *at(sweep))
    assert (either.code, "full-0000000001 (key" in either.err, "full-0000000002 (key" in either.err) == (
        2,
        True,
        True,
    )


def test_a_training_run_by_its_name_and_key(cli: Cli, store_sweep: Store) -> None:
    """A sweep of the same name and key comes first."""
    sweep = store_sweep("night")
    spec = TrainSpec(name="full", trainable="m:f", config={"lr": 0.1}, storage_path=sweep.folder.store.url)
    folder = RunFolder(sweep.folder.store, RunId.of(spec, "k").id)
    begin_training(folder, spec, "k")
    by_id = cli("status", folder.run_id, "--json", *at(sweep))
    for named in (["--name", "full", "--key", "k"], ["--name", "full"]):
        assert (
            json.loads(cli("status", *named, "--json", *at(sweep)).out).keys() == json.loads(by_id.out).keys()
        )
        assert folder.run_id in cli("status", *named, *at(sweep)).out
    other = cli("status", "--name", "full", "--key", "another", *at(sweep))
    assert (other.code, "no sweep" in other.err) == (2, True), other.err
    ours = TrainSpec(name="night", trainable="m:f", config={"lr": 0.1}, storage_path=sweep.folder.store.url)
    begin_training(RunFolder(sweep.folder.store, RunId.of(ours, "k").id), ours, "k")
    assert sweep.sweep_id in cli("status", "--name", "night", *at(sweep)).out


def test_an_empty_list(cli: Cli, tmp_path: Any) -> None:
    ran = cli("status", "--storage", tmp_path / "nothing")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == f"no sweeps at {tmp_path / 'nothing'}\n"
    assert json.loads(cli("status", "--json", "--storage", tmp_path / "nothing").out)["nights"] == []


# -- best and trials ----------------------------------------------------------------------------------


def test_the_best_of_a_sweep_that_has_not_ended(cli: Cli, store_sweep: Store) -> None:
    stored = store_sweep()
    ran = cli("best", stored.sweep_id, *at(stored))
    assert ran.code == 0
    assert ran.out.splitlines()[0] == "loss 5  trial 00000", "trial 00002 has 2 and still runs"
    assert "config      x=0 net.width=0" in ran.out
    assert "metrics     loss=5" in ran.out
    assert "by          lowest loss" in ran.out


def test_the_best_as_json_holds_what_a_script_needs(cli: Cli, store_sweep: Store) -> None:
    stored = store_sweep()
    stored.end()
    ran = cli("best", stored.sweep_id, "--json", *at(stored))
    best = json.loads(ran.out)
    assert ran.err == ""
    assert (best["sweep_id"], best["metric"], best["mode"]) == (stored.sweep_id, "loss", "min")
    assert (best["trial_id"], best["score"]) == ("00002", 2.0)
    assert best["config"] == {"x": 2.0, "net": {"width": 16}}
    assert best["metrics"]["loss"] == 2.0
    assert best["checkpoint_uri"] == "/c/00002/0"


def test_no_best_is_a_failure_in_one_line(cli: Cli, store_sweep: Store) -> None:
    stored = store_sweep()
    stored.folder.store.delete(*[f"{stored.sweep_id}/journal/{number:012d}.jsonl" for number in (2, 3)])
    ran = cli("best", stored.sweep_id, *at(stored))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(
        f"error: {stored.sweep_id} has no best trial: no trial has reported a finite loss; see raysweep"
    )
    assert len(ran.err.splitlines()) == 1


def test_trials(cli: Cli, store_sweep: Store) -> None:
    stored = store_sweep()
    rows = [line.split() for line in cli("trials", stored.sweep_id, *at(stored)).out.splitlines()]
    assert rows[0] == ["trial", "state", "loss", "reports", "attempts", "time", "config", "error"]
    assert rows[1][:6] == ["00000", "completed", "5", "1", "1", "0:02"]
    assert rows[2][:2] == ["00001", "failed"]
    assert rows[2][-2:] == ["KeyError:", "'rate'"]
    assert rows[3][:4] == ["00002", "running", "2", "2"]
    assert rows[4][:2] == ["00003", "pending"]


def test_attempts(cli: Cli, store_sweep: Store) -> None:
    stored = store_sweep()
    rows = [
        line.split() for line in cli("trials", stored.sweep_id, "--attempts", *at(stored)).out.splitlines()
    ]
    assert rows[1][:4] == ["00000", "1", "completed", "node-one-and"]
    assert rows[2] == ["00001", "1", "failed", "user_error", "node-one-and", "0:01", "KeyError:", "'rate'"]
    assert " ".join(rows[3]).startswith(f"what an attempt printed: raysweep logs {stored.sweep_id} ")
    assert len(rows) == 4


def test_trials_as_json(cli: Cli, store_sweep: Store) -> None:
    stored = store_sweep()
    trials = json.loads(cli("trials", stored.sweep_id, "--json", *at(stored)).out)["trials"]
    assert [trial["state"] for trial in trials] == ["completed", "failed", "running", "pending"]
    assert trials[1]["attempts"][0]["error"]["message"] == "'rate'\nsecond line"


def test_damage_is_said_and_not_passed_over(cli: Cli, store_sweep: Store) -> None:
    stored = store_sweep()
    store = stored.folder.store
    key = max(info.key for info in store.list(f"{stored.sweep_id}/journal"))
    store.put(key, store.get(key).replace(b'"loss"', b'"lost"'))
    for command in ("trials", "best", "status"):
        ran = cli(command, stored.sweep_id, *at(stored))
        assert (ran.code, ran.out) == (1, "")
        assert len(ran.err.splitlines()) == 1
        assert key in ran.err


# -- names --------------------------------------------------------------------------------------------


def test_a_sweep_by_beginning_and_by_uri(
    cli: Cli, store_sweep: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = store_sweep("night")
    store_sweep("nightly")
    whole = cli("best", stored.sweep_id, *at(stored))
    assert cli("best", stored.sweep_id[:8], *at(stored)) == whole
    assert cli("best", stored.folder.uri) == whole
    assert cli("best", f"{stored.folder.uri}/") == whole
    monkeypatch.chdir(stored.folder.store.url)
    assert cli("best", f"./{stored.sweep_id}").out == whole.out


def test_names_that_lead_nowhere(cli: Cli, store_sweep: Store) -> None:
    one, two = store_sweep("night"), store_sweep("nightly")
    url = one.folder.store.url
    ambiguous = cli("best", "nigh", *at(one))
    assert ambiguous.code == 2
    assert ambiguous.err.startswith(f"error: no sweep 'nigh' at {url}; it may be ")
    for each in (one, two):
        assert f"{each.sweep_id} (key k, starting, " in ambiguous.err
    assert ambiguous.err.endswith("; give the id of one\n")
    mistyped = cli("best", one.sweep_id.replace("night", "nihgt"), *at(one))
    assert mistyped.code == 2
    assert f"did you mean {one.sweep_id}" in mistyped.err
    assert (
        f"there are {one.sweep_id}, {two.sweep_id}; or check the storage path"
        in cli("best", "zzz", *at(one)).err
    )


# -- checkpoints of a training -------------------------------------------------------------------------


def test_the_checkpoints_of_a_training_are_listed_and_pulled(cli: Cli, tmp_path: Any) -> None:
    spec = TrainSpec(name="t", trainable="examples.quick:steps")
    folder = RunFolder(open_store(tmp_path / "runs"), RunId.of(spec, "k").id)
    begin_training(folder, spec, "k")
    store, given = CheckpointStore(folder.store, folder.run_id), tmp_path / "given"
    given.mkdir()
    (given / "frozen").write_bytes(b"f" * 100_000)
    first = store.save(CHECKPOINT_OWNER, 1_000_000_001, given)
    (given / "step").write_bytes(b"2")
    uri = store.save(CHECKPOINT_OWNER, 1_000_000_002, given, parent=first.manifest).uri

    ran = cli("checkpoints", folder.run_id, "--storage", folder.store.url, "--json")
    assert ran.code == 0
    kept = json.loads(ran.out)["checkpoints"]
    assert [(each["new_bytes"], each["needed_by"]) for each in kept] == [
        (100_000, ["the one before"]),
        (1, ["the newest"]),
    ]
    assert cli("checkpoints", folder.run_id, "--storage", folder.store.url).code == 0
    assert cli("pull", kept[-1]["uri"], tmp_path / "pulled").code == 0
    assert kept[-1]["uri"] == uri
    assert (tmp_path / "pulled" / "step").read_bytes() == b"2"
