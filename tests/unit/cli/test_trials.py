"""`raysweep trials` in an order, in part, as CSV, report by report; sweeps by name and key; completion."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysweep.cli import main
from raysweep.cli.commands.results import select
from raysweep.numeric.shown import show_number
from raysweep.outcome import TrialOutcome
from tests.unit.cli.conftest import Cli, Stored
from tests.unit.pages.sweeps import store

Store = Callable[..., Stored]


def at(stored: Stored) -> list[str]:
    return ["--storage", stored.folder.store.url]


def ids(ran: Any) -> list[str]:
    return [line.split()[0] for line in ran.out.splitlines()[1:]]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--top", "1"], ["00002"]),
        (["--top", "9"], ["00002", "00000", "00001", "00003"]),
        (["--sort", "loss"], ["00002", "00000", "00001", "00003"]),
        (["--sort", "-loss"], ["00000", "00002", "00001", "00003"]),
        (["--sort", "-trial", "--top", "2"], ["00003", "00002"]),
        (["--sort", "-net.width"], ["00003", "00002", "00001", "00000"]),
        (["--sort", "time"], ["00001", "00000", "00002", "00003"]),
        (["--sort", "state"], ["00000", "00001", "00003", "00002"]),
    ],
)
def test_sorted_and_cut(cli: Cli, store_sweep: Store, arguments: list[str], found: list[str]) -> None:
    stored = store_sweep()
    assert ids(cli("trials", stored.sweep_id, *at(stored), *arguments)) == found
    listed = json.loads(cli("trials", stored.sweep_id, *at(stored), *arguments, "--json").out)["trials"]
    assert [trial["trial_id"] for trial in listed] == found


def test_there_is_nothing_to_sort_by_of_that_name(cli: Cli, store_sweep: Store) -> None:
    stored = store_sweep()
    ran = cli("trials", stored.sweep_id, *at(stored), "--sort", "net.widht")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "error: --sort: no trial has 'net.widht'; did you mean 'net.width'?\n"


def test_trials_as_csv(cli: Cli, store_sweep: Store) -> None:
    stored = store_sweep()
    rows = list(csv.DictReader(io.StringIO(cli("trials", stored.sweep_id, *at(stored), "--csv").out)))
    assert [row["trial_id"] for row in rows] == ["00000", "00001", "00002", "00003"]
    assert (rows[0]["loss"], rows[0]["config/net/width"], rows[0]["took_s"]) == ("5.0", "0", "2.0")
    assert rows[0]["started_at"].endswith("Z")
    assert (rows[1]["error"], rows[3]["started_at"]) == ("KeyError: 'rate'", "")


def test_every_report_as_csv_and_as_json(cli: Cli, store_sweep: Store) -> None:
    stored = store_sweep()
    ran = cli("trials", stored.sweep_id, *at(stored), "--history", "--csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    seen = [(row["trial_id"], row["attempt"], row["iteration"], row["loss"]) for row in rows]
    assert seen == [("00000", "1", "1", "5.0"), ("00002", "1", "1", "3.0"), ("00002", "1", "2", "2.0")]
    assert list(rows[0]) == ["trial_id", "number", "attempt", "iteration", "at", "overrun", "loss"]
    as_json = json.loads(cli("trials", stored.sweep_id, *at(stored), "--history", "--json").out)["reports"]
    assert [row["loss"] for row in as_json] == [5.0, 3.0, 2.0]
    lines = cli("trials", stored.sweep_id, *at(stored), "--history").out.splitlines()
    assert [line.split() for line in lines[1:]][-1] == ["00002", "1", "2", "2"]


def test_reports_after_a_stop_are_shown_apart(cli: Cli, tmp_path: Path) -> None:
    """A trial that reports faster than its stop arrives makes all 27 of them; one of them counts."""

    def curve(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
        return {"auc": config["rate"] + 0.01 * iteration} if iteration <= 27 else None

    scheduler = {"median_stopping": {"grace_period": 2, "min_samples_required": 2}}
    folder, outcome = store(tmp_path, curve, scheduler=scheduler, slots=6, step_s=0.001, save_every=0)
    late = next(trial for trial in outcome.trials if trial.overrun_reports)
    assert late.reports + late.overrun_reports <= 27
    ran = cli("trials", folder.sweep_id, "--storage", tmp_path)
    head, *lines = ran.out.splitlines()
    assert head.split() == [
        "trial", "state", "auc", "reports", "after", "stop", "attempts", "time", "config", "error",
    ]  # fmt: skip
    row = next(line.split() for line in lines if line.startswith(late.trial_id))
    assert row[3:5] == [str(late.reports), str(late.overrun_reports)]
    assert late.score is not None
    assert row[2] == show_number(late.score), "as everywhere else"
    assert ran.err == "after stop: reports that a trial made before the stop reached it; they rank nothing\n"
    rows = list(csv.DictReader(io.StringIO(cli("trials", folder.uri, "--csv").out)))
    assert (rows[late.number]["reports"], rows[late.number]["overrun_reports"]) == tuple(row[3:5])
    history = cli("trials", folder.uri, "--history").out.splitlines()
    assert history[0].split() == ["trial", "attempt", "iteration", "after", "stop", "auc"]
    of_late = [line.split() for line in history if line.startswith(late.trial_id)]
    assert sum(line[3] == "yes" for line in of_late) == late.overrun_reports


def test_without_reports_after_a_stop_there_is_no_column_of_them(cli: Cli, store_sweep: Store) -> None:
    stored = store_sweep()
    ran = cli("trials", stored.sweep_id, *at(stored))
    assert "after stop" not in ran.out
    assert ran.err == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--csv", "--json"], "--csv: does not go with --json"),
        (["--csv", "--attempts"], "--csv: does not go with --attempts"),
        (["--history", "--top", "3"], "--history: goes with --csv and --json only"),
    ],
)
def test_what_does_not_go_together(cli: Cli, store_sweep: Store, arguments: list[str], problem: str) -> None:
    stored = store_sweep()
    ran = cli("trials", stored.sweep_id, *at(stored), *arguments)
    assert ran.code == 2
    assert ran.err.startswith(f"error: {problem}; ")


# -- names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["best", "trials", "status", "verify"])
def test_a_sweep_by_its_name_and_key(cli: Cli, store_sweep: Store, command: str) -> None:
    stored = store_sweep("Night of May", "k")
    store_sweep("Night of May", "other")
    by_id = cli(command, stored.sweep_id, *at(stored))
    assert by_id.out
    assert cli(command, "--name", "Night of May", "--key", "k", *at(stored)).out == by_id.out
    both = cli(command, "--name", "Night of May", *at(stored))
    if command == "status":
        assert both.code == 0
        assert [line.split()[-1] for line in both.out.splitlines()[1:]] == ["other", "k"]
        return
    assert both.code == 2
    assert "it may be night-of-may-" in both.err
    assert "(key other, starting, " in both.err
    assert "night-of-may@latest is the newest" in both.err


def test_a_name_alone_where_no_other_sweep_has_it(cli: Cli, store_sweep: Store) -> None:
    stored = store_sweep("night", "k")
    store_sweep("nightly", "k")
    ran = cli("best", "--name", "night", *at(stored))
    assert (ran.code, ran.out) == (0, cli("best", stored.sweep_id, *at(stored)).out)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "SWEEP: no sweep is named; give NAME@latest, an id, its folder's URI, or --name and --key"),
        (["--key", "k"], "--key: names no sweep by itself; give --name too"),
        (["x", "--name", "night"], "--name: there is an id as well, 'x'; give one of them"),
        (["--name", "?!"], "name: '?!' has no ASCII letter or digit"),
    ],
)
def test_half_a_name(cli: Cli, arguments: list[str], problem: str) -> None:
    ran = cli("best", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {problem}")


@pytest.mark.parametrize("arguments", [["-h"], ["trials", "-h"], ["sweep", "-h"]])
def test_a_short_help(cli: Cli, arguments: list[str]) -> None:
    ran = cli(*arguments)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Usage: raysweep")
    assert ran.out == cli(*arguments[:-1], "--help").out


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("raysweep st", ["status"]),
        ("raysweep best --storage {} nig", ["night@latest", "night-"]),
        ("raysweep best zz", []),
    ],
)
def test_the_shell_completes_commands_and_ids(
    store_sweep: Store, words: str, found: list[str], tmp_path: Path
) -> None:
    stored = store_sweep("night")
    line = words.format(stored.folder.store.url)
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": ":".join(sys.path),
        "HOME": str(tmp_path),
        "_RAYSWEEP_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys; from {main.__module__} import main; sys.exit(main())"],
        env=environment, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    given = ran.stdout.split()
    assert len(given) == len(found), ran
    assert all(one.startswith(beginning) for one, beginning in zip(given, found, strict=True))


def test_the_best_first_is_the_largest_where_that_is_better() -> None:
    trials = [
        TrialOutcome(trial_id=str(n), number=n, state="completed", score=score, config={"x": -n})
        for n, score in enumerate((0.5, None, 0.75, float("nan"), 0.25))
    ]

    def found(sort: str | None, top: int | None = None) -> list[int]:
        return [trial.number for trial in select(trials, sort, top, metric="auc", mode="max")]

    assert found(None) == [0, 1, 2, 3, 4]
    assert found(None, 2) == [2, 0]
    assert found("auc") == [2, 0, 4, 1, 3]
    assert found("-score") == [4, 0, 2, 1, 3]
    assert found("x") == [4, 3, 2, 1, 0]
