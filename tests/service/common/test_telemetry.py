"""Spans and metrics arrive at an OTLP receiver, and one that is away holds nothing up."""

import io
import json
import subprocess
import sys
import threading
from collections.abc import Iterator

import httpx
import pytest

from holdfast.common.express.message import Request
from holdfast.common.logging import configure_logging, get_logger
from holdfast.common.serving.app import build_app, parts_of
from holdfast.common.telemetry.metrics import Registry
from holdfast.common.telemetry.setup import Telemetry, setup_telemetry
from holdfast.common.telemetry.tracing import Span, active_span_ids
from tests.infra import program
from tests.infra.otlp_receiver import Receiver, receiving_grpc, receiving_http


@pytest.fixture
def free_port() -> int:
    return program.free_port()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with receiving_http("/team") as receiver:
        yield receiver


def send_span(telemetry: Telemetry) -> Span:
    assert telemetry.tracer is not None
    request = Request("POST", "/v1/acquire", b"", [], b"", None, None, "id-1")
    span = telemetry.tracer.begin(request, "/v1/acquire")
    span.end(200)
    return span


def test_spans_arrive_and_lines_within_carry_their_ids(receiver: Receiver) -> None:
    telemetry = setup_telemetry(receiver.url, "gateway", Registry())
    stream = io.StringIO()
    configure_logging("info", stream=stream)

    trace_id, span_id = send_span(telemetry).ids
    get_logger("a").info("inside")
    telemetry.shutdown()
    get_logger("a").info("outside")
    configure_logging("info")

    inside, outside = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (inside["trace_id"], inside["span_id"]) == (trace_id, span_id)
    assert "trace_id" not in outside
    assert [(span.trace_id, span.name) for span in receiver.spans()] == [(trace_id, "POST /v1/acquire")]


def test_metrics_of_every_kind_arrive(receiver: Receiver) -> None:
    registry = Registry()
    registry.counter("holdfast.lease.acquire", "Leases taken.", ("namespace",)).labels("default").inc(3)
    registry.gauge("holdfast.lease.active", "Leases held.", callback=lambda: 7)
    registry.histogram("holdfast.took", "Time.", unit="ms", bounds=(1.0, 10.0)).labels().observe(4)

    setup_telemetry(receiver.url, "gateway", registry).shutdown()

    resource = receiver.metrics[-1].resource_metrics[0]
    attributes = {item.key: item.value.string_value for item in resource.resource.attributes}
    found = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    point = found["holdfast.lease.acquire"].sum.data_points[0]
    histogram = found["holdfast.took"].histogram.data_points[0]
    assert (attributes["service.name"], attributes["holdfast.service"]) == ("holdfast", "gateway")
    assert (point.as_double, point.attributes[0].value.string_value) == (3, "default")
    assert found["holdfast.lease.active"].gauge.data_points[0].as_double == 7
    assert (list(histogram.bucket_counts), histogram.sum, histogram.count) == ([0, 1, 0], 4, 1)


def test_metrics_are_sent_again_and_again(receiver: Receiver) -> None:
    registry = Registry()
    asked = threading.Semaphore(0)

    def answer() -> float:
        asked.release()
        return 1

    registry.gauge("holdfast.asked", "h", callback=answer)
    telemetry = setup_telemetry(receiver.url, "gateway", registry, metrics_interval_s=0.01)
    for _ in range(3):
        assert asked.acquire(timeout=30)
    telemetry.shutdown()

    assert len(receiver.metrics) >= 3


async def test_requests_to_the_app_become_spans_of_the_callers_trace(receiver: Receiver) -> None:
    app = build_app("sample")
    seen: list[tuple[str, str] | None] = []

    @app.get("/v1/things/{name}")
    async def describe(name: str) -> None:
        seen.append(active_span_ids())

    telemetry = setup_telemetry(receiver.url, "gateway", Registry())
    parts_of(app).hooks.tracer = telemetry.tracer
    parent = "0af7651916cd43dd8448eb211c80319c"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://plane") as client:
        await client.get("/v1/things/a", headers={"traceparent": f"00-{parent}-b7ad6b7169203331-01"})
        await client.get("/healthz")
    telemetry.shutdown()

    (span,) = receiver.spans()
    assert seen == [(parent, span.span_id)]
    assert (span.name, span.trace_id) == ("GET /v1/things/{name}", parent)


def test_spans_and_metrics_arrive_by_grpc() -> None:
    with receiving_grpc() as receiver:
        telemetry = setup_telemetry(receiver.url, "gateway", Registry())
        send_span(telemetry)
        telemetry.shutdown(timeout_s=30)

    assert [span.name for span in receiver.spans()] == ["POST /v1/acquire"]
    assert receiver.metrics[0].resource_metrics[0].scope_metrics[0].metrics


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_collector_that_is_away_does_not_hold_up_the_stop(scheme: str, free_port: int) -> None:
    telemetry = setup_telemetry(f"{scheme}://127.0.0.1:{free_port}", "gateway", Registry())
    send_span(telemetry)

    telemetry.shutdown(timeout_s=0.05)

    assert not telemetry.is_on


def test_off_does_nothing_and_shutdown_may_be_repeated(receiver: Receiver) -> None:
    off = setup_telemetry("", "gateway", Registry())
    on = setup_telemetry(receiver.url, "gateway", Registry())
    assert (off.is_on, off.tracer, on.is_on) == (False, None, True)

    for telemetry in (off, on, on, Telemetry()):
        telemetry.shutdown()

    assert not on.is_on


def test_while_off_opentelemetry_is_not_imported() -> None:
    code = (
        "import sys; from holdfast.common.telemetry.setup import setup_telemetry; from holdfast.common.telemetry.metrics import Registry;"
        "setup_telemetry('', 'x', Registry()).shutdown();"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )

    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
