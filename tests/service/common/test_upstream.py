"""The upstream client against peers that do as they are told: reuse, races, retries, deadlines, health, affinity."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from holdfast.common.upstream.address import parse_address
from holdfast.common.upstream.connection import UpstreamConnection
from holdfast.common.upstream.errors import (
    UpstreamBroken,
    UpstreamMalformed,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from holdfast.common.upstream.limits import UpstreamLimits
from holdfast.common.upstream.peer import Peer
from holdfast.common.upstream.port import RequestStream
from holdfast.common.upstream.service import ServiceClient
from tests.infra.program import free_port
from tests.service.common.scripted_peer import OK, Visit, answers, scripted

# Probes of a peer would be visits of their own; these tests probe when they mean to.
LIMITS = UpstreamLimits(retry_pause_s=0.001, backoff_s=0.0, probe_interval_s=3600, pool_wait_s=20)


def client_of(*urls: str, limits: UpstreamLimits = LIMITS) -> ServiceClient:
    peers = [Peer("sample", parse_address(url), limits) for url in urls]
    return ServiceClient("sample", peers, limits=limits)


@asynccontextmanager
async def sweeping(client: ServiceClient) -> AsyncIterator[None]:
    """The part of `running` that ends late calls."""
    task = asyncio.create_task(client._sweep())
    try:
        yield
    finally:
        task.cancel()
        for peer in client.peers:
            peer.pool.close()


async def post(client: ServiceClient, body: bytes = b"", **more: object) -> bytes:
    options: dict[str, object] = {"deadline_s": 20.0, **more}
    answer = await client.call("POST", "/v1/echo", (), body, **options)  # type: ignore[arg-type]
    assert answer.status == 200
    return answer.body if answer.stream is None else b"".join([piece async for piece in answer.stream])


async def test_calls_one_after_the_other_share_one_connection() -> None:
    async with scripted(answers) as peer:
        client = client_of(peer.url)
        for _ in range(5):
            assert await post(client, b"hello") == b"ok"

    assert peer.visits == 1


async def test_calls_at_once_have_a_connection_each_and_leave_them_for_the_next() -> None:
    async with scripted(answers) as peer:
        client = client_of(peer.url)
        for _ in range(2):
            await asyncio.gather(*(post(client) for _ in range(10)))

        assert peer.visits == 10
        assert client.peers[0].pool.idle_count == 10


async def test_calls_above_the_limit_wait_for_a_connection_in_order() -> None:
    go_on = asyncio.Event()
    order: list[bytes] = []

    async def one_at_a_time(visit: Visit) -> None:
        while request := await visit.request():
            order.append(request[-1:])
            await go_on.wait()
            await visit.say(OK)

    async with scripted(one_at_a_time) as peer:
        client = client_of(peer.url, limits=replace(LIMITS, connections_max=1))
        calls: list[asyncio.Task[bytes]] = []
        for number in (b"1", b"2", b"3"):
            calls.append(asyncio.create_task(post(client, number)))
            await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(*calls)

    assert order == [b"1", b"2", b"3"]
    assert peer.visits == 1


async def test_a_call_that_stops_waiting_for_a_connection_leaves_the_line() -> None:
    go_on, entered = asyncio.Event(), asyncio.Event()

    async def slow(visit: Visit) -> None:
        while await visit.request():
            entered.set()
            await go_on.wait()
            await visit.say(OK)

    async with scripted(slow) as peer:
        client = client_of(peer.url, limits=replace(LIMITS, connections_max=1))
        first = asyncio.create_task(post(client))
        await entered.wait()
        second, third = asyncio.create_task(post(client)), asyncio.create_task(post(client))
        await asyncio.sleep(0)
        second.cancel()
        go_on.set()

        assert await third == b"ok"
        assert await first == b"ok"


async def test_too_many_waiting_calls_are_refused_at_once() -> None:
    async def silent(visit: Visit) -> None:
        await visit.request()
        await asyncio.Event().wait()

    async with scripted(silent) as peer:
        limits = replace(LIMITS, connections_max=1, waiters_max=0, attempts_max=1)
        client = client_of(peer.url, limits=limits)
        first = asyncio.create_task(post(client))
        await asyncio.sleep(0)

        before = client.reason
        with pytest.raises(UpstreamUnavailable, match="too many"):
            await post(client)
        assert client.reason == before  # That many calls are no fault of the replica.
        first.cancel()


async def test_the_deadline_counts_while_a_call_waits_for_a_connection() -> None:
    async def silent(visit: Visit) -> None:
        await visit.request()
        await asyncio.Event().wait()

    async with scripted(silent) as peer:
        client = client_of(peer.url, limits=replace(LIMITS, connections_max=1, attempts_max=1))
        first = asyncio.create_task(post(client))
        await asyncio.sleep(0)

        with pytest.raises(UpstreamUnavailable, match="in time"):
            await post(client, deadline_s=0.01)
        first.cancel()


async def test_a_connection_that_broke_makes_room_for_those_who_wait() -> None:
    async def breaks_first(visit: Visit) -> None:
        await visit.request()
        if visit.number > 1:
            await visit.say(OK)

    async with scripted(breaks_first) as peer:
        client = client_of(peer.url, limits=replace(LIMITS, connections_max=1))
        calls = await asyncio.gather(post(client), post(client), return_exceptions=True)

    assert isinstance(calls[0], UpstreamBroken)
    assert calls[1] == b"ok"


async def test_an_idle_connection_that_the_peer_has_closed_is_not_used() -> None:
    closed = asyncio.Event()

    async def once(visit: Visit) -> None:
        await visit.request()
        await visit.say(OK)
        visit.writer.close()
        closed.set()

    async with scripted(once) as peer:
        client = client_of(peer.url)
        assert await post(client) == b"ok"
        await closed.wait()
        client.peers[0].pool.now_s += 1  # It has rested, so it is looked at.

        assert await post(client) == b"ok"

    assert peer.visits == 2


@pytest.mark.parametrize("is_repeatable", [True, False])
async def test_a_peer_that_closes_an_idle_connection_while_we_send(is_repeatable: bool) -> None:
    """The race that no look at the socket can win: only what may be repeated is sent again."""
    requests: list[bytes] = []

    async def closes_on_the_second(visit: Visit) -> None:
        requests.append(await visit.request())
        await visit.say(OK)
        if visit.number == 1:
            requests.append(await visit.request())

    async with scripted(closes_on_the_second) as peer:
        client = client_of(peer.url)
        await post(client, b"first")
        if is_repeatable:
            assert await post(client, b"second", is_repeatable=True) == b"ok"
        else:
            with pytest.raises(UpstreamBroken, match="before it answered"):
                await post(client, b"second")

    assert [request[-6:] for request in requests].count(b"second") == (2 if is_repeatable else 1)
    assert client.retries.value == (1 if is_repeatable else 0)


async def test_a_streamed_body_is_never_sent_twice() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"x"

    async def breaks(visit: Visit) -> None:
        await visit.request()

    async with scripted(breaks) as peer:
        client = client_of(peer.url)
        with pytest.raises(UpstreamBroken):
            await client.call("POST", "/", (), RequestStream(chunks(), 1), deadline_s=20, is_repeatable=True)

    assert peer.visits == 1


async def test_a_refused_connection_is_tried_a_few_times_and_then_told() -> None:
    client = client_of(f"http://127.0.0.1:{free_port()}")

    with pytest.raises(UpstreamUnavailable, match=r"cannot be reached.*refused") as caught:
        await post(client)

    assert caught.value.retry_after_s == 1
    assert client.retries.value == LIMITS.attempts_max - 1


async def test_what_was_never_sent_goes_to_another_replica() -> None:
    async with scripted(answers) as peer:
        limits = replace(LIMITS, backoff_s=3600, backoff_s_max=3600)
        client = client_of(f"http://127.0.0.1:{free_port()}", peer.url, limits=limits)

        for number in range(20):
            assert await post(client, affinity=b"%d" % number) == b"ok"

    assert client.retries.value <= 1  # The first failure is remembered.


async def test_the_deadline_ends_a_call_to_a_silent_peer() -> None:
    hung_up = asyncio.Event()

    async def silent(visit: Visit) -> None:
        await visit.request()
        await _until_gone(visit)
        hung_up.set()

    async with scripted(silent) as peer:
        client = client_of(peer.url)
        async with sweeping(client):
            with pytest.raises(UpstreamTimeout):
                await post(client, deadline_s=0.01, is_repeatable=True)
            await hung_up.wait()

    assert peer.visits == 1


async def test_cancelling_a_call_hangs_up_behind() -> None:
    asked, hung_up = asyncio.Event(), asyncio.Event()

    async def silent(visit: Visit) -> None:
        await visit.request()
        asked.set()
        await _until_gone(visit)
        hung_up.set()

    async with scripted(silent) as peer:
        client = client_of(peer.url)
        call = asyncio.create_task(post(client, deadline_s=None))
        await asked.wait()

        call.cancel()

        with pytest.raises(asyncio.CancelledError):
            await call
        await hung_up.wait()


async def _until_gone(visit: Visit) -> None:
    try:
        await visit.reader.read()
    except ConnectionError:
        return


async def test_whoever_hangs_up_when_the_answer_is_there_leaves_the_next_call_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection is in the hands of the next caller before the one who hung up gets to know of either."""
    async with scripted(answers) as peer:
        client = client_of(peer.url, limits=replace(LIMITS, connections_max=1))
        pool = client.peers[0].pool
        release = pool.release

        def hang_up_and_release(connection: UpstreamConnection) -> None:
            asyncio.get_running_loop().call_soon(first.cancel)
            monkeypatch.undo()
            release(connection)

        monkeypatch.setattr(pool, "release", hang_up_and_release)
        first, second = asyncio.create_task(post(client)), asyncio.create_task(post(client))
        told = await asyncio.gather(first, second, return_exceptions=True)

    assert isinstance(told[0], asyncio.CancelledError)
    assert told[1] == b"ok"
    assert peer.visits == 1


async def test_an_answer_that_comes_byte_by_byte_is_whole() -> None:
    async def slow(visit: Visit) -> None:
        await visit.request()
        for byte in b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n":
            await visit.say(bytes([byte]))
            await asyncio.sleep(0)

    async with scripted(slow) as peer:
        assert await post(client_of(peer.url)) == b"abcde"


async def test_a_reset_in_the_middle_of_an_answer_is_told() -> None:
    async def resets(visit: Visit) -> None:
        await visit.request()
        await visit.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        visit.writer.transport.abort()

    async with scripted(resets) as peer:
        with pytest.raises(UpstreamBroken, match="in the middle"):
            await post(client_of(peer.url))


async def test_a_peer_that_does_not_speak_http_is_told() -> None:
    async def talks(visit: Visit) -> None:
        await visit.say(b"220 mail.example.org ESMTP\r\n")
        await asyncio.Event().wait()

    async with scripted(talks) as peer:
        client = client_of(peer.url, limits=replace(LIMITS, attempts_max=1))
        with pytest.raises((UpstreamMalformed, UpstreamUnavailable)):
            await post(client)


async def test_a_body_is_produced_no_faster_than_the_peer_takes_it() -> None:
    produced = 0
    go_on = asyncio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal produced
        for _ in range(2000):
            produced += 1
            yield b"x" * 50_000

    async def reads_late(visit: Visit) -> None:
        await visit.reader.readuntil(b"\r\n\r\n")
        await go_on.wait()
        left_bytes = 100_000_000
        while left_bytes:
            left_bytes -= len(await visit.reader.read(1 << 20))
        await visit.say(OK)

    async with scripted(reads_late) as peer:
        client = client_of(peer.url)
        stream = RequestStream(chunks(), 100_000_000)
        call = asyncio.create_task(client.call("POST", "/", (), stream, deadline_s=None))
        before = -1
        while before != produced:
            before = produced
            for _ in range(100):
                await asyncio.sleep(0.001)
        assert 0 < produced < 500  # Sockets of the kernel hold a part of it.
        go_on.set()

        assert (await call).status == 200


# Health.


async def test_a_probe_tells_why_a_replica_is_not_ready_and_when_it_is() -> None:
    replies = [
        b'HTTP/1.1 503 No\r\nContent-Length: 41\r\n\r\n{"error":"not_ready","detail":"store: x"}',
        b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
        OK,
    ]

    async def script(visit: Visit) -> None:
        while await visit.request():
            await visit.say(replies.pop(0))

    async with scripted(script) as peer:
        client = client_of(peer.url)
        reasons = [client.reason]
        for _ in range(3):
            await client.peers[0].probe("/readyz")
            reasons.append(client.reason)

    assert reasons == [
        f"{peer.url}: not reached yet",
        f"{peer.url}: store: x",
        f"{peer.url}: answers 500",
        None,
    ]


async def test_a_replica_that_failed_is_left_alone_and_its_callers_are_told_at_once() -> None:
    limits = replace(LIMITS, backoff_s=3600, backoff_s_max=3600, attempts_max=1)
    client = client_of(f"http://127.0.0.1:{free_port()}", limits=limits)
    with pytest.raises(UpstreamUnavailable, match="cannot be reached"):
        await post(client)

    with pytest.raises(UpstreamUnavailable, match=r"sample is not there: .*refused"):
        await post(client)

    assert client.peers[0].calls.value == 1


async def test_a_probe_that_finds_a_replica_well_ends_its_back_off() -> None:
    limits = replace(LIMITS, backoff_s=3600, backoff_s_max=3600, attempts_max=1)
    port = free_port()
    client = client_of(f"http://127.0.0.1:{port}", limits=limits)
    with pytest.raises(UpstreamUnavailable):
        await post(client)
    async with scripted(answers, port):
        await client.peers[0].probe("/readyz")

        assert await post(client) == b"ok"


async def test_replicas_are_probed_while_the_client_runs() -> None:
    probed_again = asyncio.Event()
    probes: list[bytes] = []

    async def script(visit: Visit) -> None:
        while request := await visit.request():
            probes.append(request.partition(b"\r\n")[0])
            if len(probes) == 2:
                probed_again.set()
            await visit.say(OK)

    async with scripted(script) as peer:
        client = client_of(peer.url, limits=replace(LIMITS, probe_interval_s=0.01))
        async with client.running():
            assert client.reason is not None
            await probed_again.wait()

            assert client.reason is None
    assert set(probes) == {b"GET /readyz HTTP/1.1"}


# Affinity.


async def _well(client: ServiceClient) -> ServiceClient:
    for peer in client.peers:
        await peer.probe("/readyz")
        peer.calls.value = 0
    return client


async def test_calls_of_one_affinity_meet_in_one_replica_and_others_spread() -> None:
    async with scripted(answers) as one, scripted(answers) as two, scripted(answers) as three:
        client = await _well(client_of(one.url, two.url, three.url))
        for _ in range(10):
            await post(client, affinity=b"default\0orders")
        together = sorted(peer.calls.value for peer in client.peers)
        for number in range(60):
            await post(client, affinity=b"default\0key-%d" % number)

    assert together == [0, 0, 10]
    assert all(peer.calls.value >= 5 for peer in client.peers)


async def test_without_an_affinity_the_replicas_take_turns() -> None:
    async with scripted(answers) as one, scripted(answers) as two:
        client = await _well(client_of(one.url, two.url))
        for _ in range(10):
            await post(client)

    assert [peer.calls.value for peer in client.peers] == [5, 5]


async def test_a_lost_replica_moves_its_own_keys_only_and_gets_them_back() -> None:
    keys = [b"default\0key-%d" % number for number in range(40)]
    async with scripted(answers) as one, scripted(answers) as two, scripted(answers) as three:
        client = await _well(client_of(one.url, two.url, three.url))

        async def homes() -> dict[bytes, str]:
            found: dict[bytes, str] = {}
            for key in keys:
                before = [peer.calls.value for peer in client.peers]
                await post(client, affinity=key)
                moved = [peer.calls.value for peer in client.peers]
                position = next(at for at, calls in enumerate(moved) if calls != before[at])
                found[key] = client.peers[position].url
            return found

        at_first = await homes()
        lost = client.peers[0]
        lost.note_failure("gone")
        lost._left_alone_until_s = time.monotonic() + 3600
        meanwhile = await homes()
        await lost.probe("/readyz")
        at_last = await homes()

    assert all(home != lost.url for home in meanwhile.values())
    assert {key for key in keys if at_first[key] != meanwhile[key]} == {
        key for key in keys if at_first[key] == lost.url
    }
    assert at_last == at_first


async def test_a_peer_that_takes_connections_and_nothing_else_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        client = client_of(url)
        async with sweeping(client):
            with pytest.raises(UpstreamTimeout):
                await post(client, deadline_s=0.05)
