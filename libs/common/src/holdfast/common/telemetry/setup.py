"""OpenTelemetry: traces and metrics to an OTLP endpoint, nothing imported while it is off."""

import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from holdfast.common.logging import get_logger, set_span_ids
from holdfast.common.telemetry.metrics import Registry
from holdfast.common.telemetry.tracing import Tracer, active_span_ids

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter

    from holdfast.common.telemetry.span_export import SpanSender

_log = get_logger("observability.telemetry.exporter")

_TIMEOUT_S = 10
_METRICS_INTERVAL_S = 15.0
_SHUTDOWN_S = 2.0  # Well within the time a whole server has to stop.
_SCHEMES: Final[dict[str, tuple[Literal["grpc", "http"], bool, int]]] = {
    "grpc": ("grpc", True, 4317),
    "grpcs": ("grpc", False, 4317),
    "http": ("http", True, 4318),
    "https": ("http", False, 4318),
}
_EXPECTED = "expected host[:port] or a grpc://, grpcs://, http:// or https:// URL"


@dataclass(frozen=True, slots=True)
class OtlpEndpoint:
    """Where telemetry goes. `path` is what stands before /v1/traces and /v1/metrics (HTTP only)."""

    protocol: Literal["grpc", "http"]
    host: str
    port: int
    is_insecure: bool
    path: str = ""

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def url(self, signal: Literal["traces", "metrics"]) -> str:
        """The HTTP address of one signal."""
        scheme = "http" if self.is_insecure else "https"
        return f"{scheme}://{self.authority}{self.path}/v1/{signal}"


def parse_endpoint(text: str) -> OtlpEndpoint:
    """The rules of `--otlp-endpoint`; a ValueError says what is expected."""
    text = text.strip()
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "grpc", text
    if scheme.lower() not in _SCHEMES or re.search(r"[\s@]", rest):
        raise ValueError(_EXPECTED)
    protocol, is_insecure, default_port = _SCHEMES[scheme.lower()]
    try:
        parts = urlsplit(f"//{rest}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(_EXPECTED) from None
    if not host or parts.query or parts.fragment:
        raise ValueError(_EXPECTED)
    path = re.sub(r"/v1/(traces|metrics)$", "", parts.path.rstrip("/")) if protocol == "http" else ""
    return OtlpEndpoint(protocol, host, default_port if port is None else port, is_insecure, path)


class Telemetry:
    """What was set up; `shutdown` sends the rest and stops. While off, every method does nothing."""

    def __init__(self, running: "_Running | None" = None) -> None:
        self._running = running

    @property
    def is_on(self) -> bool:
        return self._running is not None

    @property
    def tracer(self) -> Tracer | None:
        """Begins the spans of requests; None while off, so that a hot path asks once and pays nothing."""
        return None if self._running is None else self._running.tracer

    def shutdown(self, timeout_s: float = _SHUTDOWN_S) -> None:
        """Send what is left, then stop. Blocks up to the timeout: call it from a thread. Safe to repeat."""
        running, self._running = self._running, None
        if running is not None:
            set_span_ids(None)
            # A request that hangs cannot be interrupted, so it is left behind in a daemon thread.
            stopping = threading.Thread(
                target=running.stop, args=(timeout_s,), name="telemetry.stop", daemon=True
            )
            stopping.start()
            stopping.join(2 * timeout_s)


class _MetricsSender:
    """A thread that exports the registry every few seconds and once more at the end."""

    def __init__(
        self, registry: Registry, resource: "Resource", exporter: "MetricExporter", interval_s: float
    ) -> None:
        self._registry = registry
        self._resource = resource
        self._exporter = exporter
        self._interval_s = interval_s
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run, name="telemetry.metrics", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        from holdfast.common.telemetry.otlp_metrics import Conversion

        conversion = Conversion(self._resource)
        is_last = is_failing = False
        while not is_last:
            is_last = self.stopped.wait(self._interval_s)
            try:
                self._exporter.export(conversion.of(self._registry), timeout_millis=_TIMEOUT_S * 1000)
                is_failing = False
            except Exception as error:  # noqa: BLE001 - the edge of this thread; the next round tries again
                if not is_failing:
                    _log.warn("telemetry.metrics.failed", error=error)
                is_failing = True


@dataclass(slots=True)
class _Running:
    """What `shutdown` has to stop."""

    tracer: Tracer
    spans: "SpanSender"
    span_exporter: "SpanExporter"
    metrics: _MetricsSender
    metric_exporter: "MetricExporter"
    is_closed: bool = False

    def stop(self, timeout_s: float) -> None:
        hurry = threading.Timer(timeout_s, self._close)
        hurry.daemon = True
        hurry.start()
        self.metrics.stopped.set()
        self.spans.stop(timeout_s)
        self.spans.thread.join()
        self.metrics.thread.join()
        hurry.cancel()
        if not self.is_closed:
            self._close()

    def _close(self) -> None:
        """End the retries too: an exporter that cannot reach its collector goes on for longer than a stop may take."""
        self.is_closed = True
        self.span_exporter.shutdown()
        self.metric_exporter.shutdown()


def setup_telemetry(
    otlp_endpoint: str,
    service_name: str,
    registry: Registry,
    *,
    sample_ratio: float = 1.0,
    scheme: Literal["http", "https"] = "http",
    metrics_interval_s: float = _METRICS_INTERVAL_S,
) -> Telemetry:
    """Start exporting to `otlp_endpoint`; an empty one is off. `service_name` tells the parts of a split plane apart.

    `scheme` is how this process is reached.
    """
    if not otlp_endpoint:
        return Telemetry()
    from opentelemetry.sdk.resources import Resource

    from holdfast.common.telemetry.span_export import SpanSender

    endpoint = parse_endpoint(otlp_endpoint)
    resource = Resource.create({"service.name": "holdfast", "holdfast.service": service_name})
    span_exporter, metric_exporter = _span_exporter(endpoint), _metric_exporter(endpoint)
    spans = SpanSender(span_exporter, resource, registry, scheme)
    metrics = _MetricsSender(registry, resource, metric_exporter, metrics_interval_s)
    set_span_ids(active_span_ids)
    _log.info("telemetry.started", endpoint=endpoint.authority, protocol=endpoint.protocol, part=service_name)
    return Telemetry(
        _Running(Tracer(sample_ratio, spans.take), spans, span_exporter, metrics, metric_exporter)
    )


def _span_exporter(endpoint: OtlpEndpoint) -> "SpanExporter":
    if endpoint.protocol == "http":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

        return HttpExporter(endpoint=endpoint.url("traces"), timeout=_TIMEOUT_S)
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

    return GrpcExporter(endpoint=endpoint.authority, insecure=endpoint.is_insecure, timeout=_TIMEOUT_S)


def _metric_exporter(endpoint: OtlpEndpoint) -> "MetricExporter":
    if endpoint.protocol == "http":
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter

        return HttpExporter(endpoint=endpoint.url("metrics"), timeout=_TIMEOUT_S)
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter

    return GrpcExporter(endpoint=endpoint.authority, insecure=endpoint.is_insecure, timeout=_TIMEOUT_S)
