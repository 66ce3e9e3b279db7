"""`raysweep logs`: the log of a trial, which logs there are, and what is said where there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from raysweep.outcome import Holder
from raysweep.runs.ownership.holder import current_holder
from tests.unit.jobs.api import Api, serving

Cli = Callable[..., Any]
Store = Callable[..., Any]


@pytest.fixture
def stored(store_sweep: Store) -> Any:
    sweep = store_sweep()
    for name, text in (
        ("00001-1.log", "first try\n"),
        ("00001-2.log", "second try\n"),
        ("00002-1.part.log", "so far\n"),
    ):
        sweep.folder.write_text(f"logs/{name}", text)
    return sweep


def logs(cli: Cli, stored: Any, *arguments: str) -> Any:
    return cli("logs", stored.sweep_id, "--storage", stored.folder.store.url, *arguments)


def test_a_trials_newest_log_is_printed_as_it_is(cli: Cli, stored: Any) -> None:
    ran = logs(cli, stored, "--trial", "1")
    assert (ran.code, ran.out, ran.err) == (0, "second try\n", "")
    assert logs(cli, stored, "-t", "1", "--attempt", "1").out == "first try\n"


def test_the_log_of_one_that_runs_says_how_to_follow_it(cli: Cli, stored: Any) -> None:
    stored.beat(current_holder())
    ran = logs(cli, stored, "--trial", "2")
    assert (ran.code, ran.out) == (0, "so far\n")
    assert f"raysweep logs {stored.sweep_id} --storage" in ran.err
    assert ran.err.strip().endswith("--trial 2 --follow")


def test_the_log_of_one_whose_node_is_gone_says_that_there_is_no_more(
    cli: Cli, stored: Any, gone_holder: Holder
) -> None:
    stored.beat(gone_holder)
    for options in ((), ("--follow",)):
        ran = logs(cli, stored, "--trial", "2", *options)
        assert (ran.code, ran.out) == (0, "so far\n")
        assert "what came after this is lost" in ran.err


def test_following_one_that_is_over_prints_it_and_ends(cli: Cli, stored: Any) -> None:
    ran = logs(cli, stored, "--trial", "1", "--follow")
    assert (ran.code, ran.out, ran.err) == (0, "second try\n", "")


def test_without_a_trial_the_logs_are_listed(cli: Cli, stored: Any) -> None:
    ran = logs(cli, stored)
    rows = [line.split() for line in ran.out.splitlines()]
    assert rows[1][:4] == ["00001", "1", "10", "B"]
    assert rows[3][0] == "00002"
    assert rows[3][-1] == "unfinished"
    assert "--trial 2" in ran.out.splitlines()[-1]
    listed = json.loads(logs(cli, stored, "--json").out)["logs"]
    assert [(log["trial"], log["attempt"], log["is_final"]) for log in listed] == [
        (1, 1, True),
        (1, 2, True),
        (2, 1, False),
    ]
    assert listed[0]["uri"] == f"{stored.folder.uri}/logs/00001-1.log"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--trial", "9"), "no log of trial 9"),
        (("--trial", "1", "--attempt", "3"), "no log of attempt 3 of trial 1"),
        (("--attempt", "3"), "--attempt: there is no --trial"),
        (("--follow",), "--follow: there is no --trial"),
        (("--trial", "1", "--json"), "--json"),
    ],
)
def test_what_cannot_be_shown_is_one_line(options: tuple[str, ...], said: str, cli: Cli, stored: Any) -> None:
    ran = logs(cli, stored, *options)
    assert ran.code == 2
    assert json.loads(ran.out)["error"]["code"] == "spec" if "--json" in options else ran.out == ""
    assert said in ran.err
    assert len(ran.err.strip().splitlines()) == 1


@pytest.mark.parametrize("options", [(), ("--storage", "elsewhere")])
def test_with_an_address_its_job_says_where_the_log_is(
    options: tuple[str, ...], cli: Cli, stored: Any
) -> None:
    metadata = {"raysweep_sweep_id": stored.sweep_id, "raysweep_storage": stored.folder.store.url}
    job = {
        "submission_id": f"{stored.sweep_id}.1",
        "status": "RUNNING",
        "entrypoint": "python",
        "metadata": metadata,
    }
    with serving(Api()) as api:
        api.jobs[job["submission_id"]] = job
        api.logs[job["submission_id"]] = "the driver's\n"
        ran = cli("logs", "night", "--address", api.address, "--trial", "1", *options)
        assert cli("logs", "night", "--address", api.address).out == "the driver's\n"
    if options:
        assert (ran.code, ran.out) == (2, "")
        assert "no sweep" in ran.err
    else:
        assert (ran.code, ran.out) == (0, "second try\n")


def test_a_sweep_without_logs(cli: Cli, store_sweep: Store) -> None:
    sweep = store_sweep()
    ran = logs(cli, sweep)
    assert (ran.code, ran.err) == (0, "")
    assert "printed nothing so far" in ran.out
