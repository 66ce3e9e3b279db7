"""Traces and metrics, at an OTLP receiver on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace as otel_trace
from opentelemetry.sdk.trace import TracerProvider

from raysweep.delivery.trace import keep_traceparent
from raysweep.errors import SpecError
from raysweep.hooks.base import TrialSetup
from raysweep.hooks.events import TrialEnd, TrialStart
from raysweep.hooks.otel import OtelOptions
from raysweep.hooks.spec import CallbackSpec
from raysweep.hooks.tracing import current_traceparent
from tests.unit.delivery.contract import Stored, TrackerContract, options, run_life
from tests.unit.delivery.journals import SWEEP, GoldenSweep
from tests.unit.delivery.otlp import Collector, values
from tests.unit.delivery.stored import by_otel, named

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.timeout(300)
class TestOtel(TrackerContract):
    @pytest.fixture(autouse=True)
    def _collector(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_SERVICE_NAME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv("TRACEPARENT", raising=False)
        self.collector = Collector()
        with self.collector.running():
            yield

    def callback(self) -> CallbackSpec:
        return options("otel", endpoint=self.collector.url)

    def break_half(self) -> None:
        self.collector.is_flaky = True

    def named(self, name: str) -> list[Any]:
        return named(self.collector, name)

    def stored(self) -> Stored:
        return by_otel(self.collector)

    def test_one_trace_leads_from_the_flow_run_to_each_attempt(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TRACEPARENT", PARENT)
        sweep = GoldenSweep("pbt", tmp_path / "store")
        sweep.write()
        run_life(sweep, self.callback(), events=60)
        # Another try of the task, in a trace of its own, does not tear the sweep's trace apart.
        monkeypatch.setenv("TRACEPARENT", PARENT.replace("0af7", "1111"))
        run_life(sweep, self.callback())
        assert {span.trace_id.hex() for span in self.collector.spans.values()} == {PARENT.split("-")[1]}
        (root,) = self.named("sweep ")
        assert root.parent_span_id.hex() == PARENT.split("-")[2]
        trials = self.named("trial ")
        assert {span.parent_span_id for span in trials} == {root.span_id}
        attempts = self.named("attempt ")
        assert {span.parent_span_id for span in attempts} == {span.span_id for span in trials}
        starts = [item.event for item in sweep.items() if isinstance(item.event, TrialStart)]
        assert len(attempts) == len({(each.trial_id, each.attempt) for each in starts})
        for span in self.collector.spans.values():
            assert span.start_time_unix_nano <= span.end_time_unix_nano

    def test_without_a_trace_the_sweep_has_one_of_its_own(self, tmp_path: Path) -> None:
        sweep = GoldenSweep("pbt", tmp_path / "store")
        sweep.write()
        run_life(sweep, self.callback())
        (root,) = self.named("sweep ")
        assert root.parent_span_id == b""
        assert len({span.trace_id for span in self.collector.spans.values()}) == 1

    def test_a_later_process_sends_only_spans_whose_end_is_new(self, tmp_path: Path) -> None:
        sweep = GoldenSweep("pbt", tmp_path / "store")
        sweep.write()
        run_life(sweep, self.callback())
        before = self.collector.sent
        run_life(sweep, self.callback())
        assert self.collector.sent == before == len(self.collector.spans)

    def test_a_failed_trial_is_an_error_and_metrics_count_it(self, tmp_path: Path) -> None:
        sweep = GoldenSweep("retry", tmp_path / "store")
        sweep.write()
        run_life(sweep, self.callback())
        failed = [span for span in self.named("trial ") if values(span)["raysweep.state"] == "failed"]
        assert failed
        assert {span.status.code for span in failed} == {2}
        assert all(span.status.message for span in failed)
        metrics = {metric.name: metric for metric in self.collector.metrics[-1]}
        states = {
            values(point)["state"]: point.as_int for point in metrics["raysweep.trials"].gauge.data_points
        }
        ends = {item.event.trial_id: item.event for item in sweep.items() if isinstance(item.event, TrialEnd)}
        assert states["failed"] == sum(end.state == "failed" for end in ends.values())
        assert metrics["raysweep.best"].gauge.data_points[0].as_double

    def test_the_spans_of_a_trial_itself_are_below_the_trials_span(self, tmp_path: Path) -> None:
        sweep = GoldenSweep("pbt", tmp_path / "store")
        sweep.write()
        run_life(sweep, self.callback())
        span = next(span for span in self.named("trial ") if span.name == "trial 00003")
        setup = TrialSetup(sweep_id=SWEEP, name="n", begun_at=_begun_at(sweep), traceparent="")
        found = OtelOptions().in_trials(setup)["TRACEPARENT"].replace("{number}", "00000003")
        assert found == f"00-{span.trace_id.hex()}-{span.span_id.hex()}-01"

    def test_more_reports_than_an_attempt_may_hold_are_counted(self, tmp_path: Path) -> None:
        sweep = GoldenSweep("pbt", tmp_path / "store")
        sweep.write()
        run_life(sweep, options("otel", endpoint=self.collector.url, max_reports=1))
        attempts = self.named("attempt ")
        assert max(len(span.events) for span in attempts) == 1
        assert sum(values(span).get("raysweep.reports_left_out", 0) for span in attempts) > 0

    def test_headers_come_from_the_variable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b,other=c")
        sweep = GoldenSweep("chaos-98", tmp_path / "store")
        sweep.write()
        run_life(sweep, self.callback())
        assert {each["x-key"] for each in self.collector.headers} == {"a b"}


def test_the_span_that_a_task_is_in_counts_before_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", PARENT)
    assert current_traceparent() == PARENT
    span = TracerProvider().get_tracer("t").start_span("task")
    with otel_trace.use_span(span):
        assert current_traceparent().split("-")[2] == f"{span.get_span_context().span_id:016x}"
    monkeypatch.setenv("TRACEPARENT", "00-junk")
    assert current_traceparent() == ""


def test_without_the_tracker_nothing_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", PARENT)
    sweep = GoldenSweep("pbt", tmp_path)
    assert keep_traceparent(sweep.folder, (options("webhook", url="http://h"),)) == ""
    assert not (tmp_path / SWEEP / "hooks").exists()
    assert keep_traceparent(sweep.folder, (options("otel"),)) == PARENT


def test_an_endpoint_with_a_password_is_refused_without_showing_it() -> None:
    with pytest.raises(SpecError, match="has credentials in it") as caught:
        options("otel", endpoint="http://me:s3cret@host")
    assert "s3cret" not in str(caught.value)


def _begun_at(sweep: GoldenSweep) -> float:
    from raysweep.delivery.feed import Feed

    feed = Feed(sweep.folder)
    feed.read(1)
    return feed.begun_at
