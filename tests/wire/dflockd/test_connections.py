"""Connections that end, stall, flood or lie: what the others see of it."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import httpx
import pytest

from holdfast.leases.layer.locks.service import LockService
from holdfast.leases.protocol.dflockd.server import LockServer
from tests.wire.dflockd.conftest import ANSWER_S_MAX, LockPlane, lock_plane, tls_plane


async def waiting(plane: LockPlane, count: int) -> None:
    """Return when so many wait for a lock."""
    async with plane.clients(1) as (client,):
        while f'"waiters":{count}}}' not in await client.ask("stats"):
            continue


async def test_the_end_of_a_waiter_is_noticed_while_it_waits() -> None:
    async with lock_plane() as plane, plane.clients(4) as (holder, half_closed, reset, living):
        token = await holder.lock("job")
        for client in (half_closed, reset, living):
            await client.send(b"l\njob\n30\n")
        await waiting(plane, 3)
        half_closed.end()
        reset.abort()
        await waiting(plane, 1)

        assert await holder.ask("r", "job", token) == "ok"
        assert (await living.line()).startswith(b"ok ")


async def test_pipelined_requests_behind_a_grant_go_on_in_a_chain() -> None:
    """Each grant is released by the request behind it, which makes the next grant."""
    async with lock_plane() as plane, plane.clients(301) as (holder, *waiters):
        token = await holder.lock("job")
        for client in waiters:
            await client.send(b"l\njob\n30\nping\n_\n_\n")
        await waiting(plane, 300)
        await holder.ask("r", "job", token)

        for client in waiters:
            status, token, _ = (await client.line()).decode().split()
            assert status == "ok"
            assert await client.line() == b"ok\n"
            client.close()


async def test_a_line_without_end_is_not_kept() -> None:
    async with lock_plane() as plane, plane.clients(2) as (flooding, other):
        for _ in range(64):
            await flooding.send(b"x" * 65536)
        assert await other.ask("ping") == "ok"

        await flooding.send(b"\n")

        assert await flooding.line() == b"error\n"
        assert await flooding.is_closed()


async def test_requests_behind_one_that_blocks_are_read_only_so_far() -> None:
    async with lock_plane() as plane, plane.clients(2) as (holder, flooding):
        token = await holder.lock("job")
        pings = 100_000
        await flooding.send(b"l\njob\n30\n")
        sending = asyncio.create_task(flooding.send(b"ping\n_\n_\n" * pings))
        await waiting(plane, 1)

        assert await holder.ask("r", "job", token) == "ok"

        assert (await flooding.line()).startswith(b"ok ")
        for _ in range(pings):
            assert await flooding.line() == b"ok\n"
        await sending


@pytest.mark.parametrize("pings", [30_000, 65_000])
@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_a_waiter_that_closes_behind_many_requests_is_noticed(
    tmp_path: Path, is_encrypted: bool, pings: int
) -> None:
    """Of 65,000 the server reads no more while the first one waits. Its lease would outlast it."""
    opened = partial(tls_plane, tmp_path) if is_encrypted else lock_plane
    async with (
        opened(tcp_auto_release=False, shutdown_timeout_s=0.1) as plane,
        plane.clients(3) as (holder, closing, living),
    ):
        token = await holder.lock("job")
        await closing.send(b"l\njob\n300 300\n" + b"ping\n_\n_\n" * pings)
        await waiting(plane, 1)
        await living.send(b"l\njob\n300\n")
        await waiting(plane, 2)

        closing.abort()

        async with asyncio.timeout(ANSWER_S_MAX):
            await waiting(plane, 1)
        assert await holder.ask("r", "job", token) == "ok"
        assert (await living.line()).startswith(b"ok ")


async def test_a_listener_that_does_not_read_loses_signals_and_delays_no_one() -> None:
    async with lock_plane() as plane, plane.clients(3) as (sender, deaf, living):
        assert await deaf.ask("listen", "flood") == "ok"
        assert await living.ask("listen", "flood") == "ok"
        deaf.stop_reading()
        served = 2
        while served == 2:  # Until what the kernel keeps for it is full, too.
            for _ in range(1000):
                served = int((await sender.ask("signal", "flood", "x" * 200)).removeprefix("ok "))
                assert await living.line() == b"sig flood " + b"x" * 200 + b"\n"

        assert served == 1


async def test_an_authenticated_connection_over_tls(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(" s3cret\n")
    settings = {"tcp_auth_token_file": secret, "tcp_write_timeout_s": 0.2}
    async with tls_plane(tmp_path, **settings) as plane, plane.clients(1) as (client,):
        assert await client.ask("auth", "_", "s3cret") == "ok"
        assert await client.lock("job")
        await asyncio.sleep(0.4)  # What was written long ago holds up nothing.
        await client.send(b"ping\n_\n_\n" * 2000)
        for _ in range(2000):
            assert await client.line() == b"ok\n"


class Timers:
    """In place of a loop: what was to be called, and when."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay_s: float, call: Callable[..., None], *arguments: object) -> asyncio.Handle:
        self.calls.append((delay_s, partial(call, *arguments)))
        return asyncio.Handle(call, arguments, asyncio.get_running_loop())


class Written(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.data += bytes(data)

    def close(self) -> None:
        self.is_closed = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Everything is taken at once."""


async def test_one_that_does_not_authenticate_is_answered_at_once_and_cut_off_a_moment_later() -> None:
    """So that nobody guesses quickly. By the clock of the loop, which is a list here."""
    server, timers, transport = LockServer(secret=b"s3cret"), Timers(), Written()
    server.service = LockService()
    server._loop = cast(asyncio.AbstractEventLoop, timers)
    connection = server.connection()
    connection.connection_made(transport)
    timers.calls.clear()

    connection.data_received(b"auth\n_\nguess\nauth\n_\ns3cret\n")

    assert (transport.data, transport.is_closed) == (b"error_auth\n", False)
    ((delay_s, close),) = timers.calls
    assert delay_s >= 0.1
    close()
    assert transport.is_closed


async def test_what_is_asked_while_the_server_stops() -> None:
    """Recording C61: waiters are told at once, what needs no wait is answered until the server is gone."""
    async with lock_plane(shutdown_timeout_s=1.5) as plane, plane.clients(3) as (holder, waiter, queued):
        await holder.lock("job")
        assert await queued.ask("e", "job") == "queued"
        await waiter.send(b"l\njob\n30\nping\n_\n_\n")
        await waiting(plane, 2)

        plane.server.request_stop()

        assert await waiter.line() == b"error\n"
        assert await waiter.line() == b"ok\n"
        assert '"owner_conn_id":1' in await holder.ask("stats")
        assert await waiter.ask("l", "job", "30") == "error"
        assert await queued.ask("w", "job", "30") == "error"
        assert await waiter.ask("l", "job", "0") == "timeout"
        assert await waiter.lock("other", "30")
        assert await holder.is_closed()
        with pytest.raises(ConnectionRefusedError):
            await plane.connect()


async def test_new_clients_are_refused_from_the_signal_on() -> None:
    """Also while those of HTTP still have time to release what they hold."""
    async with lock_plane(shutdown_timeout_s=20) as plane, plane.clients(1) as (client,):
        async with httpx.AsyncClient(base_url=plane.url) as http:
            held = {"key": "held", "owner": "test", "ttl_seconds": 60}
            assert (await http.post("/v1/acquire", json=held)).status_code == 200

            plane.server.request_stop()

            async with asyncio.timeout(ANSWER_S_MAX):
                with pytest.raises(ConnectionRefusedError):
                    while True:
                        (await plane.connect()).close()
            assert (await http.get("/healthz")).status_code == 200
            assert await client.lock("job")
            client.close()
        plane.server.request_stop()


async def test_without_a_limit_a_stop_waits_for_its_clients() -> None:
    async with lock_plane(shutdown_timeout_s=0) as plane:
        async with plane.clients(1) as (client,):
            token = await client.lock("job")
            plane.server.request_stop()
            async with asyncio.timeout(ANSWER_S_MAX):
                with pytest.raises(ConnectionRefusedError):
                    while True:
                        (await plane.connect()).close()
            assert await client.ask("r", "job", token) == "ok"
