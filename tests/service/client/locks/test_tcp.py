"""The client of the TCP listener, both twins, against real listeners."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from threading import Thread
from zlib import crc32

import pytest

from holdfast.client import (
    ClientClosed,
    Forbidden,
    InvalidArgument,
    LeaseHeld,
    LeaseLost,
    NotFound,
    RequestRefused,
    Throttled,
    TransportFailed,
    UnexpectedAnswer,
)
from holdfast.client.tcp import AsyncTcpClient, TcpClient, TcpOptions
from tests.service.client.locks.conftest import Plane, started
from tests.service.common.certificates import Authority, pem
from tests.wire.dflockd.conftest import LockPlane, lock_plane

WAIT_S = 30.0
POLL_S = 0.01


@pytest.fixture
async def server() -> AsyncIterator[LockPlane]:
    async with lock_plane() as running:
        yield running


@pytest.fixture
async def client(server: LockPlane) -> AsyncIterator[AsyncTcpClient]:
    async with AsyncTcpClient(at(server)) as opened:
        yield opened


@pytest.fixture
def blocking(plane: Plane) -> Iterator[TcpClient]:
    with TcpClient(plane.tcp) as opened:
        yield opened


def at(server: LockPlane) -> str:
    return f"{server.host}:{server.port}"


async def until_waiting(client: AsyncTcpClient, key: str) -> None:
    while all(one["key"] != key or not one["waiters"] for one in (await client.stats())[0]["locks"]):  # noqa: ASYNC110  # Seen by stats only.
        await asyncio.sleep(POLL_S)


async def test_a_lock_is_held_in_its_block(client: AsyncTcpClient) -> None:
    async with client.lock("block", ttl_s=20) as lock:
        assert lock.ttl_s == 20
        with pytest.raises(LeaseHeld):
            await client.lock("block", wait_s=0)
        assert await lock.renew(40) == 40

    async with client.lock("block", wait_s=0) as again:
        assert again.token > lock.token


async def test_connections_are_used_again(client: AsyncTcpClient) -> None:
    for _ in range(20):
        async with client.lock("again"):
            pass

    assert (await client.stats())[0]["connections"] == 1


async def test_waiters_are_granted_in_their_order(client: AsyncTcpClient) -> None:
    order: list[int] = []

    async def work(number: int) -> None:
        async with client.lock("line", wait_s=WAIT_S):
            order.append(number)

    async with client.lock("line"):
        tasks = []
        for number in range(3):
            tasks.append(asyncio.ensure_future(work(number)))
            await until_waiting(client, "line")
    await asyncio.gather(*tasks)

    assert order == [0, 1, 2]


async def test_a_lock_is_renewed_until_it_is_released(client: AsyncTcpClient) -> None:
    async with client.lock("kept", ttl_s=1) as lock:
        with pytest.raises(LeaseHeld):
            await client.lock("kept", wait_s=2)

        assert not lock.lost.is_set()


async def test_a_wait_that_is_cancelled_leaves_the_queue(client: AsyncTcpClient) -> None:
    async def wait() -> None:
        await client.lock("cancelled", wait_s=None)

    async with client.lock("cancelled"):
        waiting = asyncio.ensure_future(wait())
        await until_waiting(client, "cancelled")
        waiting.cancel()

    async with client.lock("cancelled", wait_s=WAIT_S):
        pass


async def test_a_lock_whose_connection_breaks_is_lost(server: LockPlane) -> None:
    async with AsyncTcpClient(at(server)) as client:
        lock = await client.lock("broken", ttl_s=1)
        for connection in list(client._used):  # As a network that breaks.
            connection.close()

        async with asyncio.timeout(WAIT_S):
            await lock.lost.wait()

        with pytest.raises(LeaseLost):
            await lock.release()
        async with client.lock("broken", wait_s=WAIT_S):
            pass


async def test_a_lock_that_is_released_elsewhere_is_lost(client: AsyncTcpClient, server: LockPlane) -> None:
    lock = await client.lock("elsewhere", ttl_s=1)
    async with server.clients(1) as (other,):
        assert await other.ask("r", "elsewhere", lock.token) == "ok"

        with pytest.raises(LeaseLost):
            async with lock:
                async with asyncio.timeout(WAIT_S):
                    await lock.lost.wait()


class FallsSilent:
    """A server that grants a lock for a second and answers nothing after that."""

    def __init__(self) -> None:
        self._bound = socket.create_server(("127.0.0.1", 0))
        host, port = self._bound.getsockname()
        self.address = f"{host}:{port}"
        self._accepted: list[socket.socket] = []
        self._thread = Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        accepted, _ = self._bound.accept()
        self._accepted.append(accepted)
        with accepted.makefile("rb") as lines:
            for _ in range(3):
                lines.readline()
        accepted.sendall(b"ok token 1\n")

    def close(self) -> None:
        self._thread.join()
        for one in (self._bound, *self._accepted):
            one.close()


@pytest.fixture
def silent() -> Iterator[str]:
    server = FallsSilent()
    yield server.address
    server.close()


PATIENT = TcpOptions(timeout_s=2 * WAIT_S)


async def test_a_lock_is_lost_with_its_lease_when_the_server_falls_silent(silent: str) -> None:
    """Not when the renewal has waited for as long as an answer may take."""
    async with AsyncTcpClient(silent, options=PATIENT) as client:
        lock = await client.lock("silent", ttl_s=1)

        async with asyncio.timeout(WAIT_S):
            await lock.lost.wait()

        with pytest.raises(LeaseLost):
            await lock.release()


def test_a_lock_of_the_blocking_twin_is_lost_with_its_lease(silent: str) -> None:
    with TcpClient(silent, options=PATIENT) as client:
        lock = client.lock("silent", ttl_s=1)

        assert lock.lost.wait(WAIT_S)

        with pytest.raises(LeaseLost):
            lock.release()


async def test_a_semaphore_has_so_many_slots(client: AsyncTcpClient) -> None:
    async with client.semaphore("pool", 2), client.semaphore("pool", 2, ttl_s=9) as slot:
        assert slot.ttl_s == 9
        with pytest.raises(LeaseHeld):
            await client.semaphore("pool", 2, wait_s=0)
        with pytest.raises(RequestRefused, match="limit_mismatch"):
            await client.semaphore("pool", 3, wait_s=0)


@pytest.mark.parametrize("limit", [1, 2])
async def test_the_two_phases_keep_the_place_of_the_first(client: AsyncTcpClient, limit: int) -> None:
    held = [await client.semaphore("two", limit) for _ in range(limit)]
    async with client.enqueue("two", limit, ttl_s=20) as place:
        assert not place.is_granted
        for one in held:
            await one.release()

        async with await place.wait() as lock:
            assert lock.ttl_s == 20

    async with client.enqueue("two", limit) as place:
        assert place.is_granted
    async with client.semaphore("two", limit, wait_s=WAIT_S):
        pass


async def test_a_place_that_was_waited_for_in_vain_is_gone(client: AsyncTcpClient) -> None:
    async with client.lock("vain"), client.enqueue("vain") as place:
        with pytest.raises(LeaseHeld):
            await place.wait(wait_s=0)
        with pytest.raises((NotFound, TransportFailed)):
            await place.wait(wait_s=0)


async def test_signals_come_to_listeners_of_the_pattern(client: AsyncTcpClient) -> None:
    async with client.signals("orders.*") as signals, client.signals("orders.new", group="g") as grouped:
        assert await client.signal("orders.new", "  a b ") == 2
        assert await client.signal("orders.old", "x") == 1

        assert [(await anext(signals)).payload for _ in range(2)] == ["  a b ", "x"]
        assert (await anext(grouped)).channel == "orders.new"


async def test_signals_go_on_after_the_connection_broke(client: AsyncTcpClient) -> None:
    async with client.signals("again") as signals:
        for connection in list(signals._connections.values()):  # As a network that breaks.
            connection.close()

        while not await client.signal("again", "x"):  # noqa: ASYNC110  # Seen by its count only.
            await asyncio.sleep(POLL_S)

        assert (await anext(signals)).payload == "x"


async def test_closing_signals_ends_their_reader(client: AsyncTcpClient) -> None:
    signals = client.signals("closing")
    async with signals:
        reading = asyncio.ensure_future(anext(signals, None))

    assert await reading is None


async def test_a_pattern_that_is_none_is_refused(client: AsyncTcpClient) -> None:
    with pytest.raises(RequestRefused):
        async with client.signals("a.>.b"):
            pass


async def test_listening_at_a_server_of_another_protocol_fails() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with (
        await asyncio.start_server(refuse, "127.0.0.1", 0) as stranger,
        AsyncTcpClient(f"127.0.0.1:{stranger.sockets[0].getsockname()[1]}") as client,
    ):
        with pytest.raises(UnexpectedAnswer):
            async with asyncio.timeout(WAIT_S), client.signals("any"):
                pass


async def test_each_key_has_its_server_by_crc32() -> None:
    async with lock_plane() as one, lock_plane() as two, AsyncTcpClient(at(one), at(two)) as client:
        keys = [f"key-{number}" for number in range(8)]
        locks = [await client.lock(key) for key in keys]

        stats = await client.stats()

        found = [sorted(lock["key"] for lock in told["locks"]) for told in stats]
        assert found == [[key for key in keys if crc32(key.encode()) % 2 == shard] for shard in (0, 1)]
        assert all(found)
        async with client.signals("wide.>") as signals:
            channels = [f"wide.{number}" for number in range(8)]
            for channel in channels:
                assert await client.signal(channel, "x") == 1
            assert sorted([(await anext(signals)).channel for _ in channels]) == channels
        for lock in locks:
            await lock.release()


async def test_a_token_is_sent_first() -> None:
    async with lock_plane(tcp_auth_token="secret") as server:
        async with AsyncTcpClient(at(server), options=TcpOptions(token="secret")) as client:
            async with client.lock("auth"):
                await client.ping()
        for token in ("", "wrong"):
            async with AsyncTcpClient(at(server), options=TcpOptions(token=token)) as client:
                with pytest.raises(Forbidden):
                    await client.lock("auth")


async def test_tls_is_spoken_with_a_context(tmp_path: Path) -> None:
    authority = Authority()
    bundle, trusted = tmp_path / "server.pem", tmp_path / "ca.pem"
    bundle.write_bytes(b"".join([pem(part) for part in authority.issue("localhost")]))
    trusted.write_bytes(pem(authority.certificate))
    context = ssl.create_default_context(cafile=str(trusted))
    context.check_hostname = False
    async with lock_plane(tcp_tls_cert=bundle, tcp_tls_key=bundle) as server:
        async with AsyncTcpClient(at(server), options=TcpOptions(tls=context)) as client:
            async with client.lock("tls"), client.signals("tls") as signals:
                assert await client.signal("tls", "x") == 1
                assert (await anext(signals)).payload == "x"

        def lock_once() -> int:
            with (
                TcpClient(at(server), options=TcpOptions(tls=context)) as blocking,
                blocking.lock("tls", ttl_s=7) as lock,
            ):
                return lock.ttl_s

        assert await asyncio.to_thread(lock_once) == 7
        async with AsyncTcpClient(at(server), options=TcpOptions(timeout_s=1)) as plain:
            with pytest.raises(TransportFailed):
                await plain.lock("tls")


async def test_what_the_server_has_no_room_for_is_throttled() -> None:
    async with lock_plane(tcp_locks_max=1, tcp_waiters_max=1) as server, AsyncTcpClient(at(server)) as client:
        async with client.lock("only"):
            with pytest.raises(Throttled, match="max_locks"):
                await client.lock("other")
            async with client.enqueue("only"):
                with pytest.raises(Throttled, match="max_waiters"):
                    await client.lock("only")


async def test_a_connection_that_the_server_closed_meanwhile_is_replaced() -> None:
    async with lock_plane(tcp_read_timeout_s=0.2) as server, AsyncTcpClient(at(server)) as client:
        await client.ping()
        async with asyncio.timeout(WAIT_S):
            while client._idle[client.servers[0]][0].is_reusable:  # noqa: ASYNC110  # Nobody is told.
                await asyncio.sleep(POLL_S)

        await client.ping()


async def test_nothing_is_sent_to_a_server_that_is_away() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    async with AsyncTcpClient(f"127.0.0.1:{port}") as client:
        with pytest.raises(TransportFailed) as failure:
            await client.lock("away")

    assert not failure.value.is_sent
    with pytest.raises(ClientClosed):
        await client.lock("away")


@pytest.mark.parametrize("key", ["", "a b", "a\nb", "k" * 257])
async def test_what_does_not_fit_into_a_line_is_refused_before_it_is_sent(
    client: AsyncTcpClient, key: str
) -> None:
    with pytest.raises(InvalidArgument):
        await client.lock(key)


@pytest.mark.parametrize("text", ["", ":1", "host:x", "host:99999", "[::1]:x"])
def test_a_server_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        TcpClient(text or ":")


def test_the_blocking_twin_locks_waits_and_renews(blocking: TcpClient) -> None:
    with blocking.lock("sync-tcp", ttl_s=1) as lock:
        waiting = started(lambda: blocking.lock("sync-tcp", wait_s=WAIT_S))
        with pytest.raises(LeaseHeld):
            blocking.lock("sync-tcp", wait_s=2)
        assert not waiting.done()
        assert not lock.lost.is_set()

    with waiting.result(WAIT_S) as after:
        assert after.token > lock.token


def test_the_blocking_twin_hears_signals(blocking: TcpClient) -> None:
    with blocking.signals("sync-tcp.*") as signals:
        assert blocking.signal("sync-tcp.one", "x") == 1
        assert next(signals).payload == "x"
        reading = started(lambda: next(signals, None))
        signals.close()

        assert reading.result(WAIT_S) is None


def test_the_blocking_twin_has_two_phases(blocking: TcpClient) -> None:
    held = blocking.lock("sync-two")
    with blocking.enqueue("sync-two") as place:
        held.release()
        with place.wait() as lock:
            assert lock.key == "sync-two"
