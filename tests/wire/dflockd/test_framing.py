"""What the lines of a connection may look like, and who is answered when it ends: what no recording shows."""

import asyncio
from pathlib import Path

import pytest

from tests.wire.dflockd.conftest import ANSWER_S_MAX, Client, lock_plane

MORE_THAN_A_TURN = 1000
"""Requests that no server answers before it reads again."""


async def whole(client: Client, data: bytes) -> bytes:
    """All that is answered to this, as `printf … | nc` would show it."""
    await client.send(data)
    client.end()
    return await client.rest()


async def alone(client: Client) -> None:
    """Return when it is the only one that is connected."""
    async with asyncio.timeout(ANSWER_S_MAX):
        while '"connections":1,' not in await client.ask("stats"):
            continue


async def test_all_requests_before_a_line_too_long_are_answered() -> None:
    async with lock_plane() as plane, plane.clients(1) as (client,):
        await client.send(b"ping\n_\n_\n" * MORE_THAN_A_TURN + b"l\n" + b"k" * 257 + b"\n0\n")

        for _ in range(MORE_THAN_A_TURN):
            assert await client.line() == b"ok\n"
        assert await client.line() == b"error\n"
        assert await client.is_closed()


@pytest.mark.parametrize("is_durable", [False, True])
async def test_a_client_that_ends_its_side_gets_all_its_answers(tmp_path: Path, is_durable: bool) -> None:
    async with (
        lock_plane(store=f"disk://{tmp_path}/store", tcp_durable=is_durable) as plane,
        plane.clients(4) as (one, willing, many, unfinished),
    ):
        assert (await whole(willing, b"l\nfree\n30\nn\nfree\nx\n")).endswith(b" 33\nerror\n")
        assert (await whole(one, b"l\njob\n0\n")).startswith(b"ok ")
        assert await whole(many, b"ping\n_\n_\n" * MORE_THAN_A_TURN) == b"ok\n" * MORE_THAN_A_TURN
        assert await whole(unfinished, b"ping\n_\n_\nl\nk\n0") == b"ok\n"


@pytest.mark.parametrize("is_durable", [False, True])
async def test_a_client_that_ends_its_side_does_not_wait(tmp_path: Path, is_durable: bool) -> None:
    """A waiter is gone with its connection; what stands behind the request that waits is not answered either."""
    async with (
        lock_plane(store=f"disk://{tmp_path}/store", tcp_durable=is_durable) as plane,
        plane.clients(3) as (holder, piping, waiter),
    ):
        token = await holder.lock("job")
        await waiter.send(b"l\njob\n30\n")
        pings = b"ping\n_\n_\n" * MORE_THAN_A_TURN
        assert await whole(piping, pings + b"l\njob\n30\n" + pings) == b"ok\n" * MORE_THAN_A_TURN

        assert await holder.ask("r", "job", token) == "ok"
        assert (await waiter.line()).startswith(b"ok ")


@pytest.mark.parametrize("is_durable", [False, True])
async def test_what_a_client_held_is_free_when_it_ends_its_side(tmp_path: Path, is_durable: bool) -> None:
    async with (
        lock_plane(store=f"disk://{tmp_path}/store", tcp_durable=is_durable) as plane,
        plane.clients(2) as (piping, other),
    ):
        pings = b"ping\n_\n_\n" * MORE_THAN_A_TURN
        assert (await whole(piping, b"l\njob\n0\n" + pings)).endswith(b"ok\n" * MORE_THAN_A_TURN)
        assert await other.lock("job", "5")


@pytest.mark.parametrize(
    ("before", "size", "is_closed"),
    [
        (b"", 256, False),
        (b"", 257, True),
        (b"l\n", 256, False),
        (b"l\n", 257, True),
        (b"signal\nnews\n", 256, False),
        (b"signal\nnews\n", 257, True),
    ],
)
@pytest.mark.parametrize("end", [b"", b"\r", b"\r\r"])
async def test_a_line_has_256_bytes_with_its_carriage_returns(
    before: bytes, size: int, is_closed: bool, end: bytes
) -> None:
    async with lock_plane() as plane, plane.clients(1) as (client,):
        line = b"x" * (size - len(end)) + end + b"\n"
        after = {b"": b"k\n0\n", b"l\n": b"0\n", b"signal\nnews\n": b""}[before]
        await client.send(before + line)
        if not is_closed:
            await client.send(after)
            assert (await client.line()).startswith(b"error" if not before else b"ok")
            assert await client.ask("ping") == "ok"
        else:
            # As soon as the line ends, whether the rest of its request is there or not.
            assert await client.line() == b"error\n"
            assert await client.is_closed()


async def test_each_way_of_cutting_a_request_into_pieces_is_the_same_request() -> None:
    data = b"sl\r\nkey\r\n 0\t 2  7 \r\nping\n_\n_\n"
    async with lock_plane() as plane, plane.clients(1) as (client,):
        for cut in range(1, len(data)):
            await client.send(data[:cut])
            await asyncio.sleep(0)
            await client.send(data[cut:])
            status, *rest = (await client.line()).split()
            assert (status, rest[-1:]) == (b"ok", [b"7"]) or (status, rest) == (b"timeout", [])
            assert await client.line() == b"ok\n"


@pytest.mark.parametrize(
    ("command", "argument", "answer"),
    [
        ("l", "+0", "ok"),
        ("l", "-0", "ok"),
        ("l", "007", "ok"),
        ("l", "0 +9", "ok"),
        ("l", "0\t9", "ok"),
        ("l", "0  9 ", "ok"),
        ("l", "9223372036854775807", "ok"),
        ("l", "9223372036854775808", "error"),
        ("l", "0 9223372036854775808", "error"),
        ("l", "0x10", "error"),
        ("l", "1_0", "error"),
        ("l", "1e3", "error"),
        ("l", "+", "error"),
        ("l", "--1", "error"),
        ("l", "+-1", "error"),
        ("l", "٣", "error"),
        ("l", " ", "error"),
        ("l", "0,9", "error"),
        ("e", "\t ", "acquired"),
        ("e", "+5", "acquired"),
        ("e", "-5", "error"),
        ("se", "2 -1", "error"),
        ("se", "-1", "error"),
        ("se", "2147483648", "acquired"),
        ("sl", "0 1 1 1", "error"),
        ("n", "token 5 5", "error"),
        ("incr", "+7", "ok 7"),
        ("incr", " 7 ", "ok 7"),
        ("incr", "7 7", "error"),
        ("incr", "9223372036854775808", "error"),
        ("decr", "-9223372036854775808", "error"),
        ("decr", "9223372036854775807", "ok -9223372036854775807"),
        ("cset", "-9223372036854775808", "ok"),
        ("lrange", "0", "error"),
        ("lrange", "0 1 2", "error"),
        ("lrange", "+0 -1", "ok []"),
        ("listen", "a group", "error"),
        ("listen", " group ", "ok"),
    ],
)
async def test_numbers_and_blanks_are_read_as_dflockd_reads_them(
    command: str, argument: str, answer: str
) -> None:
    async with lock_plane() as plane, plane.clients(1) as (client,):
        told = await client.ask(command, "key", argument)

        assert told == answer or (answer in ("ok", "acquired") and told.split()[0] == answer)


@pytest.mark.parametrize("key", ["a b", "a\tb", "a\rb", "", "\r"])
@pytest.mark.parametrize("command", ["l", "ping", "signal", "kset", "listen"])
async def test_a_key_has_no_blanks(command: str, key: str) -> None:
    async with lock_plane() as plane, plane.clients(1) as (client,):
        assert await client.ask(command, key, "0") == "error"
        assert await client.ask("ping") == "ok"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (b" x ", b" x "),
        (b"x\r\r", b"x"),
        (b"a\rb", b"a\rb"),
        (b"\tx", b"\tx"),
        (b"\xff\xfe", b"\xff\xfe"),
        (b"x -1", b"x -1"),
        (b"x 1.5", b"x 1.5"),
        (b"x +60", b"x"),
        (b"x  60", b"x "),
        (b"42", b"42"),
        (b"x\t60", b"x\t60"),
        (b"x ", b"x "),
    ],
)
async def test_values_and_payloads_are_the_raw_line(line: bytes, kept: bytes) -> None:
    async with lock_plane() as plane, plane.clients(2) as (client, listener):
        await client.send(b"kset\nk\n" + line + b"\n")
        assert await client.line() == b"ok\n"
        await client.send(b"kget\nk\n\n")
        assert await client.line() == b"ok " + kept + b"\n"
        assert await listener.ask("listen", "news") == "ok"
        for command, answer in ((b"rpush", b"ok 1"), (b"lpop", b"ok " + line.rstrip(b"\r"))):
            await client.send(command + b"\nlist\n" + line + b"\n")
            assert await client.line() == answer + b"\n"
        await client.send(b"signal\nnews\n" + line + b"\n")
        assert await client.line() == b"ok 1\n"
        assert await listener.line() == b"sig news " + line.rstrip(b"\r") + b"\n"


async def test_a_wait_begins_the_lease_anew_as_the_enqueue_asked_for_it() -> None:
    """A renewal in between has its own time."""
    async with lock_plane() as plane, plane.clients(1) as (client,):
        _, token, _ = (await client.ask("e", "job", "20")).split()
        assert await client.ask("n", "job", f"{token} 50") == "ok 50"

        assert await client.ask("w", "job", "0") == f"ok {token} 20"


async def test_a_wait_of_any_length_ends_with_the_grant() -> None:
    async with lock_plane() as plane, plane.clients(2) as (holder, waiter):
        token = await holder.lock("job")
        await waiter.send(b"l\njob\n9223372036854775807 9223372036854775807\n")
        while '"waiters":1' not in await holder.ask("stats"):
            continue
        assert await holder.ask("r", "job", token) == "ok"
        assert (await waiter.line()).endswith(b" 9223372036854775807\n")


@pytest.mark.parametrize("secret", [b"s3cret", b" s3cret\t", b"s3cret\r"])
async def test_requests_behind_the_secret_are_served(secret: bytes) -> None:
    async with lock_plane(tcp_auth_token="s3cret") as plane, plane.clients(2) as (client, piping):
        await client.send(b"auth\n_\n" + secret + b"\nl\njob\n0\nauth\n_\ns3cret\nping\n_\n_\n")
        assert await client.line() == b"ok\n"
        assert (await client.line()).startswith(b"ok ")
        assert await client.line() == b"error\n"
        assert await client.line() == b"ok\n"
        assert await whole(piping, b"auth\n\n" + secret + b"\nl\njob\n0\n") == b"ok\ntimeout\n"


@pytest.mark.parametrize(
    "first", [b"auth\n_\nS3CRET\n", b"auth\n_\n\n", b"ping\n_\n_\n", b"Auth\n_\ns3cret\n", b"x" * 257 + b"\n"]
)
async def test_requests_behind_anything_but_the_secret_are_not_served(first: bytes) -> None:
    async with lock_plane(tcp_auth_token="s3cret") as plane, plane.clients(2) as (client, other):
        assert await whole(client, first + b"l\njob\n0\nauth\n_\ns3cret\n") == b"error_auth\n"
        assert await other.ask("auth", "_", "s3cret") == "ok"
        assert await other.lock("job")


async def test_lines_that_trickle_in_have_their_time_each() -> None:
    async with lock_plane(tcp_read_timeout_s=0.5) as plane, plane.clients(2) as (steady, trickling):
        for part in (b"l\n", b"key\n", b"0\n"):
            await asyncio.sleep(0.3)
            await steady.send(part)
        assert (await steady.line()).startswith(b"ok ")
        await trickling.send(b"l\n")
        trickle = asyncio.create_task(_trickle(trickling))

        assert await trickling.line(2) == b"error\n"  # Bytes without an end of line do not count.
        assert await trickling.is_closed()
        await trickle


async def _trickle(client: Client) -> None:
    try:
        for _ in range(100):
            await client.send(b"k")
            await asyncio.sleep(0.02)
    except ConnectionError:
        return


# -- clients that do not take what is sent to them


async def test_an_answer_that_cannot_be_written_ends_the_connection() -> None:
    async with lock_plane(tcp_write_timeout_s=0.2) as plane, plane.clients(1) as (other,):
        for _ in range(200):
            await other.ask("rpush", "list", "x" * 240)
        async with plane.deaf_client() as deaf:
            assert await deaf.ask("ping") == "ok"
            deaf.stop_reading()
            await deaf.send(b"lrange\nlist\n0 -1\n")  # About 50 KB, of which the kernel keeps some.

            await alone(other)


async def test_a_listener_gets_in_order_what_was_counted_for_it() -> None:
    """So many wait for it; what finds no room is not counted, and it is not cut off for that."""
    async with lock_plane(tcp_write_timeout_s=0.2) as plane, plane.clients(2) as (sender, reading):
        async with plane.deaf_client() as deaf:
            assert await deaf.ask("listen", "flood") == "ok"
            assert await reading.ask("listen", "flood") == "ok"
            deaf.stop_reading()
            taken: list[bytes] = []
            lost = 0
            while lost < 100:
                payload = b"%05d" % (len(taken) + lost) + b"x" * 200
                served = await sender.ask("signal", "flood", payload.decode())
                if served == "ok 2":
                    taken.append(payload)
                else:
                    assert served == "ok 1"
                    lost += 1
                assert await reading.line() == b"sig flood " + payload + b"\n"
            await asyncio.sleep(0.3)  # Longer than an answer may take to be written.
            deaf.go_on_reading()
            for payload in taken:
                assert await deaf.line() == b"sig flood " + payload + b"\n"
            assert await sender.ask("signal", "flood", "again") == "ok 2"
            assert await deaf.line() == b"sig flood again\n"
            assert await deaf.ask("ping") == "ok"


async def test_a_signal_goes_to_the_next_member_while_one_is_full() -> None:
    signals = 900
    async with lock_plane() as plane, plane.clients(3) as (sender, first, last):
        async with plane.deaf_client() as deaf:
            for client in (first, deaf, last):
                assert await client.ask("listen", "jobs", "pool") == "ok"
            deaf.stop_reading()
            for number in range(signals):
                assert await sender.ask("signal", "jobs", f"{number:05}" + "x" * 200) == "ok 1"
            deaf.go_on_reading()

            shares = [await _numbers(client) for client in (first, deaf, last)]

            assert sorted(number for share in shares for number in share) == list(range(signals))
            assert all(share == sorted(share) for share in shares)
            assert 0 < len(shares[1]) < signals // 3 < min(len(shares[0]), len(shares[2]))


async def _numbers(client: Client) -> list[int]:
    """Those of all signals that came before the answer to a ping."""
    await client.send(b"ping\n_\n_\n")
    found: list[int] = []
    while (line := await client.line()) != b"ok\n":
        found.append(int(line.removeprefix(b"sig jobs ")[:5]))
    return found


async def test_a_closed_connection_that_takes_nothing_is_forgotten() -> None:
    """What is still to be sent to it does not keep it."""
    async with lock_plane(tcp_write_timeout_s=0.2, tcp_read_timeout_s=0.2) as plane:
        async with plane.deaf_client() as deaf, plane.clients(1) as (sender,):
            assert await deaf.ask("listen", "flood") == "ok"
            deaf.stop_reading()
            while await sender.ask("signal", "flood", "x" * 200) == "ok 1":
                continue

            await alone(sender)
