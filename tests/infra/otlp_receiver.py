"""A small OTLP receiver on loopback, over HTTP or gRPC, that keeps the spans and metrics it gets."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


@dataclass(frozen=True, slots=True)
class SpanSeen:
    """One span as it arrived, its ids in hex; `parent_id` is empty for the first of a trace."""

    part: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, str | int]
    is_error: bool
    is_server: bool
    trace_state: str
    duration_ns: int


@dataclass(slots=True)
class Receiver:
    """What arrived until now."""

    url: str = ""
    traces: list[ExportTraceServiceRequest] = field(default_factory=list[ExportTraceServiceRequest])
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list[ExportMetricsServiceRequest])

    def spans(self) -> list[SpanSeen]:
        return [
            _seen(span, str(_values(resource.resource.attributes)["holdfast.service"]))
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def keep(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            self.traces.append(ExportTraceServiceRequest.FromString(body))
        elif path == "/v1/metrics":
            self.metrics.append(ExportMetricsServiceRequest.FromString(body))


@contextmanager
def receiving_http(path: str = "") -> Iterator[Receiver]:
    """With a path, what comes to another one is not kept."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.keep(self.path.removeprefix(path), self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}{path}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield receiver
    server.shutdown()
    server.server_close()
    thread.join()


@contextmanager
def receiving_grpc() -> Iterator[Receiver]:
    # By name, because these modules come without types.
    grpc: Any = import_module("grpc")
    package = "opentelemetry.proto.collector"
    trace_service: Any = import_module(f"{package}.trace.v1.trace_service_pb2_grpc")
    metrics_service: Any = import_module(f"{package}.metrics.v1.metrics_service_pb2_grpc")
    receiver = Receiver()

    class Traces:
        def Export(self, request: ExportTraceServiceRequest, context: object) -> ExportTraceServiceResponse:
            receiver.traces.append(request)
            return ExportTraceServiceResponse()

    class Metrics:
        def Export(
            self, request: ExportMetricsServiceRequest, context: object
        ) -> ExportMetricsServiceResponse:
            receiver.metrics.append(request)
            return ExportMetricsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(2))
    trace_service.add_TraceServiceServicer_to_server(Traces(), server)
    metrics_service.add_MetricsServiceServicer_to_server(Metrics(), server)
    receiver.url = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield receiver
    server.stop(None).wait()


def _seen(span: Span, part: str) -> SpanSeen:
    return SpanSeen(
        part,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        _values(span.attributes),
        span.status.code == Status.STATUS_CODE_ERROR,
        span.kind == Span.SPAN_KIND_SERVER,
        span.trace_state,
        span.end_time_unix_nano - span.start_time_unix_nano,
    )


def _values(attributes: Any) -> dict[str, str | int]:
    return {item.key: _value(item.value) for item in attributes if isinstance(item, KeyValue)}


def _value(value: AnyValue) -> str | int:
    return value.int_value if value.HasField("int_value") else value.string_value
