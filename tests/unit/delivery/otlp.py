"""An OTLP receiver on loopback, which parses what it gets with OpenTelemetry's protobuf."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.unit.delivery.servers import StandIn


class Collector(StandIn):
    """Keeps spans by their id, as tracing servers do, and the newest metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.spans: dict[bytes, Any] = {}
        self.sent = 0
        self.metrics: list[Any] = []

    def serve(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Answer a request, whose body is not JSON."""
        with self._lock:
            self.headers.append(headers)
            assert headers["Content-Type"] == "application/x-protobuf"
            luck = self._luck.random() if self.is_flaky else 1.0
            if luck < 0.25 or self.is_away:
                return 503, {}
            if path == "/v1/traces":
                self._take(ExportTraceServiceRequest.FromString(body))
            else:
                assert path == "/v1/metrics"
                (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
                self.metrics.append(resource.scope_metrics[0].metrics)
            return (503, {}) if luck < 0.5 else (200, {})

    def _take(self, request: Any) -> None:
        for resource in request.resource_spans:
            assert values(resource.resource)["service.name"] == "raysweep"
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.sent += 1
                    self.spans[span.span_id] = span


def values(holder: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in holder.attributes}
