"""Which requests are recorded, under which ids, and what goes on with the calls made for them."""

import asyncio

import pytest

from holdfast.common.express.message import Headers, Request
from holdfast.common.telemetry.tracing import Span, Tracer, active_span_ids, current_span, outgoing_headers

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
FULL = f"{TRACE}-{PARENT}"


def request(headers: Headers) -> Request:
    return Request("POST", "/v1/acquire", b"", headers, b"", ("127.0.0.1", 1), None, "id-1")


def begun(headers: Headers, ratio: float = 1.0) -> Span:
    return Tracer(ratio, lambda span: None).begin(request(headers), "/v1/acquire")


def with_parent(text: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"x"), (b"traceparent", text.encode())]


@pytest.mark.parametrize(
    "text", [f"00-{FULL}-01", f"01-{FULL}-01-and-more", f"cc-{FULL}-ff", f" 00-{FULL}-03 "]
)
def test_a_parent_that_is_well_formed_is_followed(text: str) -> None:
    span = begun(with_parent(text), ratio=0)

    assert span.ids[0] == TRACE
    assert f"{span.parent_id:016x}" == PARENT
    assert span.ids[1] != PARENT
    assert span.is_sampled


@pytest.mark.parametrize(
    "text",
    [
        "",
        FULL,
        f"00-{FULL}",
        f"00-{FULL}-1",
        f"ff-{FULL}-01",
        f"00-{FULL}-01-and-more",
        f"00-{FULL}-01.",
        f"00-{FULL.upper()}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}g-{PARENT}-01",
    ],
)
def test_any_other_parent_does_not_count(text: str) -> None:
    span = begun([*with_parent(text), (b"tracestate", b"a=1")])

    assert not span.has_parent
    assert span.ids[0] != TRACE
    assert [name for name, _ in span.context_headers()] == [b"traceparent"]


def test_a_parent_that_is_not_sampled_is_followed_too() -> None:
    span = begun(with_parent(f"00-{FULL}-00"))

    assert (span.is_sampled, span.ids[0]) == (False, TRACE)
    assert span.context_headers() == [(b"traceparent", f"00-{TRACE}-{span.ids[1]}-00".encode())]


@pytest.mark.parametrize(("ratio", "least", "most"), [(0.0, 0, 0), (1.0, 4000, 4000), (0.25, 800, 1200)])
def test_without_a_parent_the_ratio_decides(ratio: float, least: int, most: int) -> None:
    spans = [begun([], ratio) for _ in range(4000)]

    assert least <= sum(span.is_sampled for span in spans) <= most
    assert len({span.ids for span in spans}) == 4000


def test_plain_lines_are_read_like_pairs() -> None:
    span = begun(
        f"Host: x\r\nTraceParent: 00-{FULL}-01\r\nTraceState: a=1,b=2\r\nBaggage: user=7\r\n".encode()
    )

    assert outgoing_headers() == [
        (b"traceparent", f"00-{TRACE}-{span.ids[1]}-01".encode()),
        (b"tracestate", b"a=1,b=2"),
        (b"baggage", b"user=7"),
    ]


def test_what_is_too_long_is_not_carried_on() -> None:
    begun([*with_parent(f"00-{FULL}-01"), (b"tracestate", b"a" * 600), (b"baggage", b"a" * 9000)])

    assert [name for name, _ in outgoing_headers()] == [b"traceparent"]


def test_a_span_is_handed_over_once_with_its_first_end() -> None:
    taken: list[Span] = []
    span = Tracer(1, taken.append).begin(request([]), "/v1/acquire")

    span.end(503, "busy")
    span.end(200)

    assert [(one.status, one.error_code) for one in taken] == [(503, "busy")]
    assert taken[0].duration_ns >= 0


def test_a_span_that_is_not_sampled_is_not_handed_over() -> None:
    taken: list[Span] = []

    Tracer(0, taken.append).begin(request([]), "/v1/acquire").end(200)

    assert taken == []


async def test_a_span_is_current_in_the_tasks_of_its_request_alone() -> None:
    async def serve(number: int) -> tuple[str, str] | None:
        span = begun([])
        await asyncio.sleep(0)
        assert active_span_ids() == span.ids
        return active_span_ids()

    served = await asyncio.gather(*(asyncio.create_task(serve(number)) for number in range(3)))

    assert len(set(served)) == 3
    assert current_span.get() is None
    assert outgoing_headers() == []
