"""A TCP proxy that delays, drops, resets and hangs up, the same way for the same seed."""

import asyncio
import random
import sys
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

_START_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chaos:
    """What goes wrong. A chunk is what one read gives, at most `chunk_bytes`; probabilities are per chunk."""

    seed: int = 0
    delay_min_s: float = 0.0
    delay_max_s: float = 0.0
    drop_probability: float = 0.0
    """The chunk vanishes, the rest goes on: what follows makes no sense to the receiver."""
    reset_probability: float = 0.0
    """Both sides are closed."""
    disconnect_after_s: float | None = None
    """Hang up on a connection of this age."""
    disconnects_max: int = 0
    """How many connections are hung up on; 0 is all of them."""
    bandwidth_bytes_per_s: int = 0
    """0 is as fast as it goes."""
    chunk_bytes: int = 32 * 1024

    def __post_init__(self) -> None:
        assert 0 <= self.delay_min_s <= self.delay_max_s or self.delay_max_s == 0, "delays are a range"
        assert 0 <= self.drop_probability <= 1 and 0 <= self.reset_probability <= 1, "probabilities"
        assert self.chunk_bytes > 0 and self.bandwidth_bytes_per_s >= 0 and self.disconnects_max >= 0


@dataclass(frozen=True, slots=True)
class ChunkFault:
    """What happens to one chunk."""

    delay_s: float
    is_dropped: bool
    is_reset: bool


class ChunkFaults:
    """Those of one direction of one connection: decided by seed, connection number and direction alone."""

    def __init__(self, chaos: Chaos, connection: int, direction: str) -> None:
        self._chaos = chaos
        self._chance = random.Random(f"{chaos.seed}:{connection}:{direction}")

    def next(self, size_bytes: int) -> ChunkFault:
        chaos = self._chaos
        # Always three draws: what one setting does must not move the others.
        delay_s = self._chance.uniform(chaos.delay_min_s, max(chaos.delay_min_s, chaos.delay_max_s))
        is_dropped = self._chance.random() < chaos.drop_probability
        is_reset = self._chance.random() < chaos.reset_probability
        if chaos.bandwidth_bytes_per_s:
            delay_s += size_bytes / chaos.bandwidth_bytes_per_s
        return ChunkFault(delay_s, is_dropped, is_reset)


class ChaosProxy:
    """`with ChaosProxy(server_url, Chaos(seed=1, …)) as proxy`: connect to `proxy.url`.

    It runs in a thread of its own, so that blocking and asynchronous tests can use it alike.
    """

    def __init__(self, target: str, chaos: Chaos) -> None:
        self.chaos = chaos
        self.url = ""
        self.connections = 0
        """How many were accepted so far."""
        self.disconnects = 0
        """How many of them were hung up on because of their age."""
        self._target = target
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._is_ready = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="holdfast.chaos", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_ready.wait(_START_TIMEOUT_S), "the proxy did not start"
        if self._problem is not None:
            raise self._problem
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None and self._stop is not None, "entered before"
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_START_TIMEOUT_S)

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            work: Coroutine[Any, Any, None] = self._carry(self.connections, reader, writer)
            task = asyncio.get_running_loop().create_task(work, name=f"chaos.{self.connections}")
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        try:
            server = await asyncio.start_server(accept, "127.0.0.1", 0)
        except OSError as error:
            self._problem = error
            self._is_ready.set()
            return
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._is_ready.set()
        await self._stop.wait()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, both ways, until one side or a fault ends it."""
        try:
            far_reader, far_writer = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        ways = [
            asyncio.create_task(self._pump(reader, far_writer, ChunkFaults(self.chaos, number, "up"))),
            asyncio.create_task(self._pump(far_reader, writer, ChunkFaults(self.chaos, number, "down"))),
        ]
        is_clean = False
        try:
            is_clean = await self._until_ended(ways)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in (writer, far_writer):
                # Closing sends what was written before; a reset does not care.
                end.close() if is_clean else end.transport.abort()

    async def _until_ended(self, ways: "list[asyncio.Task[bool]]") -> bool:
        """Whether the connection ended by itself, and not by a fault or its age."""
        ended, _ = await asyncio.wait(
            ways, timeout=self.chaos.disconnect_after_s, return_when=asyncio.FIRST_COMPLETED
        )
        if not ended:
            if self.disconnects < (self.chaos.disconnects_max or sys.maxsize):
                self.disconnects += 1
                return False
            ended, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        return all(way.result() for way in ended)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self._target)
        if parts.scheme == "unix":
            return await asyncio.open_unix_connection(unquote(parts.path))
        return await asyncio.open_connection(parts.hostname, parts.port)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, faults: ChunkFaults
    ) -> bool:
        """Carry chunks until the sender is done (true), or something ends it (false)."""
        try:
            while chunk := await reader.read(self.chaos.chunk_bytes):
                fault = faults.next(len(chunk))
                if fault.delay_s:
                    await asyncio.sleep(fault.delay_s)
                if fault.is_reset:
                    return False
                if not fault.is_dropped:
                    writer.write(chunk)
                    await writer.drain()
        except OSError:
            return False
        return True
