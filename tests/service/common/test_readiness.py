"""Connections in an epoll set of our own behave as those of the loop: every edge of `SocketTransport`, over real sockets."""

import asyncio
import errno
import gc
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from holdfast.common.serving import readiness
from holdfast.common.serving.readiness import (
    READ_BYTES_MIN,
    UNSENT_BYTES_HIGH,
    ReadinessSet,
    SocketListener,
    SocketTransport,
)

LARGE = 8 << 20


class Served(asyncio.Protocol):
    """What a connection was told, in order."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.received = bytearray()
        self.stays_half_closed = False
        self.on_made: Callable[[], None] = lambda: None
        self.on_data: Callable[[bytes], None] = lambda data: None
        self.lost = asyncio.get_running_loop().create_future()
        self.resumed = asyncio.Event()
        self.got_eof = asyncio.Event()
        self.got_data = asyncio.Event()
        self.peer_has_finished = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SocketTransport)
        self.transport = transport
        self.told.append("made")
        self.on_made()

    def pause_reading(self) -> None:
        self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.got_data.set()
        self.on_data(data)

    def eof_received(self) -> bool:
        self.told.append("eof")
        self.got_eof.set()
        return self.stays_half_closed

    def peer_finished(self) -> None:
        self.told.append("finished")
        self.peer_has_finished.set()

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")
        self.resumed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append("lost")
        self.lost.set_result(exc)


class Site:
    """A listener whose connections are kept."""

    def __init__(self) -> None:
        self.served: list[Served] = []
        self.came = asyncio.Event()
        self.prepare: Callable[[Served], None] = lambda served: None
        self.bound = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self.bound.getsockname()
        self.readiness = ReadinessSet(asyncio.get_running_loop())
        self.listener = SocketListener(self.readiness, self.bound, self._protocol, 16)

    def _protocol(self) -> Served:
        served = Served()
        self.prepare(served)
        self.served.append(served)
        self.came.set()
        return served

    @asynccontextmanager
    async def client(self) -> AsyncIterator[tuple[socket.socket, Served]]:
        """A connection, both ends of it."""
        self.came.clear()
        loop = asyncio.get_running_loop()
        with socket.socket() as peer:
            peer.setblocking(False)
            await loop.sock_connect(peer, self.address)
            await asyncio.wait_for(self.came.wait(), 10)
            yield peer, self.served[-1]

    def close(self) -> None:
        self.listener.close()
        for served in self.served:
            served.transport.abort()
        self.readiness.close()
        self.bound.close()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    yield site
    site.close()


async def lost(served: Served) -> Exception | None:
    error: Exception | None = await asyncio.wait_for(served.lost, 10)
    return error


async def received(peer: socket.socket) -> bytes:
    """All that comes until the end."""
    loop, parts = asyncio.get_running_loop(), []
    while part := await asyncio.wait_for(loop.sock_recv(peer, 1 << 20), 10):
        parts.append(part)
    return b"".join(parts)


async def test_what_was_sent_with_the_connection_is_read_and_answered(site: Site) -> None:
    def prepare(served: Served) -> None:
        def answer(data: bytes) -> None:
            served.transport.write(data.upper())

        served.on_data = answer

    site.prepare = prepare
    async with site.client() as (peer, _):
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(peer, b"hello")

        assert await asyncio.wait_for(loop.sock_recv(peer, 100), 10) == b"HELLO"


async def test_a_large_body_comes_whole_in_larger_and_larger_pieces(site: Site) -> None:
    sizes: list[int] = []

    def note(data: bytes) -> None:
        sizes.append(len(data))

    site.prepare = lambda served: setattr(served, "on_data", note)
    async with site.client() as (peer, served):
        await asyncio.get_running_loop().sock_sendall(peer, bytes(LARGE))
        peer.shutdown(socket.SHUT_WR)
        await lost(served)

        assert len(served.received) == LARGE
        assert max(sizes) > READ_BYTES_MIN


async def test_a_client_that_does_not_read_holds_the_writer_up_and_gets_everything_in_the_end(
    site: Site,
) -> None:
    async with site.client() as (peer, served):
        served.transport.write(bytes(LARGE))
        assert served.told == ["made", "pause"]
        assert served.transport.get_write_buffer_size() > UNSENT_BYTES_HIGH
        served.transport.write(b"more")
        served.transport.close()
        served.transport.write(b"never sent")
        assert served.transport.is_closing()

        got = await received(peer)
        assert await lost(served) is None

        assert (len(got), got[-4:]) == (LARGE + 4, b"more")
        assert served.told == ["made", "pause", "resume", "lost"]


async def test_close_tells_of_the_end_once_and_not_from_within(site: Site) -> None:
    async with site.client() as (peer, served):
        served.transport.close()
        served.transport.close()
        served.transport.abort()
        assert served.told == ["made"]

        assert await lost(served) is None
        assert await received(peer) == b""

        await asyncio.sleep(0.01)
        assert served.told == ["made", "lost"]
        assert served.transport.get_extra_info("socket") is None


async def test_abort_drops_what_is_unsent(site: Site) -> None:
    async with site.client() as (peer, served):
        served.transport.write(bytes(LARGE))
        served.transport.abort()
        await lost(served)

        try:
            got = await received(peer)
        except ConnectionResetError:
            got = b""
        assert len(got) < LARGE


async def test_the_end_of_input_closes_unless_the_protocol_stays(site: Site) -> None:
    async with site.client() as (peer, served):
        peer.shutdown(socket.SHUT_WR)
        await lost(served)
        assert served.told == ["made", "eof", "lost"]

    site.prepare = lambda served: setattr(served, "stays_half_closed", True)
    async with site.client() as (peer, served):
        peer.shutdown(socket.SHUT_WR)
        await asyncio.wait_for(served.got_eof.wait(), 10)
        await asyncio.sleep(0.02)  # An end that is still looked at would be told of again and again.
        assert served.told == ["made", "eof"]
        served.transport.write(b"late answer")
        served.transport.close()

        assert await received(peer) == b"late answer"


async def test_a_client_that_resets_is_gone_without_an_error(site: Site) -> None:
    async with site.client() as (peer, served):
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        peer.close()

        assert await lost(served) is None


@pytest.mark.parametrize("has_sent_more", [False, True])
async def test_a_client_that_resets_is_noticed_while_nothing_is_read(site: Site, has_sent_more: bool) -> None:
    async with site.client() as (peer, served):
        served.transport.pause_reading()
        if has_sent_more:
            await asyncio.get_running_loop().sock_sendall(peer, b"another request")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        peer.close()

        assert await lost(served) is None


async def test_what_was_told_of_a_connection_is_not_taken_for_the_next_one_on_its_descriptor(
    site: Site,
) -> None:
    """All of it comes in one turn: the first client has the second one's connection closed, a third gets its descriptor."""
    site.prepare = lambda served: setattr(served, "on_made", served.pause_reading)
    async with site.client() as (first, caller), site.client() as (second, victim):
        caller.transport.resume_reading()
        caller.on_data = lambda data: victim.transport.abort()
        fd = victim.transport.get_extra_info("socket").fileno()

        first.send(b"now")
        third = socket.create_connection(site.address)
        second.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        second.close()
        taken = os.dup(first.fileno())  # Of the second client: the next one that is free is its connection's.
        await lost(victim)
        await asyncio.sleep(0.02)

        newest = site.served[-1]
        assert newest.told == ["made"]
        assert newest.transport.get_extra_info("socket").fileno() == fd
        third.close()
        os.close(taken)


async def test_a_half_closed_client_that_resets_is_noticed(site: Site) -> None:
    site.prepare = lambda served: setattr(served, "stays_half_closed", True)
    async with site.client() as (peer, served):
        peer.shutdown(socket.SHUT_WR)
        await asyncio.wait_for(served.got_eof.wait(), 10)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        peer.close()

        assert await lost(served) is None


@pytest.mark.parametrize("unread", [b"", b"another request"])
async def test_the_end_of_input_is_told_once_while_nothing_is_read(site: Site, unread: bytes) -> None:
    """And again when it is read: what stands in front of it comes first."""
    site.prepare = lambda served: setattr(served, "stays_half_closed", True)
    async with site.client() as (peer, served):
        served.transport.pause_reading()
        await asyncio.get_running_loop().sock_sendall(peer, unread)
        peer.shutdown(socket.SHUT_WR)
        await asyncio.wait_for(served.peer_has_finished.wait(), 10)
        await asyncio.sleep(0.02)  # As above.
        assert served.told == ["made", "finished"]
        assert not served.received

        served.transport.resume_reading()
        await asyncio.wait_for(served.got_eof.wait(), 10)

        assert served.received == unread
        assert served.told == ["made", "finished", "eof"]


async def test_a_protocol_that_cannot_be_made_costs_its_connection_alone(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(served: Served) -> None:
        raise KeyError("a defect")

    site.prepare = refuse
    with socket.socket() as peer:
        peer.setblocking(False)
        await asyncio.get_running_loop().sock_connect(peer, site.address)
        assert await received(peer) == b""
    site.prepare = lambda served: None
    async with site.client() as (_, served):
        assert served.told == ["made"]

    assert "server.connection.failed" in capsys.readouterr().err


async def test_what_has_come_before_the_listener_closes_is_accepted(site: Site) -> None:
    peers = [socket.create_connection(site.address) for _ in range(10)]
    site.listener.close()
    try:
        assert len(site.served) == len(peers)
    finally:
        for peer in peers:
            peer.close()


async def test_paused_reading_leaves_the_bytes_with_the_client(site: Site) -> None:
    async with site.client() as (peer, served):
        served.transport.pause_reading()
        await asyncio.get_running_loop().sock_sendall(peer, b"early")
        await asyncio.sleep(0.02)
        assert not served.received
        assert not served.transport.is_reading()

        served.transport.resume_reading()
        await asyncio.wait_for(served.got_data.wait(), 10)

        assert served.received == b"early"


async def test_the_end_of_output_is_sent_behind_what_is_unsent(site: Site) -> None:
    async with site.client() as (peer, served):
        served.transport.write(bytes(LARGE))
        served.transport.write_eof()
        served.transport.write_eof()

        assert len(await received(peer)) == LARGE
        assert not served.transport.is_closing()


async def test_a_protocol_that_fails_loses_its_connection_and_no_other(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(data: bytes) -> None:
        raise KeyError("a defect")

    async with site.client() as (peer, served), site.client() as (other_peer, other):
        served.on_data = fail
        await asyncio.get_running_loop().sock_sendall(peer, b"x")
        assert isinstance(await lost(served), KeyError)
        await asyncio.get_running_loop().sock_sendall(other_peer, b"y")
        await asyncio.wait_for(other.got_data.wait(), 10)

    assert "server.connection.failed" in capsys.readouterr().err


async def test_no_room_for_another_connection_makes_the_listener_wait_and_not_spin(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "ACCEPT_PAUSE_S", 0.05)
    asked = 0
    bound = site.bound

    class Full:
        family = bound.family

        def fileno(self) -> int:
            return bound.fileno()

        def _accept(self) -> tuple[int, object]:
            nonlocal asked
            asked += 1
            if asked == 1:
                raise OSError(errno.EMFILE, "too many open files")
            return bound._accept()  # type: ignore[attr-defined, no-any-return]

    monkeypatch.setattr(site.listener, "_bound", Full())
    async with site.client() as (_, served):
        assert served.told == ["made"]

    assert asked in (2, 3)  # The failure, the connection, and that there is no other.


async def test_a_connection_that_is_over_needs_no_collector(site: Site) -> None:
    async with site.client() as (_, served):
        served.transport.get_extra_info("socket")
    await lost(served)
    gc.collect()
    gc.disable()
    try:
        site.served.clear()
        del served
        await asyncio.sleep(0.01)
        left = [one for one in gc.get_objects() if isinstance(one, Served | SocketTransport)]
    finally:
        gc.enable()

    assert left == []
