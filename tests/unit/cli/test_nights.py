"""Nights by name: what names one, what lists them, and how little is read for 365 of them."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.errors import SweepNotFoundError
from raysweep.pipeline.registering import record_training
from raysweep.runs.across_runs.champions import ChampionRecord, Line
from raysweep.runs.across_runs.champions import Night as Decided
from raysweep.runs.across_runs.releases import add_night
from raysweep.runs.reading.naming.lookup import find_sweep
from raysweep.runs.reading.naming.references import read_reference
from raysweep.runs.reading.nights import nights_at
from raysweep.runs.training import RunFolder
from raysweep.storage.objects.local import LocalStore
from tests.unit.cli.nights import PROMOTED, REFUSED, Nights

Cli = Callable[..., Any]


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path / "nights")


# --- what names a night


@pytest.mark.parametrize(
    ("text", "storage", "name", "which"),
    [
        ("churn", None, "churn", ""),
        ("churn@latest", None, "churn", "latest"),
        ("churn@dag/run 1", None, "churn", "dag/run 1"),
        ("/data/me@home/churn-0a1b2c3d4e", None, "churn-0a1b2c3d4e", ""),
        ("/data/me@home/churn@latest", None, "churn", "latest"),
        ("memory://x/churn@2026-11-25", None, "churn", "2026-11-25"),
        ("churn@", None, "churn", ""),
        ("@latest", None, "", "latest"),
    ],
)
def test_what_is_read_of_a_text(text: str, storage: str | None, name: str, which: str) -> None:
    found = read_reference(text, storage)
    assert (found.name, found.which) == (name, which)


def test_a_night_by_latest_by_date_and_by_key(nights: Nights) -> None:
    oldest = nights.add("scheduled__2026-11-23T00:00", days_ago=3)
    dated = nights.add("2026-11-24", days_ago=2)
    other = nights.add("by hand", days_ago=1)
    for text, wanted in (
        ("churn@latest", other),
        ("Churn@latest", other),
        ("churn@2026-11-23", oldest),
        ("churn@2026-11-24", dated),
        ("churn@by hand", other),
        (f"{nights.url}/churn@latest", other),
    ):
        assert find_sweep(text, None if "/" in text else nights.url).sweep_id == wanted, text
    ran_on = time.strftime("%Y-%m-%d", time.localtime(time.time() - 86_400))
    assert find_sweep(f"churn@{ran_on}", nights.url).sweep_id == other, "no key has the date: it ran that day"
    assert rs.load("churn@latest", nights.url).key == "by hand"


def test_a_date_in_the_key_goes_before_the_day_on_which_it_ran(nights: Nights) -> None:
    day = time.strftime("%Y-%m-%d", time.localtime())
    named = nights.add(day, days_ago=4)
    nights.add("another", days_ago=0)
    assert find_sweep(f"churn@{day}", nights.url).sweep_id == named


def test_the_latest_is_the_one_that_began_last_also_unfinished(nights: Nights) -> None:
    nights.add("2026-11-24", days_ago=0.5)
    begun = nights.begin("2026-11-25")
    assert find_sweep("churn@latest", nights.url).sweep_id == begun.sweep_id
    found = rs.load("churn@latest", nights.url)
    assert (found.has_ended, found.trials, found.key) == (False, (), "2026-11-25")
    with pytest.raises(rs.RaysweepError, match="has not ended"):
        found.raise_for_status()


def test_an_ambiguous_name_lists_the_candidates(cli: Cli, nights: Nights) -> None:
    new, old = nights.add("b", days_ago=1), nights.add("a", days_ago=3)
    for command in ("best", "trials", "checkpoints", "verify", "logs"):
        ran = cli(command, "churn", "--storage", nights.url)
        assert ran.code == 2
        for each in (f"{new} (key b, completed, 24 h ago)", f"{old} (key a, completed, 3 d ago)"):
            assert each in ran.err
        assert "churn@latest is the newest, churn@KEY one by its key" in ran.err
        assert len(ran.err.splitlines()) == 1


def test_candidates_with_long_keys_leave_room_for_what_to_do(cli: Cli, nights: Nights) -> None:
    for day in range(9):
        nights.add(f"dag_of_the_night/{'task' * 9}/scheduled__2026-11-0{day}T00:00:00+00:00", days_ago=day)
    ran = cli("best", "churn", "--storage", nights.url)
    assert " and 5 more; churn@latest is the newest, churn@KEY one by its key" in ran.err


def test_two_nights_of_one_date_are_ambiguous(nights: Nights) -> None:
    nights.add("dag1/2026-11-24", days_ago=2)
    nights.add("dag2/2026-11-24", days_ago=1)
    with pytest.raises(SweepNotFoundError, match=r"key dag2/2026-11-24.*key dag1/2026-11-24.*the id of one"):
        find_sweep("churn@2026-11-24", nights.url)


def test_a_night_that_there_is_not_names_the_newest_keys(nights: Nights) -> None:
    nights.add("2026-11-24")
    with pytest.raises(
        SweepNotFoundError, match=r"'churn@2027-01-01'.*newest keys of 'churn' are 2026-11-24"
    ):
        find_sweep("churn@2027-01-01", nights.url)
    for text in ("", ".", "..", "@latest", "?!", "?!@latest"):
        with pytest.raises(SweepNotFoundError):
            find_sweep(text, nights.url)


def test_a_gate_of_a_name_is_not_a_night_of_it(nights: Nights) -> None:
    night = nights.add("2026-11-24", promoted=False)
    assert find_sweep("churn", nights.url).sweep_id == night
    assert find_sweep("churn-gate@latest", nights.url).sweep_id.startswith("churn-gate-")


def test_a_training_is_found_by_the_key_of_its_night(cli: Cli, nights: Nights) -> None:
    nights.add("2026-11-24", promoted=True, trains=True)
    for named in (
        ["churn-full@latest"],
        ["churn-full@2026-11-24"],
        ["--name", "churn-full", "--key", "2026-11-24"],
    ):
        ran = cli("status", *named, "--storage", nights.url)
        assert (ran.code, "training run" in ran.out) == (0, True), ran.err


# --- lists


def test_a_night_is_one_row_of_status(cli: Cli, nights: Nights) -> None:
    night = nights.add("2026-11-24", days_ago=1, promoted=True, trains=True)
    nights.add("2026-11-23", days_ago=2, promoted=False)
    head, first, second = cli("status", "--storage", nights.url).out.splitlines()
    columns = re.split(r"\s{2,}", head.strip())
    assert columns == ["run", "status", "trials", "best", "gate", "training", "age", "key", "holder"]
    assert re.split(r"\s{2,}", first.strip()) == [
        night, "completed", "3/3", "0.732", "promoted", "completed", "24 h", "2026-11-24"
    ]  # fmt: skip
    assert "not promoted" in second
    [row, _] = json.loads(cli("status", "--json", "--storage", nights.url).out)["nights"]
    assert (row["name"], row["key"], row["gate"]["promoted"]) == ("churn", "2026-11-24", True)
    assert (row["gate"]["why"], row["training"]["status"]) == (PROMOTED, "completed")


def test_the_list_is_filtered_by_name_state_and_age(cli: Cli, nights: Nights) -> None:
    old, new = nights.add("a", days_ago=9), nights.add("b", days_ago=1)
    other, open_one = nights.add("a", name="fraud", days_ago=1), nights.begin("c")

    def listed(*flags: str) -> set[str]:
        ran = cli("status", *flags, "--json", "--storage", nights.url)
        assert ran.code == 0, ran.err
        return {row["sweep_id"] for row in json.loads(ran.out)["nights"]}

    assert listed() == {old, new, other, open_one.sweep_id}
    assert listed("--name", "churn") == {old, new, open_one.sweep_id}
    assert listed("--since", "2d") == {new, other, open_one.sweep_id}
    assert listed("--since", "2026-01-01") == listed()
    assert listed("--state", "running") == {open_one.sweep_id}, "one that has just begun is at work"
    assert listed("--name", "churn", "--state", "completed", "--since", "1w") == {new}
    bad = cli("status", "--state", "complete", "--storage", nights.url)
    assert (bad.code, "did you mean 'completed'?" in bad.err) == (2, True)
    bad = cli("status", "--since", "tuesday", "--storage", nights.url)
    assert (bad.code, "write an age such as 36h" in bad.err) == (2, True)
    bad = cli("status", "churn@latest", "--since", "2d", "--storage", nights.url)
    assert bad.code == 2


def test_sweeps_lists_them_in_python(nights: Nights) -> None:
    old, new = nights.add("a", days_ago=9), nights.add("b", days_ago=1, promoted=True)
    nights.add("a", name="fraud", days_ago=5)
    found = rs.sweeps(nights.url, name="churn")
    assert [run.run_id for run in found] == [new, old]
    assert (found[0].key, found[0].score, found[0].has_ended) == ("b", 0.732, True)
    assert len(rs.sweeps(nights.url)) == 4, "that of a gate is one of them"
    assert rs.load(found[0].uri).promoted is True


def test_without_the_catalog_the_head_of_the_outcome_is_read(nights: Nights) -> None:
    run_id = nights.add("a", trials=200)
    path = Path(nights.url, "catalog/churn.json")
    (listed,) = rs.sweeps(nights.url)
    path.unlink()
    for trials in Path(nights.url, run_id).glob("trials-*.json"):
        trials.unlink()
    assert rs.sweeps(nights.url) == (listed,), "no list reads trials"
    Path(nights.url, run_id, "outcome.json").write_text("{torn")
    (damaged,) = rs.sweeps(nights.url)
    assert damaged.status == "damaged"
    assert "outcome.json" in damaged.problem


# --- the history of a name


def test_the_third_night_is_answered_from_help_alone(cli: Cli, nights: Nights) -> None:
    """What was best last night, was it promoted, why did it take longer?"""
    nights.add("2026-11-23", days_ago=3, promoted=True)
    nights.add("2026-11-24", days_ago=2, promoted=False)
    nights.add("2026-11-25", days_ago=1, promoted=False, trials=9, trial_s=900.0)
    # The list of commands leads to `nights`, whose help has the words of the question and an example.
    listed = " ".join(cli("--help").out.split())
    assert "nights Show the nights of a name, and why one took longer." in listed
    told = " ".join(cli("nights", "--help").out.split())
    assert "A night that took longer than those before it says what there was more of" in told
    assert "Example: raysweep nights churn" in told
    ran = cli("nights", "churn", "--storage", nights.url)
    assert (ran.code, ran.err) == (0, "")
    newest = ran.out.splitlines()[1]
    assert newest.split()[:5] == ["2026-11-25", "completed", "9/9", "0.738", "0.7386"]
    assert REFUSED in newest
    assert "took 2:18:00, usually 33:00: 9 trials (usually 3); 15:00 per trial (usually 10:00)" in newest
    assert "took" not in ran.out.splitlines()[2], "a night like those before it"
    # The attempts of the night that took longer are a command away.
    [following] = re.findall(r"longer +(raysweep trials .*)", ran.out)
    assert "churn@latest --attempts" in following
    assert "15:00" in cli(*following.split()[1:]).out
    # It ends with the next question's command, which is the example of `best --help` too.
    [following] = re.findall(r"next +(raysweep best .*)", ran.out)
    best = cli(*following.split()[1:])
    assert best.out.startswith("auc 0.738  trial 00008")
    assert "Example: raysweep best churn@latest" in cli("best", "--help").out


def test_nights_of_a_name_that_there_is_not(cli: Cli, nights: Nights) -> None:
    nights.add("a")
    ran = cli("nights", "chrun", "--storage", nights.url)
    assert (ran.code, "there are nights of churn" in ran.err) == (2, True)
    assert cli("nights", "x", "--storage", f"{nights.url}-none").code == 2


def test_a_night_without_a_best_trial_leads_to_its_status(cli: Cli, nights: Nights) -> None:
    nights.add("2026-11-24", days_ago=1)
    nights.begin("2026-11-25")
    ran = cli("nights", "churn", "--storage", nights.url)
    [following] = re.findall(r"next +(raysweep .*)", ran.out)
    assert following.startswith("raysweep status churn@latest")
    assert cli(*following.split()[1:]).code == 0


def test_only_the_newest_nights_are_shown(cli: Cli, nights: Nights) -> None:
    for day in range(25):
        nights.add(f"night {day:02d}", days_ago=30 - day)
    shown = cli("nights", "churn", "--storage", nights.url).out
    assert "5 more nights: --last 25" in shown
    assert len(json.loads(cli("nights", "churn", "--json", "--storage", nights.url).out)["nights"]) == 25
    assert len(cli("nights", "churn", "--last", "3", "--storage", nights.url).out.splitlines()) == 1 + 3 + 2


def test_nights_show_how_good_the_predictions_were(cli: Cli, nights: Nights) -> None:
    law = {"metric": "auc", "mode": "max", "score": 0.75, "low": 0.74, "high": 0.76}
    for day, got in enumerate((0.752, 0.7, None)):
        nights.add(f"night {day}", days_ago=9 - day, trains=True, predicted={**law, "got": got})
    nights.add("night 3", days_ago=1, trains=True)
    rows = json.loads(cli("nights", "churn", "--json", "--storage", nights.url).out)["nights"]
    found = [row["predicted"] for row in rows]
    assert found[0] is None
    assert [each["is_inside"] for each in found[1:]] == [None, False, True]
    assert found[3] == {**law, "got": 0.752, "is_inside": True}
    shown = cli("nights", "churn", "--storage", nights.url).out
    assert "trained (predicted)" in shown
    assert "0.752 (0.74 to 0.76)" in shown
    assert "none (0.74 to 0.76)" in shown
    assert "1 of 2 inside their interval of 80 %, off by 0.026 at the median" in shown
    assert "predicted" not in cli("nights", "churn", "--last", "1", "--storage", nights.url).out


def test_a_prediction_stays_where_its_training_was_removed(cli: Cli, nights: Nights) -> None:
    law = {"metric": "auc", "mode": "max", "score": 0.75, "low": 0.74, "high": 0.76, "got": 0.752}
    swept = nights.add("night 1", promoted=True, trains=True, predicted=law)
    line = Line(name="churn", metric="auc", mode="max")
    [verdict] = [night.gate for night in nights_at(nights.store) if night.gate is not None]

    def decide(record: ChampionRecord) -> tuple[Decided, None]:
        return Decided(sweep_id=swept, key="night 1", gate=verdict.gate_id, at=1.0, promoted=False), None

    add_night(nights.store, line, swept, decide, gate=verdict.gate_id)
    [training] = [each.training for each in nights_at(nights.store) if each.training is not None]
    outcome = RunFolder(nights.store, training.run_id).read_outcome()
    assert outcome is not None
    given = {"name": "churn", "uri": f"{nights.url}/{swept}", "gate": {"gate_id": verdict.gate_id}}
    record_training(given, outcome)
    nights.store.delete(*[each.key for each in nights.store.list(training.run_id)])
    [row] = json.loads(cli("nights", "churn", "--json", "--storage", nights.url).out)["nights"]
    assert row["training"] is None
    assert row["predicted"] == {**law, "is_inside": True}
    entries = json.loads(cli("evidence", "churn", "--storage", nights.url, "--json").out)["entries"]
    assert [each["kind"] for each in entries] == ["gate", "training"], "the decision, and what followed"
    assert entries[1]["predicted"] == law
    assert "predicted" not in entries[0]


# --- 365 nights


@pytest.fixture(scope="module", params=[60, pytest.param(365, marks=pytest.mark.slow)])
def days(request: pytest.FixtureRequest) -> int:
    """How many nights there are; a whole year of them takes 20 s to make."""
    found: int = request.param
    return found


@pytest.fixture(scope="module")
def year(days: int, tmp_path_factory: pytest.TempPathFactory) -> Nights:
    made = Nights(tmp_path_factory.mktemp("year"))
    for day in range(days):
        made.add(
            f"night {day:03d}", days_ago=days - day, trials=20, promoted=day % 7 == 0, trains=day % 7 == 0
        )
    return made


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The keys of the objects that are read whole."""
    seen: list[str] = []
    get = LocalStore.get

    def counted(self: LocalStore, key: str) -> bytes | None:
        seen.append(key)
        return get(self, key)

    monkeypatch.setattr(LocalStore, "get", counted)
    return seen


def test_a_year_of_nights_is_read_by_one_object_for_each_name(
    year: Nights, days: int, reads: list[str]
) -> None:
    found = nights_at(year.store, "churn")
    assert len(found) == days
    assert sum(night.gate is not None for night in found) == days
    assert sum(night.training is not None for night in found) == len(range(0, days, 7))
    of_names = ["catalog/churn.json", "catalog/churn-gate.json", "catalog/churn-full.json"]
    assert sorted(reads) == sorted(of_names)


def test_the_latest_of_a_year_reads_one_outcome(year: Nights, days: int, reads: list[str]) -> None:
    assert rs.load("churn@latest", year.url).key == f"night {days - 1:03d}"
    assert sum(key.endswith("outcome.json") for key in reads) == 1
    reads.clear()
    assert rs.load("churn@night 010", year.url).key == "night 010"
    assert sum("summary" in key for key in reads) == 0, "a key leads to its id without a look at the others"


@pytest.mark.parametrize(
    "command", [["status"], ["nights", "churn"], ["best", "churn@latest"], ["status", "churn@latest"]]
)
def test_a_year_of_nights_takes_under_two_seconds(cli: Cli, year: Nights, command: list[str]) -> None:
    """Of this process's CPU: what else the machine does costs no time of it. A third of a second is usual."""
    before = os.times()
    assert cli(*command, "--storage", year.url).code == 0
    after = os.times()
    assert after.user + after.system - before.user - before.system < 2.0


def test_the_latest_asks_for_one_object_of_each_night(year: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[str] = []
    head = LocalStore.head
    monkeypatch.setattr(LocalStore, "head", lambda self, key: heads.append(key) or head(self, key))
    assert find_sweep("churn@latest", year.url).sweep_id
    assert heads == []


def test_a_damaged_champion_does_not_hide_the_nights(cli: Cli, nights: Nights) -> None:
    nights.add("2026-11-24", promoted=True)
    nights.store.put("champions/churn/auc.max/000000000001.jsonl", b"{torn\n")
    ran = cli("nights", "churn", "--storage", nights.url)
    assert (ran.code, PROMOTED in ran.out) == (0, True)
    assert "champion  cannot be read: " in ran.out
