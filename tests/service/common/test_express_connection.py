"""How a connection behaves: pipelining, 100-continue, limits, malformed input, clients that leave."""

import asyncio
import resource

import pytest

from holdfast.common.express.limits import Limits
from holdfast.common.express.message import Answer, Request
from holdfast.common.express.protocol import REQUESTS_PER_TURN_MAX
from tests.service.common.sample import Sample, masked, read_answer, request, serving, status_of

BOTH_WAYS = pytest.mark.parametrize("is_express", [True, False], ids=["lane", "asgi"])
ORDER = b'{"key":"orders/1","amount":2}'


@BOTH_WAYS
async def test_pipelined_requests_are_answered_in_order(is_express: bool) -> None:
    asked = [request("GET", f"/v1/find?key={number}") for number in range(40)]
    asked[7] = request("GET", "/plain")
    asked[8] = request("POST", "/v1/raw", b"z" * 70_000)

    async with serving(Sample(), is_express=is_express) as (_, raw):
        reader, writer = await raw.connect()
        writer.write(b"".join(asked))
        answers = [await read_answer(reader) for _ in asked]
        writer.close()

    for number, answer in enumerate(answers):
        if number not in (7, 8):
            assert f'"key":"{number}"'.encode() in answer
    assert b"plainly" in answers[7]
    assert answers[8].endswith(b"z" * 70_000)


async def test_requests_in_line_wait_for_the_one_that_runs() -> None:
    sample = Sample()
    async with serving(sample) as (_, raw):
        reader, writer = await raw.connect()
        writer.write(
            request("POST", "/v1/wait") + request("GET", "/plain") + request("GET", "/v1/find?key=z")
        )
        await sample.entered.wait()
        sample.released.set()
        answers = [await read_answer(reader) for _ in range(3)]
        writer.close()

    assert b"at last" in answers[0]
    assert b"plainly" in answers[1]
    assert b'"key":"z"' in answers[2]


@BOTH_WAYS
async def test_thousands_of_pipelined_requests_are_all_answered(is_express: bool) -> None:
    async with serving(Sample(), is_express=is_express) as (_, raw):
        reader, writer = await raw.connect()

        async def send() -> None:
            for _ in range(40):
                writer.write(request("POST", "/v1/nothing") * 50)
                await writer.drain()

        sending = asyncio.ensure_future(send())
        answers = [await read_answer(reader) for _ in range(2000)]
        await sending
        writer.close()

    assert {status_of(answer) for answer in answers} == {204}


class Counted(Sample):
    """Counts what is served in each round of the event loop."""

    served = 0

    async def nothing(self, request: Request, body: None) -> Answer:
        self.served += 1
        return Answer(204)

    async def rounds(self) -> list[int]:
        """Until it is cancelled."""
        rounds: list[int] = []
        try:
            while True:
                before = self.served
                await asyncio.sleep(0)
                rounds.append(self.served - before)
        except asyncio.CancelledError:
            return rounds


@pytest.mark.parametrize("is_behind_another", [False, True])
async def test_a_long_line_of_quick_requests_leaves_the_loop_to_others_in_between(
    is_behind_another: bool,
) -> None:
    sample = Counted()
    async with serving(sample) as (_, raw):
        reader, writer = await raw.connect()
        rounds = asyncio.ensure_future(sample.rounds())
        first = request("GET", "/plain") if is_behind_another else b""
        writer.write(first + b"POST /v1/nothing HTTP/1.1\r\n\r\n" * 3000)
        answers = [await asyncio.wait_for(read_answer(reader), 30) for _ in range(3000 + is_behind_another)]
        rounds.cancel()
        writer.close()

    assert {status_of(answer) for answer in answers[is_behind_another:]} == {204}
    assert max(await rounds) <= 2 * REQUESTS_PER_TURN_MAX  # One reads on, one goes on.


async def test_a_long_line_behind_a_request_that_waited_is_answered() -> None:
    sample = Sample()
    async with serving(sample) as (_, raw):
        reader, writer = await raw.connect()
        writer.write(request("POST", "/v1/wait") + b"GET /v1/find?key=z HTTP/1.1\r\n\r\n" * 400)
        await sample.entered.wait()
        sample.released.set()
        answers = [await asyncio.wait_for(read_answer(reader), 30) for _ in range(401)]
        writer.close()

    assert {status_of(answer) for answer in answers} == {200}


@BOTH_WAYS
async def test_a_body_is_asked_for_with_100_continue(is_express: bool) -> None:
    head = request("POST", "/v1/echo", ORDER, "Expect: 100-continue")[: -len(ORDER)]
    async with serving(Sample(), is_express=is_express) as (_, raw):
        reader, writer = await raw.connect()
        writer.write(head)
        interim = await reader.readuntil(b"\r\n\r\n")
        writer.write(ORDER)
        answer = await read_answer(reader)
        writer.close()

    assert interim == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert status_of(answer) == 200


@BOTH_WAYS
async def test_a_body_that_is_too_large_is_not_asked_for(is_express: bool) -> None:
    asked = request(
        "POST", "/v1/raw", b"", "Expect: 100-continue", "Content-Length: 999999999", has_length=False
    )
    async with serving(Sample(), is_express=is_express) as (_, raw):
        answer = await raw.talk(asked)

    assert status_of(answer) == 413
    assert b"connection: close" in answer
    assert b'"error":"document_too_large"' in answer


@BOTH_WAYS
@pytest.mark.parametrize(
    "asked",
    [
        request("GET", "/v1/find", b"", "X-Long: " + "x" * 100_000),
        b"GET /v1/find?" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
        request("GET", "/v1/find", b"", *(f"X-{number}: 1" for number in range(200))),
        request("POST", "/v1/raw", b"", "Transfer-Encoding: chunked", has_length=False)
        + b"1\r\nx\r\n0\r\nX-Trailer: " + b"t" * 200_000,
    ],
    ids=["header", "url", "many_headers", "trailer"],
)  # fmt: skip
async def test_an_oversized_head_is_431(asked: bytes, is_express: bool) -> None:
    async with serving(Sample(), is_express=is_express) as (_, raw):
        answer = await raw.talk(asked)

    assert status_of(answer) == 431
    assert b'{"error":"headers_too_large"' in answer
    assert b"connection: close" in answer
    assert b"x-correlation-id: " in answer


@BOTH_WAYS
@pytest.mark.parametrize(
    "asked",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"garbage\r\n\r\n",
        b"GET /v1/find HTTP/9.9\r\n\r\n",
        b"GET /v1/find HTTP/1.1\r\nBad Header: x\r\n\r\n",
        b"GET /v1/find HTTP/1.1\r\nX: a\x00b\r\n\r\n",
        b"GET /v1/f\xffnd HTTP/1.1\r\n\r\n",
        b"POST /v1/raw HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST /v1/raw HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/raw HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /v1/raw HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST /v1/raw HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        b"POST /v1/raw HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n0\r\n\r\n",
        b"POST /v1/raw HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nab",
        b"CONNECT test:443 HTTP/1.1\r\n\r\n",
    ],
)
async def test_malformed_requests_are_400_and_end_the_connection(asked: bytes, is_express: bool) -> None:
    async with serving(Sample(), is_express=is_express) as (_, raw):
        answer = await raw.talk(asked)

    assert status_of(answer) == 400
    assert b'{"error":"invalid_request"' in answer
    assert b"connection: close" in answer


@BOTH_WAYS
async def test_requests_before_a_malformed_one_are_still_answered(is_express: bool) -> None:
    async with serving(Sample(), is_express=is_express) as (_, raw):
        answer = await raw.talk(request("POST", "/v1/timed") + request("GET", "/plain") + b"gar bage\r\n\r\n")

    assert answer.index(b"in time") < answer.index(b"plainly") < answer.index(b"invalid_request")


@BOTH_WAYS
@pytest.mark.parametrize("asked", [request("POST", "/v1/nothing", b"", "Connection: close"),
                                   request("POST", "/v1/nothing", version="1.0")], ids=["close", "1.0"])  # fmt: skip
async def test_the_connection_ends_when_the_client_said_so(asked: bytes, is_express: bool) -> None:
    async with serving(Sample(), is_express=is_express) as (_, raw):
        answer = await raw.talk(asked)

    assert answer.startswith(b"HTTP/1.1 204 No Content\r\n")
    assert answer.endswith(b"connection: close\r\n\r\n")


@BOTH_WAYS
async def test_a_half_closed_client_gets_its_answer(is_express: bool) -> None:
    sample = Sample()
    async with serving(sample, is_express=is_express) as (_, raw):
        reader, writer = await raw.connect()
        writer.write(request("POST", "/v1/wait"))
        writer.write_eof()
        await sample.entered.wait()
        sample.released.set()
        answer = await reader.read()
        writer.close()

    assert answer.endswith(b"at last")


@BOTH_WAYS
async def test_a_client_that_hangs_up_cancels_its_handler(is_express: bool) -> None:
    sample = Sample()
    async with serving(sample, is_express=is_express) as (_, raw):
        _, writer = await raw.connect()
        writer.write(request("POST", "/v1/wait"))
        await sample.entered.wait()

        writer.close()

        async with asyncio.timeout(20):
            await sample.cancelled.wait()


@BOTH_WAYS
async def test_a_client_that_resets_cancels_its_handler(is_express: bool) -> None:
    sample = Sample()
    async with serving(sample, is_express=is_express) as (_, raw):
        _, writer = await raw.connect()
        writer.write(request("POST", "/v1/wait"))
        await sample.entered.wait()

        writer.transport.abort()

        async with asyncio.timeout(20):
            await sample.cancelled.wait()


@BOTH_WAYS
async def test_a_client_that_hangs_up_behind_a_pipelined_request_cancels_its_handler(
    is_express: bool,
) -> None:
    sample = Sample()
    async with serving(sample, is_express=is_express) as (_, raw):
        _, writer = await raw.connect()
        writer.write(request("POST", "/v1/wait") + request("POST", "/v1/nothing") * 3)
        await sample.entered.wait()

        writer.close()

        async with asyncio.timeout(20):
            await sample.cancelled.wait()


@BOTH_WAYS
async def test_a_half_closed_client_that_hangs_up_behind_an_answer_that_had_begun_cancels_the_next_handler(
    is_express: bool,
) -> None:
    """The first answer is written by ASGI, in pieces: the end of input comes between them."""
    sample = Sample()
    async with serving(sample, is_express=is_express) as (_, raw):
        reader, writer = await raw.connect()
        writer.write(request("GET", "/healthz") + request("POST", "/v1/wait"))
        writer.write_eof()
        await reader.readuntil(b"\r\n\r\n")
        await sample.entered.wait()

        writer.close()

        async with asyncio.timeout(20):
            await sample.cancelled.wait()


@BOTH_WAYS
async def test_a_half_closed_client_gets_the_answers_of_all_its_requests(is_express: bool) -> None:
    sample = Sample()
    async with serving(sample, is_express=is_express) as (_, raw):
        reader, writer = await raw.connect()
        writer.write(request("POST", "/v1/wait") + request("GET", "/v1/find?key=z") * 3)
        await sample.entered.wait()
        writer.write_eof()
        await asyncio.sleep(0.05)  # Longer than a client that is gone is believed to be there.
        sample.released.set()
        answers = await reader.read()
        writer.close()

    assert answers.count(b"at last") == 1
    assert answers.count(b'"key":"z"') == 3


@BOTH_WAYS
async def test_a_half_closed_client_is_told_to_continue_at_most_once_by_request(is_express: bool) -> None:
    """Reading stands still behind a large body: its end is noticed then, and once more when it is read."""
    sample = Sample()
    large = (
        b"POST /v1/wait HTTP/1.1\r\nHost: plane\r\nTransfer-Encoding: chunked\r\n\r\n493e0\r\n"
        + b"x" * 300_000
    )
    async with serving(sample, is_express=is_express) as (_, raw):
        reader, writer = await raw.connect()
        writer.write(large + b"\r\n0\r\n\r\n")
        writer.write_eof()
        await sample.entered.wait()
        sample.released.set()
        answers = await reader.read()
        writer.close()

    assert answers.count(b"100 Continue") <= 1
    assert answers.endswith(b"at last")


async def test_slow_heads_and_bodies_are_408() -> None:
    limits = Limits(head_timeout_s=0.2, body_timeout_s=0.2)
    async with serving(Sample(), limits=limits) as (_, raw):
        slow_head = await raw.talk(b"POST /v1/echo HTTP/1.1\r\nHo")
        slow_body = await raw.talk(request("POST", "/v1/echo", ORDER)[:-5])
        slow_stream = await raw.talk(request("POST", "/v1/raw", b"x" * 100_000)[:-5])

    for answer in (slow_head, slow_body, slow_stream):
        assert status_of(answer) == 408
        assert b'{"error":"request_timeout"' in answer


async def test_a_silent_connection_is_closed_without_a_word() -> None:
    async with serving(Sample(), limits=Limits(keep_alive_timeout_s=0.2)) as (_, raw):
        answer = await raw.talk()

    assert answer == b""


async def test_a_client_that_takes_no_answers_is_cut_off() -> None:
    asked = request("POST", "/v1/raw", b"x" * 60_000)
    async with serving(Sample(), limits=Limits(write_timeout_s=0.3)) as (server, raw):
        _, writer = await raw.connect()
        writer.write(asked * 400)

        with pytest.raises(ConnectionError):
            async with asyncio.timeout(20):
                await writer.wait_closed()

        assert not server.lane.connections


async def test_a_thousand_idle_connections_leave_room_for_a_request() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))
    async with serving(Sample()) as (server, raw):
        idle = [await raw.connect() for _ in range(1000)]

        answer = await raw.ask(request("POST", "/v1/echo", ORDER))

        assert status_of(answer) == 200
        assert len(server.lane.connections) >= 1000
        reader, writer = idle[500]
        writer.write(request("POST", "/v1/echo", ORDER))
        assert status_of(await read_answer(reader)) == 200
        for _, writer in idle:
            writer.close()


async def test_too_many_connections_are_503() -> None:
    async with serving(Sample(), limits=Limits(connections_max=2)) as (_, raw):
        held = [await raw.connect() for _ in range(2)]

        answer = await raw.talk()

        assert status_of(answer) == 503
        assert b'{"error":"too_many_connections"' in answer
        for _, writer in held:
            writer.close()


@BOTH_WAYS
async def test_a_route_that_ignores_its_body_keeps_the_connection_usable(is_express: bool) -> None:
    async with serving(Sample(), is_express=is_express) as (_, raw):
        reader, writer = await raw.connect()
        writer.write(request("POST", "/healthz", b"b" * 300_000))
        first = await read_answer(reader)
        writer.write(request("GET", "/v1/find?key=next"))
        second = await read_answer(reader)
        writer.close()

    assert status_of(first) == 200
    assert b'"key":"next"' in second


async def test_answers_while_draining_say_so_everywhere() -> None:
    asked = [
        request("POST", "/v1/echo", ORDER),
        request("GET", "/plain"),
        request("GET", "/healthz"),
        request("GET", "/nowhere"),
        request("POST", "/v1/held"),
        b"gar bage\r\n\r\n",
    ]
    async with serving(Sample()) as (server, raw):
        before = [await raw.ask(one) for one in asked]
        server.lane.begin_drain()
        during = [await raw.ask(one) for one in asked]

    assert not any(b"shutdown-imminent" in answer for answer in before)
    assert all(b"\r\nshutdown-imminent: true\r\n" in answer for answer in during)
    assert (
        masked(before[2]).partition(b"x-corr")[0]
        == masked(during[2]).replace(b"shutdown-imminent: true\r\n", b"").partition(b"x-corr")[0]
    )
