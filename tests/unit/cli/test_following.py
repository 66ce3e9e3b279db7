"""`attach`, `cancel`, `logs` and `plan` without a cluster: what the storage tells."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysweep.cli.exit_codes import Detached
from raysweep.outcome import Cancellation, SweepOutcome
from raysweep.runs.ownership.holder import current_holder
from raysweep.specs import sweep_id
from tests.unit.cli.conftest import Cli, Stored

SPEC: dict[str, Any] = {
    "name": "planned",
    "trainable": "examples.quick:steps",
    "param_space": {"x": {"grid_search": [1, 2, 3]}},
    "metric": "loss",
    "mode": "min",
    "num_samples": 2,
    "resources": {"cpu": 1},
}


def end_when_asked(sweep: Stored) -> threading.Thread:
    """A controller, as far as others can see it: ends its sweep when it is asked to."""

    def run() -> None:
        deadline = time.monotonic() + 20
        while sweep.folder.read_cancellation() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        sweep.end()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_cancel_asks_the_holder_and_waits_for_the_end(
    cli: Cli, store_sweep: Callable[..., Stored], tmp_path: Path
) -> None:
    sweep = store_sweep()
    sweep.beat(current_holder())
    thread = end_when_asked(sweep)
    ran = cli("cancel", "night", "--storage", tmp_path / "store", "--reason", "too dear")
    thread.join()
    assert (ran.code, ran.out.strip(), ran.err) == (0, f"{sweep.sweep_id} cancelled", "")
    asked = sweep.folder.read_cancellation()
    assert asked is not None
    assert (asked.reason, asked.by) == ("too dear", "raysweep cancel")
    again = cli("cancel", "night", "--storage", tmp_path / "store", "--json")
    expected = {"schema_version": 1, "run_id": sweep.sweep_id, "was_running": False, "status": "cancelled"}
    assert (again.code, json.loads(again.out)) == (0, expected)


def test_cancel_of_a_sweep_that_nobody_runs_asks_nobody(
    cli: Cli, store_sweep: Callable[..., Stored], gone_holder: Any, tmp_path: Path
) -> None:
    sweep = store_sweep()
    sweep.beat(gone_holder)
    ran = cli("cancel", "night", "--storage", tmp_path / "store")
    assert (ran.code, ran.out.strip()) == (0, f"{sweep.sweep_id} was not running: interrupted")
    # A resume of it must not meet an old request.
    assert sweep.folder.read_cancellation() is None


def test_attach_follows_to_the_end_and_exits_as_the_sweep_does(
    cli: Cli, store_sweep: Callable[..., Stored], tmp_path: Path
) -> None:
    sweep = store_sweep()
    sweep.beat(current_holder())
    ending = threading.Timer(0.7, sweep.end)
    ending.start()
    ran = cli("attach", sweep.sweep_id, "--storage", tmp_path / "store", "--json")
    ending.join()
    assert ran.code == 3
    assert SweepOutcome.from_json(ran.out).status == "cancelled"


def test_attach_to_a_sweep_that_nobody_runs_says_how_to_go_on(
    cli: Cli, store_sweep: Callable[..., Stored], gone_holder: Any, tmp_path: Path
) -> None:
    sweep = store_sweep()
    sweep.beat(gone_holder)
    ran = cli("attach", "night", "--storage", tmp_path / "store")
    assert (ran.code, ran.out) == (2, "")
    assert f"raysweep resume {sweep.sweep_id} --storage {tmp_path / 'store'}" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("attach", "night", "--lease", "60"),
        ("sweep", "spec.json", "--working-dir", "."),
        ("sweep", "spec.json", "--address", "auto", "--env", "TOKEN=secret-value"),
        ("train", "train.json", "--detach"),
        ("doctor", "--address", "head:8265"),
    ],
)
def test_what_only_a_jobs_api_can_do_asks_for_its_address(
    arguments: tuple[str, ...], cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    train = {"name": "t", "trainable": "examples.quick:steps", "config": {}}
    (tmp_path / "train.json").write_text(json.dumps(train))
    ran = cli(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "http" in ran.err
    assert "secret-value" not in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_a_variable_that_is_not_set_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    ran = cli("sweep", "spec.json", "--address", "http://127.0.0.1:9", "--env", "NOT_SET_ANYWHERE")
    assert ran.code == 2
    assert "'NOT_SET_ANYWHERE' is not set here" in ran.err


def test_a_detached_command_says_how_to_come_back() -> None:
    error = Detached("s-1", attach="raysweep attach s-1", cancel="raysweep cancel s-1", is_leased=True)
    assert "s-1 keeps running until its lease ends" in str(error)
    assert "raysweep attach s-1" in str(error)
    assert "raysweep cancel s-1" in str(error)


def test_a_plan_shows_what_would_run_and_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    ran = cli("plan", "spec.json", "--key", "k", "--storage", tmp_path / "store", "--json")
    assert ran.code == 0, ran.err
    plan = json.loads(ran.out)
    assert plan["sweep_id"] == sweep_id("planned", "k")
    assert (plan["trials"], plan["state"], plan["resources"]) == (6, "new", [{"CPU": 1.0}])
    assert plan["at_once"] >= 1
    assert plan["where"] == "this machine"
    assert not (tmp_path / "store").exists()


def test_a_plan_of_a_sweep_that_is_there_says_how_it_stands(
    cli: Cli, store_sweep: Callable[..., Stored], gone_holder: Any, tmp_path: Path
) -> None:
    sweep = store_sweep()
    sweep.beat(gone_holder)
    record = sweep.folder.read_spec()
    assert record is not None
    (tmp_path / "spec.json").write_text(json.dumps({**record.spec, "num_samples": 9}))
    ran = cli("plan", "spec.json", "--key", sweep.key)
    assert ran.code == 0, ran.err
    assert "unfinished: it would be resumed, 2 trials have ended" in ran.out
    assert "num_samples: 4 -> 9" in ran.out
    sweep.end()
    refused = cli("plan", "spec.json", "--key", "k").out
    assert "ended (cancelled) " in refused
    assert "it would be refused, as it has another spec" in refused
    (tmp_path / "spec.json").write_text(json.dumps(dict(record.spec)))
    assert "it would be returned as it is, and nothing run" in cli("plan", "spec.json", "--key", "k").out


def test_a_plan_refuses_what_cannot_run(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(json.dumps({**SPEC, "resources": {"cpu": 100_000}}))
    ran = cli("plan", "spec.json")
    assert (ran.code, ran.out) == (2, "")
    assert "resources.cpu: one trial asks for 100000 CPU" in ran.err


def test_without_ray_a_plan_is_one_for_this_machine_without_it(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    find = importlib.util.find_spec
    # An environment without Ray, as far as the command asks.
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else find(name)
    )
    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    ran = cli("plan", "spec.json")
    assert ran.code == 0
    assert "this machine, without Ray" in ran.out


def test_what_a_spec_names_lies_beside_it(cli: Cli, tmp_path: Path) -> None:
    """Also where the command is given in another folder."""
    folder = tmp_path / "specs"
    folder.mkdir()
    (folder / "beside_the_spec.py").write_text("def train(config):\n    return 0.5\n")
    spec = SPEC | {"trainable": "beside_the_spec:train", "storage_path": str(tmp_path / "store")}
    (folder / "night.json").write_text(json.dumps(spec))
    searched = list(sys.path)
    ran = cli("plan", "specs/night.json")
    assert (ran.code, ran.err) == (0, "")
    assert sys.path == searched, "for this command only"


def test_a_plan_names_what_is_the_same_in_every_trial(cli: Cli, tmp_path: Path) -> None:
    net = {"kind": "wide", "depth": {"choice": [1]}}
    space = {"x": {"grid_search": [1, 2]}, "bounds": [0, 1], "net": net}
    spec = SPEC | {"param_space": space, "storage_path": str(tmp_path / "store")}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    shown = json.loads(cli("plan", "spec.json", "--json").out)
    assert shown["fixed"] == {"bounds": [0, 1], "net.kind": "wide"}
    assert "  fixed       bounds=[0, 1] net.kind=wide\n" in cli("plan", "spec.json").out


def test_attaching_counts_from_the_start_of_the_sweep(cli: Cli, store_sweep: Callable[..., Stored]) -> None:
    stored = store_sweep()
    other = current_holder().model_copy(update={"pid": 1, "process_started_at": None, "host": "elsewhere"})
    stored.beat(other)
    controller = end_when_asked(stored)
    asker = threading.Timer(0.5, stored.folder.write_cancellation, [Cancellation(at=time.time())])
    asker.start()
    ran = cli("attach", stored.sweep_id, "--storage", stored.folder.store.url)
    asker.join()
    controller.join()
    first = next(line for line in ran.out.splitlines() if "following" in line)
    assert first.startswith("[night 1:0"), "it began a minute ago"
