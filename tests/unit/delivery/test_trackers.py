"""Each tracker under the contract, and what is its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.hooks.events import Notice, TrialEnd
from raysweep.hooks.spec import CallbackSpec
from tests.unit.delivery.contract import Stored, TrackerContract, options, run_life
from tests.unit.delivery.journals import SWEEP, GoldenSweep
from tests.unit.delivery.servers import MlflowServer, Receiver
from tests.unit.delivery.stored import by_mlflow, events_of, in_tensorboard


class TestTensorBoard(TrackerContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "runs"

    def callback(self) -> CallbackSpec:
        return options("tensorboard", logdir=str(self.folder))

    def stored(self) -> Stored:
        return in_tensorboard(self.folder / SWEEP)

    def test_a_file_that_is_cut_short_loses_nothing_and_doubles_nothing(self, tmp_path: Path) -> None:
        sweep = GoldenSweep("pbt", tmp_path / "store")
        sweep.write()
        run_life(sweep, self.callback(), events=120)
        for path in (self.folder / SWEEP).glob("*/events.*"):
            path.write_bytes(path.read_bytes()[:-5])
        cursor = next((tmp_path / "store" / SWEEP / "hooks").iterdir())
        cursor.unlink()  # all is delivered again: what was cut off comes back
        sweep.folder.store.put(f"{SWEEP}/hooks/{cursor.name}", b"damaged")
        run_life(sweep, self.callback())
        self.check(sweep)

    def test_each_trial_has_its_hyperparameters_once(self, tmp_path: Path) -> None:
        sweep = GoldenSweep("retry", tmp_path / "store")
        sweep.write()
        run_life(sweep, self.callback(), events=60)
        run_life(sweep, self.callback())
        ends = [item.event for item in sweep.items() if isinstance(item.event, TrialEnd)]
        sessions = [
            (path.parent.name, event.wall_time)
            for path in (self.folder / SWEEP).glob("*/events.*")
            for event in events_of(path)
            for value in event.summary.value
            if value.tag == "_hparams_/session_start_info"
        ]
        assert sorted(sessions) == sorted((end.trial_id, end.at) for end in ends)

    def test_a_folder_that_is_not_local_is_refused(self) -> None:
        with pytest.raises(SpecError, match=r"logdir: storage_path 's3://bucket/x' is not a local folder"):
            options("tensorboard").options.check("s3://bucket/x")  # type: ignore[union-attr]


class TestMlflow(TrackerContract):
    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        self.server = MlflowServer()
        with self.server.running():
            yield

    def callback(self) -> CallbackSpec:
        return options("mlflow", tracking_uri=self.server.url)

    def break_half(self) -> None:
        self.server.is_flaky = True

    def stored(self) -> Stored:
        return by_mlflow(self.server)

    def test_trials_are_children_of_the_sweeps_run(self, tmp_path: Path) -> None:
        sweep = GoldenSweep("retry", tmp_path / "store")
        sweep.write()
        run_life(sweep, self.callback())
        parent, *children = self.server.runs.values()
        assert parent["tags"]["raysweep.trial_id"] == "sweep"
        assert parent["tags"]["raysweep.status"] == sweep.outcome["status"]
        assert {child["tags"]["mlflow.parentRunId"] for child in children} == {parent["info"]["run_id"]}

    def test_credentials_come_from_mlflows_variables(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t0ken")
        sweep = GoldenSweep("chaos-98", tmp_path / "store")
        sweep.write()
        run_life(sweep, self.callback())
        assert {headers["Authorization"] for headers in self.server.headers} == {"Bearer t0ken"}

    def test_an_address_with_a_password_is_refused_without_showing_it(self) -> None:
        with pytest.raises(SpecError, match="has credentials in it") as caught:
            options("mlflow", tracking_uri="http://me:s3cret@host")
        assert "s3cret" not in str(caught.value)

    def test_no_address_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
        with pytest.raises(SpecError, match="MLFLOW_TRACKING_URI is not set"):
            options("mlflow").options.check("/tmp")  # type: ignore[union-attr]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    with server.running():
        yield server


@pytest.fixture
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raysweep.delivery.sink.PAUSE_S", 0.001)
    monkeypatch.setattr("raysweep.delivery.sink.BATCH", 23)
    monkeypatch.setattr("raysweep.delivery.sink.CURSOR_S", 0.0)


@pytest.mark.usefixtures("_fast")
@pytest.mark.parametrize("is_flaky", [False, True])
def test_a_webhook_gets_each_occasion_by_its_id(is_flaky: bool, receiver: Receiver, tmp_path: Path) -> None:
    receiver.is_flaky = is_flaky
    sweep = GoldenSweep("retry", tmp_path / "store")
    sweep.write()
    callback = options("webhook", url=f"{receiver.url}/s3cret", on=["failed", "stalled", "deadline", "ended"])
    run_life(sweep, callback, events=100)
    run_life(sweep, callback, events=50)
    run_life(sweep, callback)
    wanted = {
        item.event.id
        for item in sweep.items()
        if isinstance(item.event, Notice)
        or type(item.event).__name__ == "SweepEnd"
        or (isinstance(item.event, TrialEnd) and item.event.state == "failed" and item.event.failed == 1)
    }
    assert {message["id"] for message in receiver.messages} == wanted
    assert {message["event"] for message in receiver.messages} >= {"failed", "ended"}
    command = f"raysweep report {receiver.messages[0]['sweep_id']} --storage "
    assert all(message["report"].startswith(command) for message in receiver.messages)


def test_a_message_to_slack_is_text_and_no_markup(receiver: Receiver, tmp_path: Path) -> None:
    sweep = GoldenSweep("retry", tmp_path / "store")
    sweep.write()
    run_life(sweep, options("webhook", url=receiver.url, on=["failed"], format="slack"))
    text = receiver.messages[0]["text"]
    assert "failed" in text
    assert "<" not in text


def test_a_message_to_teams_is_a_card(receiver: Receiver, tmp_path: Path) -> None:
    sweep = GoldenSweep("retry", tmp_path / "store")
    sweep.write()
    run_life(sweep, options("webhook", url=receiver.url, on=["ended"], format="teams"))
    (attachment,) = receiver.messages[-1]["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert "actions" not in attachment["content"]


def test_a_message_links_the_report_where_a_dashboard_is_named(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYSWEEP_DASHBOARD_URL", "https://sweeps.example")
    sweep = GoldenSweep("retry", tmp_path / "store")
    sweep.write()
    run_life(sweep, options("webhook", url=receiver.url, on=["ended"], format="teams"))
    (action,) = receiver.messages[-1]["attachments"][0]["content"]["actions"]
    assert action["url"].startswith("https://sweeps.example/run/")
    monkeypatch.setenv("RAYSWEEP_DASHBOARD_URL", "sweeps.example")
    with pytest.raises(SpecError, match="RAYSWEEP_DASHBOARD_URL"):
        options("webhook", url=receiver.url).options.check("s3://b")  # type: ignore[union-attr]


BAD: list[tuple[Any, str]] = [
    ({"webhook": {}}, "requires url or url_from"),
    ({"webhook": {"url": "https://a", "url_from": "B"}}, "requires url or url_from"),
    ({"webhook": {"url": "s3cret"}}, "is not a web address"),
    ({"webhook": {"url": "https://host/s3cret", "on": ["never"]}}, r"callbacks"),
    ("webhok", r"'webhok' is not known here; did you mean 'webhook'"),
    ({}, "names no callback"),
    (7, "expected"),
]


@pytest.mark.parametrize(("given", "problem"), BAD)
def test_a_wrong_callback_is_refused_in_one_line(given: Any, problem: str) -> None:
    from raysweep.specs import SweepSpec

    with pytest.raises(SpecError, match=problem) as caught:
        SweepSpec(name="n", trainable="m:f", param_space={"x": 1}, callbacks=[given])
    assert "callbacks" in caught.value.field
    assert "s3cret" not in str(caught.value)
    assert "\n" not in str(caught.value)
