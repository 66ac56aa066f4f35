"""The connection between two nodes: only who has the secret of the store is listened to, and silence ends it."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from holdfast.leases.layer.locks.records import Grant, Outcome, Refused
from holdfast.leases.layer.locks.values import ValueRefused
from holdfast.leases.nodes.wire import FRAME_BYTES_MAX, PROOF_BYTES_MAX, Frame, Wire
from holdfast.leases.nodes.wire import packed as packed_outcome
from holdfast.leases.nodes.wire import unpacked as unpacked_outcome

KEY = b"k" * 32
BEAT_S = 0.05


class End(Wire):
    def __init__(self, key: bytes, *, accepts: bool) -> None:
        super().__init__(key, BEAT_S, accepts=accepts)
        self.frames: list[Frame] = []
        self.is_heard = asyncio.Event()
        self.is_ready = asyncio.Event()
        self.has_ended = asyncio.Event()

    def received(self, frame: Frame) -> None:
        self.frames.append(frame)
        self.is_heard.set()

    def proven(self) -> None:
        self.is_ready.set()

    def lost(self) -> None:
        self.has_ended.set()


@asynccontextmanager
async def accepting(key: bytes = KEY) -> AsyncIterator[tuple[int, list[End]]]:
    ends: list[End] = []

    def accept() -> End:
        ends.append(End(key, accepts=True))
        return ends[-1]

    server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], ends
    finally:
        server.close()
        for end in ends:
            end.end()


async def connected(port: int, key: bytes = KEY) -> End:
    loop = asyncio.get_running_loop()
    _, end = await loop.create_connection(lambda: End(key, accepts=False), "127.0.0.1", port)
    return end


async def test_two_nodes_of_a_store_prove_themselves_and_hear_each_other() -> None:
    async with accepting() as (port, ends):
        one = await connected(port)
        await one.is_ready.wait()
        (two,) = ends
        await two.is_ready.wait()

        one.send("hello", b"\xff", 1)
        two.send("and you", None)
        await asyncio.gather(one.is_heard.wait(), two.is_heard.wait())

        assert (one.frames, two.frames) == ([["and you", None]], [["hello", b"\xff", 1]])
        one.end()


async def test_a_stranger_is_refused_on_either_side() -> None:
    async with accepting() as (port, ends):
        stranger = await connected(port, b"x" * 32)
        await stranger.has_ended.wait()
        assert not stranger.is_proven
        assert not ends[0].is_proven


@pytest.mark.parametrize(
    "said",
    [
        random.Random(3).randbytes(200),
        (PROOF_BYTES_MAX + 1).to_bytes(4, "big"),
        (1).to_bytes(4, "big") + b"\x90",
        (9).to_bytes(4, "big") + b"\x91\xa7welcome",
        b"",
    ],
)
async def test_whoever_says_something_else_or_nothing_is_cut_off(said: bytes) -> None:
    async with accepting() as (port, ends):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        with suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 10)
        writer.close()
        await ends[0].has_ended.wait()
        assert not ends[0].is_proven


async def test_a_frame_that_is_too_long_is_not_sent_and_the_connection_goes_on() -> None:
    async with accepting() as (port, ends):
        one = await connected(port)
        await one.is_ready.wait()
        await ends[0].is_ready.wait()

        assert not one.send("much", b"x" * FRAME_BYTES_MAX)
        assert one.send("little")

        await ends[0].is_heard.wait()
        assert ends[0].frames == [["little"]]
        one.end()


@pytest.mark.parametrize(
    "outcome",
    [
        Grant(b"token", 33),
        Refused.MAX_WAITERS,
        ValueRefused.LIST_FULL,
        True,
        False,
        0,
        -7,
        None,
        b"x",
        [b"a"],
    ],
)
def test_an_outcome_is_the_same_at_the_other_end(outcome: Outcome) -> None:
    found = unpacked_outcome(packed_outcome(outcome))

    if isinstance(outcome, Grant):
        assert isinstance(found, Grant)
        assert (found.token, found.ttl_s) == (outcome.token, outcome.ttl_s)
    else:
        assert found == outcome
        assert type(found) is type(outcome)
