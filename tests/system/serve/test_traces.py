"""`--otlp-endpoint` of real processes: every request is a span of its caller's trace, whichever way it is served."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.infra.otlp_receiver import Receiver, SpanSeen, receiving_grpc, receiving_http
from tests.infra.program import free_port
from tests.system.cli import TIMEOUT_S, serving
from tests.system.split.program import SplitProgram

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "shop=1"}
NOT_SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
NO_DRAIN = ("--drain-grace", "0s")
PLANE = ("--listen", "127.0.0.1:0", "--store", "mem://", *NO_DRAIN)


def acquire(url: str, key: str, headers: dict[str, str] | None = None) -> httpx.Response:
    body = {"key": key, "owner": "worker", "ttl_seconds": 30}
    return httpx.post(f"{url}/v1/acquire", json=body, headers=headers, timeout=TIMEOUT_S)


def named(spans: list[SpanSeen], name: str) -> SpanSeen:
    found = [span for span in spans if span.name == name]
    assert len(found) == 1, [span.name for span in spans]
    return found[0]


def log_lines(home: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (home / "server.log").read_text().splitlines() if line[:1] == "{"]


@pytest.fixture
def http_receiver() -> Iterator[Receiver]:
    with receiving_http() as started:
        yield started


@pytest.mark.parametrize(
    ("lane", "receiving"),
    [
        ("--express", receiving_http),
        ("--no-express", receiving_grpc),
        # What serves a request knows nothing of how its span is sent.
        pytest.param("--express", receiving_grpc, marks=pytest.mark.long),
        pytest.param("--no-express", receiving_http, marks=pytest.mark.long),
    ],
)
def test_a_request_is_a_span_of_its_callers_trace(
    lane: str, receiving: Callable[[], AbstractContextManager[Receiver]], tmp_path: Path
) -> None:
    with receiving() as receiver:
        with serving(tmp_path, *PLANE, lane, "--otlp-endpoint", receiver.url) as server:
            assert acquire(server.url, "a", {**SAMPLED, "X-Correlation-Id": "req-1"}).status_code == 200
            assert server.stop() == 0

    span = named(receiver.spans(), "POST /v1/acquire")
    assert (span.trace_id, span.parent_id, span.trace_state) == (TRACE, PARENT, "shop=1")
    assert span.part == "gateway"
    assert span.is_server
    assert not span.is_error
    assert span.duration_ns > 0
    host, _, port = server.url.removeprefix("http://").partition(":")
    assert span.attributes.pop("client.port")
    assert span.attributes.pop("user_agent.original")
    assert span.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/acquire",
        "http.response.status_code": 200,
        "url.path": "/v1/acquire",
        "url.scheme": "http",
        "client.address": "127.0.0.1",
        "server.address": host,
        "server.port": int(port),
        "holdfast.correlation_id": "req-1",
        "holdfast.operation": "acquire",
    }


def test_the_lane_and_plain_asgi_make_the_same_spans(tmp_path: Path, http_receiver: Receiver) -> None:
    made: dict[str, list[tuple[str, bool, dict[str, str | int]]]] = {}
    for lane in ("--express", "--no-express"):
        http_receiver.traces.clear()
        with serving(tmp_path, *PLANE, lane, "--otlp-endpoint", http_receiver.url) as server:
            acquire(server.url, "a", {"X-Correlation-Id": "1"})
            httpx.post(
                server.url + "/v1/keepalive", json={}, headers={"X-Correlation-Id": "2"}, timeout=TIMEOUT_S
            )
            for number, path in enumerate(("/v1/get?key=none&public=1", "/version", "/nowhere", "/healthz")):
                headers = {"X-Correlation-Id": str(number)}
                httpx.request("GET", server.url + path, headers=headers, timeout=TIMEOUT_S)
            assert server.stop() == 0
        spans = http_receiver.spans()
        for span in spans:
            assert span.attributes.pop("client.port")
            assert span.attributes.pop("server.port")
        made[lane] = [(span.name, span.is_error, span.attributes) for span in spans]

    names = ["POST /v1/acquire", "POST /v1/keepalive", "GET /v1/get", "GET /version", "GET"]
    assert [name for name, _, _ in made["--express"]] == names
    assert made["--express"] == made["--no-express"]
    refused = made["--express"][1][2]
    assert refused["http.response.status_code"] == 400
    assert refused["holdfast.error_code"]


def test_a_request_without_a_parent_begins_a_trace_of_its_own(
    tmp_path: Path, http_receiver: Receiver
) -> None:
    with serving(tmp_path, *PLANE, "--otlp-endpoint", http_receiver.url) as server:
        for key in ("a", "b"):
            acquire(server.url, key, {"traceparent": "00-this-is-none-01", "tracestate": "lost=1"})
        assert server.stop() == 0

    spans = http_receiver.spans()
    assert [span.parent_id + span.trace_state for span in spans] == ["", ""]
    assert len({span.trace_id for span in spans} - {TRACE}) == 2


@pytest.mark.parametrize("lane", ["--express", "--no-express"])
def test_the_callers_flag_decides_and_the_ratio_where_there_is_none(
    lane: str, tmp_path: Path, http_receiver: Receiver
) -> None:
    flags = ("--otlp-endpoint", http_receiver.url, "--otlp-sample-ratio", "0", lane)
    with serving(tmp_path, *PLANE, *flags) as server:
        for number, headers in enumerate(({}, SAMPLED, NOT_SAMPLED)):
            acquire(server.url, str(number), {**headers, "X-Correlation-Id": str(number)})
        assert server.stop() == 0

    assert [span.attributes["holdfast.correlation_id"] for span in http_receiver.spans()] == ["1"]


@pytest.mark.parametrize("lane", ["--express", "--no-express"])
def test_lines_logged_for_a_request_carry_its_ids_recorded_or_not(
    lane: str, tmp_path: Path, http_receiver: Receiver
) -> None:
    flags = ("--otlp-endpoint", http_receiver.url, "--log-level", "debug", lane)
    with serving(tmp_path, *PLANE, *flags) as server:
        acquire(server.url, "a", {**SAMPLED, "X-Correlation-Id": "1"})
        acquire(server.url, "b", {**NOT_SAMPLED, "X-Correlation-Id": "2"})
        httpx.get(f"{server.url}/healthz", headers={"X-Correlation-Id": "3"}, timeout=TIMEOUT_S)
        assert server.stop() == 0

    span = named(http_receiver.spans(), "POST /v1/acquire")
    of = {line["cid"]: line for line in log_lines(tmp_path) if line["msg"] == "http.request.done"}
    assert (of["1"]["trace_id"], of["1"]["span_id"]) == (TRACE, span.span_id)
    assert (of["1"]["sys"], of["1"]["status"]) == ("api.http.router.acquire", 200)
    assert of["2"]["trace_id"] == TRACE
    assert of["2"]["span_id"] not in {PARENT, span.span_id}
    assert "trace_id" not in of["3"]


@pytest.fixture
def plane(tmp_path: Path, postgres_url: str) -> Iterator[SplitProgram]:
    with ExitStack() as stack:
        yield SplitProgram(tmp_path, postgres_url, stack)


def test_one_trace_goes_through_the_gateway_its_service_and_the_calls_between_services(
    plane: SplitProgram, http_receiver: Receiver
) -> None:
    # In a cluster, because processes on one store call each other for nothing; ratio 0, because nodes call all the time.
    clustered = ("--self", plane.url_of("txn"), "--otlp-sample-ratio", "0")
    plane.start_all("--otlp-endpoint", http_receiver.url, *clustered, *NO_DRAIN)
    plane.until(lambda: "leader_id" in httpx.get(f"{plane.url}/v1/tc/leader", timeout=TIMEOUT_S).json())
    lease = acquire(plane.url, "a", {**SAMPLED, "baggage": "user=7"}).json()
    joined = acquire(plane.url, "b", {**NOT_SAMPLED, "X-Txn-ID": lease["txn_id"]})
    assert joined.status_code == 200
    body = {name: lease[name] for name in ("key", "lease_id", "txn_id")}
    claim = {"X-Lease-ID": lease["lease_id"], "X-Fencing-Token": str(lease["fencing_token"])}
    plane.post("/v1/update?key=a", {"n": 1}, {**claim, "X-Txn-ID": lease["txn_id"], **NOT_SAMPLED})
    released = plane.post("/v1/release", body, {**claim, "traceparent": f"00-{'7' * 32}-{PARENT}-01"})
    assert released.status_code == 200
    for server in plane.servers.values():
        assert server.stop() == 0

    spans = http_receiver.spans()
    assert {span.trace_id for span in spans} == {TRACE, "7" * 32}
    first = {span.part: span for span in spans if span.trace_id == TRACE}
    assert [span.name for span in first.values()] == ["POST /v1/acquire"] * 2
    assert first["gateway"].parent_id == PARENT
    assert first["leases"].parent_id == first["gateway"].span_id
    assert first["leases"].trace_state == "shop=1"
    by_id = {span.span_id: span for span in spans}
    internal = [span for span in spans if span.name.startswith("POST /internal/")]
    assert {span.part for span in internal} >= {"txn"}
    for span in internal:
        while span.parent_id != PARENT:
            span = by_id[span.parent_id]
        assert (span.part, span.name) == ("gateway", "POST /v1/release")


def test_an_answer_above_499_is_an_error_of_its_span(plane: SplitProgram, http_receiver: Receiver) -> None:
    plane.start("gateway", "--otlp-endpoint", http_receiver.url)
    assert acquire(plane.url, "a").status_code == 503
    assert plane.servers["gateway"].stop() == 0

    span = named(http_receiver.spans(), "POST /v1/acquire")
    assert span.is_error
    assert span.attributes["error.type"] == span.attributes["holdfast.error_code"] == "upstream_unavailable"
    assert span.attributes["http.response.status_code"] == 503


@contextmanager
def bad_collector(kind: str) -> Iterator[int]:
    """One that is away, takes what it gets and says nothing, or answers with noise."""
    if kind == "away":
        yield free_port()
        return
    with closing(socket.create_server(("127.0.0.1", 0), backlog=100)) as listening:
        kept: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    taken, _ = listening.accept()
                except OSError:
                    return
                kept.append(taken)
                if kind == "noise":
                    taken.sendall(b"\x00\xff what? \r\n" * 10)
                    taken.close()

        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]
        for taken in kept:
            taken.close()


@pytest.mark.parametrize(
    ("kind", "scheme"),
    [
        ("away", "http"),
        ("silent", "grpc"),
        *(
            pytest.param(*pair, marks=pytest.mark.long)
            for pair in (("away", "grpc"), ("silent", "http"), ("noise", "http"), ("noise", "grpc"))
        ),
    ],
)
def test_a_bad_collector_disturbs_neither_serving_nor_stopping_nor_the_log(
    kind: str, scheme: str, tmp_path: Path
) -> None:
    with bad_collector(kind) as port:
        with serving(tmp_path, *PLANE, "--otlp-endpoint", f"{scheme}://127.0.0.1:{port}") as server:
            deadline_s = time.monotonic() + 4  # Time for several batches and their retries.
            count = 0
            while time.monotonic() < deadline_s:
                count += 1
                assert acquire(server.url, str(count)).status_code == 200
            assert server.stop() == 0

    lines = log_lines(tmp_path)
    complaints = [line for line in lines if line["sys"] == "observability.telemetry.exporter"]
    assert len(complaints) < 12, complaints
    assert not [line for line in lines if line["lvl"] == "error" and line not in complaints]
    assert "Traceback" not in (tmp_path / "server.log").read_text()
