"""`raysweep evidence` and `raysweep rollback`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from raysweep.outcome.false_promotions import BudgetUse, Challenger
from raysweep.runs.across_runs.champions import Champion, Line, Night, read_champion
from raysweep.runs.across_runs.records import release_id
from raysweep.runs.across_runs.registrations import add_model
from raysweep.runs.across_runs.releases import add_night
from raysweep.specs.approval import ApprovalSpec
from raysweep.storage.objects.opening import open_store
from tests.unit.cli.nights import Nights
from tests.unit.pipeline.gates import night
from tests.unit.runs.across_runs.nights import LINE, event, forge, mark
from tests.unit.runs.across_runs.registry_contract import FakeRegistry

Cli = Callable[..., Any]


@pytest.fixture
def storage(tmp_path: Path) -> str:
    night(tmp_path, "2026-11-24", 0.5)
    night(tmp_path, "2026-11-25", 0.7)
    night(tmp_path, "2026-11-26", 0.6, shift=0.01)
    return str(tmp_path)


def test_the_page_has_every_score_and_the_history(cli: Cli, storage: str) -> None:
    ran = cli("evidence", "flights", "--storage", storage)
    assert (ran.code, ran.err) == (0, "")
    for text in (
        "# Evidence: flights, auc (max)",
        "3 entries, each as it was written.",
        "## Night 2026-11-26: not promoted",
        "| trial 00000 | 0.61 | 0.611 | 0.612 | 0.611 | 0.001 | x=0.6 |",
        "| champion | 0.71 | 0.711 | 0.712 | 0.711 | 0.001 | x=0.7 |",
        "| drift of the champion | +0.01: 0.701 when it became champion",
        "| code | code-2026-11-26 |",
        "## History",
    ):
        assert text in ran.out, text
    rows = [
        line for line in ran.out.splitlines() if line.startswith(("| 3 | 2026", "| 2 | 2026", "| 1 | 2026"))
    ]
    assert len(rows) == 3
    named = cli("evidence", "flights@2026-11-25", "--storage", storage)
    assert "## Night 2026-11-25: promoted" in named.out
    [entry] = json.loads(cli("evidence", "flights@2026-11-25", "--json", "--storage", storage).out)["entries"]
    assert (entry["number"], entry["facts"]["verdict"]["candidates"][0]["n"]) == (2, 3)


def test_a_changed_byte_is_said_and_is_exit_code_1(cli: Cli, storage: str) -> None:
    file = Path(storage, event(1))
    file.write_bytes(file.read_bytes().replace(b"0.5", b"0.6", 1))
    ran = cli("evidence", "flights", "--storage", storage)
    assert ran.code == 1
    assert "**The evidence is damaged**: 1 of its parts" in ran.out
    assert file.name in ran.out
    assert cli("rollback", "flights", "--storage", storage).code != 0


def test_markup_in_a_reason_stays_text(cli: Cli, storage: str) -> None:
    why = "<script>alert(1)</script> | **x** [a](b)"
    store = open_store(storage)
    add_night(store, LINE, "n", lambda _: (Night(sweep_id="n", at=1.0, promoted=False, why=why), None))
    out = cli("evidence", "flights", "--markdown", "--storage", storage).out
    read = cli("evidence", "flights", "--storage", storage).out
    assert "&#" not in read, "a terminal shows what a person wrote"
    assert "**x**" in read
    assert "<script>" not in out
    assert "**x**" not in out


def test_nights_show_what_is_spent_of_a_budget_and_which_gain_would_do(cli: Cli, tmp_path: Path) -> None:
    nights = Nights(tmp_path / "budget")
    first, second = nights.add("2026-11-24", days_ago=1), nights.add("2026-11-25")
    line, at = Line(name="churn", metric="auc", mode="max"), time.time() - 60
    made = Champion(
        name="churn",
        metric="auc",
        mode="max",
        config={"x": 1.0},
        mean=0.7,
        spread=0,
        n=3,
        sweep_id=first,
        at=at,
    )
    found = Challenger(
        config={"x": 2.0}, sweep_id=first, key="2026-11-24", trial_id="00002", evidence=4.0, noise=0.01
    )
    use = BudgetUse(per_year=2.0, found=found, seeds=6)
    add_night(nights.store, line, first, lambda _: (Night(sweep_id=first, at=at, promoted=True), made))
    night = Night(sweep_id=second, key="2026-11-25", at=at, promoted=False, budget=use)
    add_night(nights.store, line, second, lambda _: (night, None))
    out = " ".join(cli("nights", "churn", "--storage", nights.url).out.split())
    assert "budget 0 of 2 false promotions a year are spent; a gain of 0.0" in out
    assert "in the next gate promotes the challenger, x=2 (night of 2026-11-24)" in out


def test_a_rollback_says_what_the_champion_is_and_again_that_it_is(cli: Cli, storage: str) -> None:
    ran = cli("rollback", "flights", "--why", "bad on Mondays", "--by", "ann", "--storage", storage)
    assert (ran.code, ran.err) == (0, "")
    assert "rolled back: auc 0.501 of the night of 2026-11-24 is the champion of 'flights'" in ran.out
    again = cli("rollback", "flights", "--by", "bob", "--storage", storage)
    assert "nothing to do: it is champion already" in again.out
    assert "ann" in again.out
    assert "--to NIGHT" in again.out
    champion = read_champion(open_store(storage), LINE).champion
    assert champion is not None
    assert champion.sweep_id == "2026-11-24"
    page = cli("evidence", "flights", "--storage", storage).out
    assert "## Night 2026-11-24: champion again by a rollback" in page
    assert "bad on Mondays" in page
    back = json.loads(cli("rollback", "flights", "--to", "2026-11-25", "--json", "--storage", storage).out)
    assert (back["changed"], back["champion"]["sweep_id"]) == (True, "2026-11-25")


def test_what_cannot_be_meant_is_one_line_that_says_what_to_do(cli: Cli, storage: str) -> None:
    store, other = open_store(storage), Line(name="flights", metric="loss", mode="min")
    for arguments, said in (
        (("rollback", "fraud"), "'fraud' has no champion at"),
        (("rollback", "flights@2026-11-24"), "write flights --to 2026-11-24"),
        (("rollback", "flights", "--to", "2027-01-01"), "there are 2026-11-25, 2026-11-24"),
        (("evidence", "flights@2027-01-01"), "has no evidence of the night '2027-01-01'"),
        (("evidence", "flights", "--metric", "los"), "there are auc (max)"),
    ):
        ran = cli(*arguments, "--storage", storage)
        assert ran.code == 2, arguments
        assert said in ran.err, ran.err
        assert len(ran.err.splitlines()) == 1
    champion = read_champion(store, LINE).champion
    assert champion is not None
    made = champion.model_copy(update={"metric": "loss", "mode": "min"})
    add_night(store, other, "n", lambda _: (Night(sweep_id="n", at=1.0, promoted=True), made))
    ran = cli("evidence", "flights", "--storage", storage)
    assert "has champions by auc (max), loss (min); name one: --metric, --data" in ran.err
    assert cli("evidence", "flights", "--metric", "loss", "--storage", storage).code == 0


def test_a_candidate_is_approved_once_and_each_later_call_is_told(cli: Cli, storage: str) -> None:
    night(Path(storage), "2026-11-27", 0.9, approval=ApprovalSpec(timeout=3600))
    page = cli("evidence", "flights", "--storage", storage).out
    assert "## Night 2026-11-27: passed the gate, waits for approval\n\nauc 0.9010 (trial" in page
    ran = cli("approve", "flights@latest", "--by", "ann", "--note", "looked at it", "--storage", storage)
    assert (ran.code, ran.err) == (0, "")
    assert "the night of 2026-11-27 is approved by ann (20" in ran.out
    again = cli("approve", "flights@2026-11-27", "--by", "bob", "--storage", storage)
    assert (again.code, "already decided: the night of 2026-11-27 is approved by ann" in again.out) == (
        0,
        True,
    )
    other = cli("approve", "flights", "--reject", "--json", "--storage", storage)
    assert other.code == 1
    assert {name: json.loads(other.out)[name] for name in ("changed", "approved", "by")} == {
        "changed": False,
        "approved": True,
        "by": "ann",
    }
    page = cli("evidence", "flights", "--storage", storage).out
    assert "## Night 2026-11-27: approved" in page
    assert "looked at it" in page


def test_a_rejection_and_a_decision_that_comes_too_late(cli: Cli, storage: str) -> None:
    night(Path(storage), "2026-11-27", 0.9, approval=ApprovalSpec(timeout=3600))
    ran = cli("approve", "flights@latest", "--reject", "--by", "ann", "--storage", storage)
    assert (ran.code, "is rejected by ann" in ran.out) == (0, True)
    night(Path(storage), "2026-11-28", 0.95, approval=ApprovalSpec(timeout=0.001))
    late = cli("approve", "flights@latest", "--storage", storage)
    assert (late.code, "the night of 2026-11-28 is rejected by silence" in late.out) == (1, True)


def test_nothing_waits_is_one_line(cli: Cli, storage: str) -> None:
    ran = cli("approve", "flights@latest", "--storage", storage)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert "nothing of 'flights@latest' waits for approval" in ran.err


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    """A registry that notes what it is sent."""
    found = FakeRegistry()
    with found.running():
        yield found


def test_no_stored_file_says_where_a_token_is_sent(
    cli: Cli, storage: str, server: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event that others wrote, as sound as ours, with an address in it."""
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "tok-secret")
    store = open_store(storage)
    champion = read_champion(store, LINE).champion
    assert champion is not None
    add_model(store, LINE, release_id(LINE, champion.sweep_id, champion.at), "s3://theirs/model")
    address = orjson.dumps({"mlflow": {"tracking_uri": server.url}})
    forge(store, 4, b'"kind":"model"', b'"kind":"model","registry":' + address)
    store.delete(mark(4))
    asked = cli("register", "flights", "--storage", storage)
    assert (asked.code, "--registry" in asked.out) == (1, True)
    cli("rollback", "flights", "--storage", storage)
    assert server.requests == 0


@pytest.mark.parametrize("form", ["kind", "fields", "pipeline"])
def test_the_registry_is_named_by_an_argument(
    form: str, cli: Cli, storage: str, server: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, root = open_store(storage), Path(storage).parent
    champion = read_champion(store, LINE).champion
    assert champion is not None
    for each in (champion, champion.replaced):
        assert each is not None
        add_model(store, LINE, release_id(LINE, each.sweep_id, each.at), f"s3://b/{each.sweep_id}")
    match form:
        case "kind":
            monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
            named = "mlflow"
        case "fields":
            named = json.dumps({"mlflow": {"tracking_uri": server.url}})
        case _:
            named = str(root / "night.json")
            sweep = {"name": "flights", "trainable": "m:f", "metric": "auc", "mode": "max"}
            sweep |= {"param_space": {"x": {"uniform": [0, 1]}}}
            registry = {"mlflow": {"tracking_uri": server.url}}
            Path(named).write_text(json.dumps({"sweep": sweep, "gate": {}, "registry": registry}))
    done = cli("register", "flights", "--storage", storage, "--registry", named)
    assert (done.code, done.out) == (0, "registered: version 1\n")
    assert server.aliases["flights"] == {"champion": "1"}
    back = cli("rollback", "flights", "--storage", storage, "--registry", named)
    assert (back.code, "registered: version 2" in back.out) == (0, True)
    assert server.aliases["flights"] == {"champion": "2"}
    wrong = cli("register", "flights", "--storage", storage, "--registry", "mlfow")
    assert (wrong.code, "mlfow" in wrong.err) == (2, True)


def test_nights_names_a_damaged_line_beside_the_champions_of_others(cli: Cli, storage: str) -> None:
    Nights(Path(storage)).add("2026-11-26", name="flights")
    other = Line(name="flights", metric="loss", mode="min")
    open_store(storage).put(event(1, other), b"{\n")
    ran = cli("nights", "flights", "--storage", storage)
    assert (ran.code, ran.err) == (0, "")
    assert "auc 0.701, of the night of 2026-11-25" in ran.out
    assert "loss.min/000000000001.jsonl: is damaged" in ran.out
