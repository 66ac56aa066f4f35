"""Which headers of a request go on to its service, and whose trace they speak of."""

import pytest

from holdfast.common.express.message import Headers, Request
from holdfast.common.telemetry.tracing import Tracer
from holdfast.gateway.proxy.proxied_route import passed_on

PARENT = b"00-%032x-%016x-01" % (7, 8)
PAIRS = [
    (b"host", b"x"),
    (b"traceparent", PARENT),
    (b"tracestate", b"a=1"),
    (b"baggage", b"user=1"),
    (b"x-thing", b"1"),
    (b"x-holdfast-internal", b"forged"),
]
LINES = b"".join([b"%b: %b\r\n" % (name.title(), value) for name, value in PAIRS])
FORMS = pytest.mark.parametrize("headers", [PAIRS, LINES], ids=["pairs", "lines"])


def request(headers: Headers) -> Request:
    return Request("POST", "/v1/acquire", b"", headers, b"", None, None, "id-1")


@FORMS
def test_a_gateway_that_does_not_trace_passes_the_trace_of_the_client_on(headers: Headers) -> None:
    lines = passed_on(request(headers), None).splitlines()

    assert lines == [b"traceparent: " + PARENT, b"tracestate: a=1", b"baggage: user=1", b"x-thing: 1"]


@FORMS
def test_a_gateway_that_traces_puts_itself_between(headers: Headers) -> None:
    span = Tracer(1, lambda span: None).begin(request(headers), "/v1/acquire")

    lines = passed_on(request(headers), span).splitlines()

    traceparent = b"traceparent: 00-%032x-%016x-01" % (7, span.span_id)
    assert lines == [b"baggage: user=1", b"x-thing: 1", traceparent, b"tracestate: a=1"]


def test_a_trace_state_without_a_parent_that_counts_is_dropped() -> None:
    lines = b"Host: x\r\nTracestate: a=1\r\nX-Thing: 1\r\n"
    span = Tracer(0, lambda span: None).begin(request(lines), "/v1/acquire")

    passed = passed_on(request(lines), span).splitlines()

    assert passed == [b"x-thing: 1", b"traceparent: 00-%032x-%016x-00" % (span.trace_id, span.span_id)]
