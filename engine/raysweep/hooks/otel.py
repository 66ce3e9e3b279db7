"""`otel`: a trace for each sweep, and its metrics, by OTLP over HTTP.

Below the span of the DAG run or flow run: a span for the sweep, one for each trial, one for each attempt; a
report is an event of its attempt's span. A span is sent when it has ended. To know when it began, this
callback gets all events from the start in each process, and sends those spans whose end is new. Ids follow
from sweep, trial and attempt: a span that is sent twice is the same span.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field

from raysweep.documents.validation import Problem
from raysweep.hooks.base import (
    Callback,
    CallbackOptions,
    CallbackSetup,
    SinkDownError,
    TrialSetup,
    check_package,
)
from raysweep.hooks.events import (
    CheckpointSaved,
    Report,
    SweepEnd,
    SweepStart,
    TrialEnd,
    TrialRef,
    TrialStart,
)
from raysweep.hooks.numbers import flat, with_iteration
from raysweep.hooks.tracing import VARIABLE, digest, sweep_span, trace_of, trial_span

if TYPE_CHECKING:
    import httpx

DEFAULT: Final = "http://localhost:4318"
ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
MAX_SPANS: Final = 200
"""Spans in one request."""
_PASSING: Final = frozenset({401, 403, 408, 425, 429})
_TIMEOUT_S: Final = 10.0


def _check_endpoint(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Problem(f"{uri!r} is not a web address", f"write {DEFAULT}, the address of a collector")
    if parts.username or parts.password:
        raise Problem("has credentials in it, and would be stored", "set OTEL_EXPORTER_OTLP_HEADERS")
    return uri.rstrip("/")


class OtelOptions(CallbackOptions):
    """Traces and metrics at an OpenTelemetry collector. Headers come from OTEL_EXPORTER_OTLP_HEADERS."""

    gets_all: ClassVar[bool] = True
    is_traced: ClassVar[bool] = True
    places: ClassVar[Mapping[str, str]] = {"endpoint": ENDPOINT}

    endpoint: Annotated[str, AfterValidator(_check_endpoint)] | None = None
    """The collector, `http://host:4318`; default: OTEL_EXPORTER_OTLP_ENDPOINT, or this machine's."""
    max_reports: Annotated[int, Field(ge=0)] = 1000
    """The number of reports of an attempt that are events of its span: the first so many."""

    def check(self, storage_path: str) -> None:
        """See that the package is there. Raises: SpecError."""
        fix = "pip install raysweep[otel]"
        check_package("otel", "opentelemetry", fix)
        check_package("otel", "opentelemetry.proto", fix)

    def make(self, setup: CallbackSetup) -> Otel:
        """The callback."""
        import httpx

        address = self.endpoint or os.environ.get(ENDPOINT, "").strip().rstrip("/") or DEFAULT
        verify = os.environ.get("OTEL_EXPORTER_OTLP_CERTIFICATE") or True
        client = httpx.Client(base_url=address, timeout=_TIMEOUT_S, headers=_headers(), verify=verify)
        return Otel(client, setup, max_reports=self.max_reports)

    def in_trials(self, setup: TrialSetup) -> dict[str, str]:
        """The trial's span, for the spans that it makes itself."""
        trace = trace_of(setup.traceparent, setup.sweep_id, setup.begun_at)
        span = trial_span(setup.sweep_id, setup.begun_at, "{number}")
        return {VARIABLE: f"00-{trace.trace_id}-{span}-01"}


@dataclass
class _Attempt:
    number: int
    started_at: float
    node: str
    reports: list[Report] = field(default_factory=list)
    left_out: int = 0


@dataclass
class _Trial:
    started_at: float | None = None
    attempt: _Attempt | None = None


class Otel(Callback):
    """Keeps what runs, and sends what has ended in `flush`."""

    def __init__(self, client: httpx.Client, setup: CallbackSetup, *, max_reports: int) -> None:
        self._client, self._setup, self._max_reports = client, setup, max_reports
        self._trace = trace_of(setup.traceparent, setup.sweep_id, setup.begun_at)
        self._root = sweep_span(setup.sweep_id, setup.begun_at)
        self._trials: dict[str, _Trial] = {}
        self._began_at = setup.begun_at
        self._spans: list[Any] = []
        self._ended: dict[str, str] = {}
        """The state of each trial that has ended."""
        self._reports, self._at = 0, 0.0
        self._best: float | None = None
        self._is_changed = False

    def on_sweep_start(self, event: SweepStart) -> None:
        """Note the begin of the sweep."""
        self._began_at = event.at

    def on_trial_start(self, event: TrialStart) -> None:
        """An attempt begins; one before it has ended."""
        trial = self._trial(event)
        self._end_attempt(event, trial, "")
        if trial.started_at is None:
            trial.started_at = event.at
        trial.attempt = _Attempt(event.attempt, event.at, event.node)
        self._ended.pop(event.trial_id, None)
        self._count(event)

    def on_report(self, event: Report) -> None:
        """An event of the attempt's span."""
        attempt = self._trial(event).attempt
        if not event.counts:
            return
        self._reports += 1
        self._count(event)
        if attempt is not None and len(attempt.reports) < self._max_reports:
            attempt.reports.append(event)
        elif attempt is not None:
            attempt.left_out += 1

    def on_checkpoint(self, event: CheckpointSaved) -> None:
        """Counts only as news."""
        self._count(event)

    def on_trial_end(self, event: TrialEnd) -> None:
        """The spans of the attempt and of the trial have ended."""
        trial = self._trial(event)
        self._end_attempt(event, trial, event.error)
        self._ended[event.trial_id] = event.state
        if event.score is not None and self._is_better(event.score):
            self._best = event.score
        self._count(event)
        attributes = {
            "raysweep.trial_id": event.trial_id,
            "raysweep.state": event.state,
            "raysweep.attempts": event.attempt,
            "raysweep.reports": event.reports,
            "raysweep.score": event.score,
        } | {f"raysweep.config.{name}": value for name, value in flat(event.config).items()}
        started_at = trial.started_at if trial.started_at is not None else event.at
        span = self._span(f"trial {event.trial_id}", self._trial_id(event), self._root, started_at, event.at)
        self._send_later(event, span, attributes, event.error)

    def on_sweep_end(self, event: SweepEnd) -> None:
        """The span of the sweep has ended."""
        self._best = event.best_score
        self._count(event)
        attributes = {
            "raysweep.uri": event.uri,
            "raysweep.status": event.status,
            "raysweep.why": event.why,
            "raysweep.best_trial": event.best_trial,
            "raysweep.best_score": event.best_score,
        } | {f"raysweep.tag.{name}": value for name, value in self._setup.tags.items()}
        name = f"sweep {self._setup.name}"
        span = self._span(name, self._root, self._trace.parent, self._began_at, event.at)
        self._send_later(event, span, attributes, event.why if event.status == "failed" else "")

    def flush(self) -> None:
        """Send what has ended. Raises: SinkDownError, ValueError."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
        from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans

        while self._spans:
            scope = ScopeSpans(scope=self._scope(), spans=self._spans[:MAX_SPANS])
            body = ExportTraceServiceRequest(
                resource_spans=[ResourceSpans(resource=self._resource(), scope_spans=[scope])]
            )
            self._post("/v1/traces", body)
            del self._spans[:MAX_SPANS]
        if self._is_changed:
            self._send_metrics()
            self._is_changed = False

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _is_new(self, event: Any) -> bool:
        return bool(event.id > self._setup.delivered)

    def _count(self, event: Any) -> None:
        self._at = event.at
        self._is_changed = self._is_changed or self._is_new(event)

    def _is_better(self, score: float) -> bool:
        if self._best is None:
            return True
        return score < self._best if self._setup.mode == "min" else score > self._best

    def _trial(self, event: TrialRef) -> _Trial:
        return self._trials.setdefault(event.trial_id, _Trial())

    def _trial_id(self, event: TrialRef) -> str:
        return trial_span(self._setup.sweep_id, self._setup.begun_at, f"{event.number:08d}")

    def _end_attempt(self, event: TrialRef, trial: _Trial, error: str) -> None:
        attempt, trial.attempt = trial.attempt, None
        if attempt is None or not self._is_new(event):
            return
        own = digest(8, "attempt", self._setup.sweep_id, self._setup.begun_at, event.number, attempt.number)
        name = f"attempt {attempt.number}"
        span = self._span(name, own, self._trial_id(event), attempt.started_at, event.at)
        for report in attempt.reports:
            values = with_iteration(report.iteration, report.metrics)
            span.events.add(name="report", time_unix_nano=_ns(report.at), attributes=_pairs(values))
        attributes = {
            "raysweep.trial_id": event.trial_id,
            "raysweep.attempt": attempt.number,
            "raysweep.node": attempt.node,
            "raysweep.reports_left_out": attempt.left_out or None,
        }
        self._send_later(event, span, attributes, error)

    def _span(self, name: str, own: str, parent: str, start: float, end: float) -> Any:
        from opentelemetry.proto.trace.v1.trace_pb2 import Span

        return Span(
            name=name,
            trace_id=bytes.fromhex(self._trace.trace_id),
            span_id=bytes.fromhex(own),
            parent_span_id=bytes.fromhex(parent),
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=_ns(start),
            end_time_unix_nano=_ns(max(start, end)),
            flags=0x01,
        )

    def _send_later(self, event: Any, span: Any, attributes: Mapping[str, Any], error: str) -> None:
        from opentelemetry.proto.trace.v1.trace_pb2 import Status

        if not self._is_new(event):
            return
        known = {"raysweep.sweep_id": self._setup.sweep_id} | dict(attributes)
        span.attributes.extend(_pairs(known))
        if error:
            span.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message=error))
        self._spans.append(span)

    def _send_metrics(self) -> None:
        """Trials by state, reports and the best value, as they are now."""
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
        from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

        common = {"raysweep.sweep_id": self._setup.sweep_id, "raysweep.name": self._setup.name}
        start, now = _ns(self._began_at), _ns(self._at)

        def point(value: float, **more: str) -> Any:
            made = pb.NumberDataPoint(start_time_unix_nano=start, time_unix_nano=now)
            made.attributes.extend(_pairs(common | more))
            if isinstance(value, int):
                made.as_int = value
            else:
                made.as_double = value
            return made

        running = sum(trial.attempt is not None for trial in self._trials.values())
        states = {**Counter(self._ended.values()), "running": running}
        trials = pb.Gauge(data_points=[point(count, state=state) for state, count in states.items()])
        reports = pb.Sum(
            data_points=[point(self._reports)],
            aggregation_temporality=pb.AGGREGATION_TEMPORALITY_CUMULATIVE,
            is_monotonic=True,
        )
        metrics = [
            pb.Metric(name="raysweep.trials", unit="{trial}", gauge=trials),
            pb.Metric(name="raysweep.reports", unit="{report}", sum=reports),
        ]
        if self._best is not None:
            best = pb.Gauge(data_points=[point(float(self._best), metric=self._setup.metric)])
            metrics.append(pb.Metric(name="raysweep.best", gauge=best))
        scope = pb.ScopeMetrics(scope=self._scope(), metrics=metrics)
        held = pb.ResourceMetrics(resource=self._resource(), scope_metrics=[scope])
        self._post("/v1/metrics", ExportMetricsServiceRequest(resource_metrics=[held]))

    def _resource(self) -> Any:
        from opentelemetry.proto.resource.v1.resource_pb2 import Resource

        return Resource(
            attributes=_pairs({"service.name": os.environ.get("OTEL_SERVICE_NAME") or "raysweep"})
        )

    def _scope(self) -> Any:
        from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope

        return InstrumentationScope(name="raysweep")

    def _post(self, path: str, body: Any) -> None:
        host = self._client.base_url.host
        try:
            data, kind = body.SerializeToString(), {"Content-Type": "application/x-protobuf"}
            answer = self._client.post(path, content=data, headers=kind)
        except Exception as error:
            raise SinkDownError(f"{host} does not answer: {type(error).__name__}") from error
        if answer.status_code >= 500 or answer.status_code in _PASSING:
            raise SinkDownError(f"{host} answers {answer.status_code} to {path}")
        if not answer.is_success:
            raise ValueError(f"{host} answers {answer.status_code} to {path}")


def _pairs(values: Mapping[str, Any]) -> Iterable[Any]:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, bool):
            yield KeyValue(key=name, value=AnyValue(bool_value=value))
        elif isinstance(value, int) and abs(value) < 2**63:
            yield KeyValue(key=name, value=AnyValue(int_value=value))
        elif isinstance(value, float):
            yield KeyValue(key=name, value=AnyValue(double_value=value))
        else:
            yield KeyValue(key=name, value=AnyValue(string_value=str(value)))


def _headers() -> dict[str, str]:
    pairs = (each.partition("=") for each in os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(","))
    return {name.strip(): unquote(value.strip()) for name, sign, value in pairs if sign and name.strip()}


def _ns(at: float) -> int:
    return int(at * 1e9)
