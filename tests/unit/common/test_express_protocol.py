"""The lane byte by byte: wherever the bytes are cut, the answers are the same."""

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from holdfast.common.express.limits import Limits
from tests.service.common.sample import Sample, request, status_of
from tests.unit.common.fake_connection import FakeConnection

ID = "X-Correlation-Id: test-1"
ORDER = b'{"key":"orders/1","amount":2}'
WHOLE = request("POST", "/v1/echo", ORDER, ID)
CHUNKED = (
    request("POST", "/v1/echo", b"", ID, "Transfer-Encoding: chunked", has_length=False)
    + b'5\r\n{"key\r\n18\r\n":"orders/1","amount":2}\r\n0\r\n\r\n'
)


@pytest.fixture
async def sample() -> AsyncIterator[Sample]:
    yield Sample()


@pytest.mark.parametrize(
    "asked", [WHOLE, CHUNKED, request("GET", "/plain", b"", ID)], ids=["whole", "chunked", "asgi"]
)
async def test_a_request_cut_at_any_byte_gets_the_same_answer(sample: Sample, asked: bytes) -> None:
    connection = FakeConnection(sample.app())
    await connection.feed(asked)
    expected = await connection.settle(1)
    assert status_of(expected) == 200

    for cut in range(1, len(asked)):
        connection.transport.written = b""
        await connection.feed(asked[:cut], asked[cut:])
        assert await connection.settle(1) == expected, cut


async def test_single_bytes_make_the_same_answers_as_one_piece(sample: Sample) -> None:
    asked = WHOLE + request("GET", "/v1/find?key=b", b"", ID) + CHUNKED + request("POST", "/v1/held", b"", ID)
    at_once, by_byte = FakeConnection(sample.app()), FakeConnection(sample.app())

    await at_once.feed(asked)
    await by_byte.feed(*(asked[index : index + 1] for index in range(len(asked))))

    assert await by_byte.settle(4) == await at_once.settle(4)


async def test_two_requests_cut_at_any_byte_are_both_answered(sample: Sample) -> None:
    asked = WHOLE + request("GET", "/v1/find?key=second", b"", ID)

    for cut in range(1, len(asked)):
        connection = FakeConnection(sample.app())
        await connection.feed(asked[:cut], asked[cut:])
        written = await connection.settle(2)
        assert re.findall(rb"HTTP/1.1 (\d+)", written) == [b"200", b"200"], cut
        assert b'"key":"second"' in written


async def test_reading_stops_while_requests_wait_in_line(sample: Sample) -> None:
    connection = FakeConnection(sample.app())
    await connection.feed(request("POST", "/v1/wait"), WHOLE, WHOLE)

    assert connection.transport.is_reading_paused
    assert connection.transport.written == b""

    sample.released.set()
    written = await connection.settle(3)
    assert written.count(b"HTTP/1.1 200 OK") == 3
    assert not connection.transport.is_reading_paused


async def test_a_lost_connection_cancels_the_handler(sample: Sample) -> None:
    connection = FakeConnection(sample.app())
    await connection.feed(request("POST", "/v1/wait"))
    await sample.entered.wait()

    connection.protocol.connection_lost(None)

    await asyncio.wait_for(sample.cancelled.wait(), 5)
    assert not connection.lane.connections


async def test_the_next_request_waits_until_the_client_takes_its_answer(sample: Sample) -> None:
    connection = FakeConnection(sample.app())
    connection.protocol.pause_writing()
    await connection.feed(WHOLE + WHOLE)
    assert connection.transport.written.count(b"HTTP/1.1") <= 1

    connection.protocol.resume_writing()

    assert (await connection.settle(2)).count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize("cut", [10, 60, len(WHOLE) - 3])
async def test_a_request_that_stops_halfway_is_408(sample: Sample, cut: int) -> None:
    connection = FakeConnection(sample.app(), Limits(head_timeout_s=5, body_timeout_s=5))
    await connection.feed(WHOLE[:cut])

    connection.tick(4)
    assert connection.transport.written == b""
    connection.tick(2)

    assert status_of(connection.transport.written) == 408
    connection.tick(10)
    assert connection.transport.is_aborted


async def test_trickling_a_head_does_not_extend_its_time(sample: Sample) -> None:
    connection = FakeConnection(sample.app(), Limits(head_timeout_s=5))
    for index in range(6):
        await connection.feed(WHOLE[index : index + 1])
        connection.tick(1)

    assert status_of(connection.transport.written) == 408


async def test_an_idle_connection_is_closed_after_its_keep_alive(sample: Sample) -> None:
    connection = FakeConnection(sample.app(), Limits(keep_alive_timeout_s=5))
    await connection.feed(WHOLE)

    connection.tick(4)
    assert not connection.transport.is_over
    connection.tick(2)

    assert connection.transport.is_over


async def test_a_long_wait_is_not_an_idle_connection(sample: Sample) -> None:
    connection = FakeConnection(
        sample.app(), Limits(keep_alive_timeout_s=5, head_timeout_s=5, body_timeout_s=5)
    )
    await connection.feed(request("POST", "/v1/wait"))

    connection.tick(1000)

    assert not connection.transport.is_over
    sample.released.set()
    assert status_of(await connection.settle(1)) == 200


async def test_a_closing_server_answers_what_runs_and_says_close(sample: Sample) -> None:
    connection = FakeConnection(sample.app())
    await connection.feed(request("POST", "/v1/wait") + WHOLE)

    connection.lane.begin_close()
    sample.released.set()
    written = await connection.settle(2)

    assert written.count(b"HTTP/1.1 200 OK") == 2
    assert written.count(b"connection: close") == 1
    assert connection.transport.is_over


async def test_an_idle_connection_of_a_closing_server_still_takes_a_request(sample: Sample) -> None:
    connection = FakeConnection(sample.app())
    connection.lane.begin_close()

    await connection.feed(WHOLE)

    assert b"connection: close" in await connection.settle(1)
    assert connection.transport.is_over


@pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
async def test_nothing_runs_after_the_last_request_of_a_connection(sample: Sample, is_express: bool) -> None:
    connection = FakeConnection(sample.app(), is_express=is_express)
    last = request("POST", "/v1/nothing", b"", "Connection: close")

    await connection.feed(last + request("POST", "/v1/wait"))
    await connection.settle(1)

    assert connection.transport.is_over
    assert connection.transport.written.count(b"HTTP/1.1") == 1
    assert not sample.entered.is_set()


async def test_a_refusal_does_not_repeat_the_id_of_an_earlier_request(sample: Sample) -> None:
    connection = FakeConnection(sample.app())
    await connection.feed(WHOLE[:20], WHOLE[20:])

    await connection.feed(b"gar bage\r\n\r\n")

    answers = (await connection.settle(2)).split(b"HTTP/1.1 ")
    assert b"x-correlation-id: test-1" in answers[1]
    assert b"x-correlation-id: test-1" not in answers[2]
