"""The thread that sends spans: bounded, quiet, and never in the way."""

import io
import json
import threading
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from holdfast.common.express.message import Request
from holdfast.common.logging import configure_logging
from holdfast.common.telemetry import span_export
from holdfast.common.telemetry.metrics import Registry
from holdfast.common.telemetry.span_export import SpanSender
from holdfast.common.telemetry.tracing import Span, Tracer

WAIT_S = 30


class Collector(SpanExporter):
    """Answers each batch as it was told to; the last word counts for all further ones."""

    def __init__(self, *answers: SpanExportResult | Exception) -> None:
        self.answers = list(answers) or [SpanExportResult.SUCCESS]
        self.batches: list[list[ReadableSpan]] = []
        self.begun = threading.Semaphore(0)
        self.may_answer = threading.Event()
        self.may_answer.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.begun.release()
        assert self.may_answer.wait(WAIT_S)
        self.batches.append(list(spans))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Sending:
    """A sender whose batches are as small as a test wants them."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.registry = Registry()
        self.sender = SpanSender(collector, Resource({}), self.registry, "http")
        self.tracer = Tracer(1, self.sender.take)

    def send(self, path: str = "/v1/acquire", route: str = "/v1/acquire", method: str = "POST") -> Span:
        request = Request(method, path, b"key=a&token=secret", [], b"", None, None, "id")
        span = self.tracer.begin(request, route)
        span.end(200)
        return span

    def stop(self) -> None:
        self.sender.stop(WAIT_S)
        self.sender.thread.join(WAIT_S)
        assert not self.sender.thread.is_alive()

    def counted(self, result: str) -> int:
        name = f'holdfast_telemetry_spans_total{{result="{result}"}} '
        lines = self.registry.render().decode().splitlines()
        return next(int(line.removeprefix(name)) for line in lines if line.startswith(name))


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    configure_logging("info", stream=stream)
    yield stream
    configure_logging("info")


def test_what_waits_at_the_end_is_sent() -> None:
    sending = Sending(Collector())

    spans = [sending.send() for _ in range(3)]
    sending.stop()

    sent = [span for batch in sending.collector.batches for span in batch]
    assert [span.context.span_id for span in sent if span.context] == [span.span_id for span in spans]
    assert sending.counted("sent") == 3


def test_a_full_batch_does_not_wait_for_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_export, "INTERVAL_S", 3600)
    monkeypatch.setattr(span_export, "BATCH_MAX", 2)
    sending = Sending(Collector())

    sending.send()
    sending.send()

    assert sending.collector.begun.acquire(timeout=WAIT_S)
    sending.stop()


def test_spans_that_come_too_fast_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_export, "QUEUED_MAX", 4)
    monkeypatch.setattr(span_export, "BATCH_MAX", 1)
    sending = Sending(Collector())
    sending.collector.may_answer.clear()
    sending.send()
    assert sending.collector.begun.acquire(timeout=WAIT_S)

    for _ in range(10):
        sending.send()
    sending.collector.may_answer.set()
    sending.stop()

    assert (sending.counted("sent"), sending.counted("dropped")) == (5, 6)


def test_a_collector_that_fails_is_logged_once_and_once_more_when_it_is_back(
    log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(span_export, "BATCH_MAX", 1)
    failure = SpanExportResult.FAILURE
    collector = Collector(failure, failure, ValueError("garbage"), SpanExportResult.SUCCESS)
    sending = Sending(collector)

    for _ in range(5):
        sending.send()
    sending.stop()

    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [(line["msg"], line["lvl"]) for line in lines] == [
        ("telemetry.spans.failed", "warn"),
        ("telemetry.spans.recovered", "info"),
    ]
    assert lines[1]["lost"] == sending.counted("failed") == 3
    assert sending.counted("sent") == 2


def test_nothing_is_begun_after_the_time_of_a_stop_is_over() -> None:
    sending = Sending(Collector())
    sending.collector.may_answer.clear()
    sending.send()
    assert sending.collector.begun.acquire(timeout=WAIT_S)
    sending.send()

    sending.sender.stop(0)
    sending.collector.may_answer.set()
    sending.sender.thread.join(WAIT_S)

    assert len(sending.collector.batches) == 1


def test_a_span_that_waits_keeps_little_of_a_large_head() -> None:
    collector = Collector()
    sending = Sending(collector)
    headers = [
        (b"host", b"plane:9341"),
        (b"user-agent", b"u" * 5000),
        (b"x-large", b"x" * 60_000),
        (b"traceparent", b"00-%032x-%016x-01" % (7, 8)),
        (b"tracestate", b"a=1"),
    ]
    request = Request("GET", "/" + "p" * 60_000, b"q" * 60_000, headers, b"", None, None, "id")

    span = sending.tracer.begin(request, "")
    span.end(404)
    sending.stop()

    assert isinstance(span.headers, list)
    assert sum(len(name) + len(value) for name, value in span.headers) < 1200
    assert len(span.path) == len(span.query) == 1024
    sent = collector.batches[0][0]
    assert sent.attributes is not None
    assert (sent.attributes["server.address"], sent.attributes["server.port"]) == ("plane", 9341)
    assert sent.context is not None
    assert sent.context.trace_state.to_header() == "a=1"


def test_names_and_attributes_are_bounded_and_hide_secrets() -> None:
    sending = Sending(Collector())

    sending.send(path="/" + "x" * 5000, route="", method="BREW")
    sending.stop()

    span = sending.collector.batches[0][0]
    assert span.name == "HTTP"
    assert span.attributes is not None
    assert span.attributes["http.request.method"] == "_OTHER"
    assert span.attributes["url.query"] == "key=a&token=***"
    assert len(str(span.attributes["url.path"])) == 1024
    assert "http.route" not in span.attributes
