"""A module of the product as a process of its own, spoken to through its pipes while the loop goes on.

Reading 100 MB of JSON takes seconds in which a thread would hold the interpreter, so large documents are read there.
They stream in and out: in this process none is ever whole.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import IO


def module_command(module: str) -> tuple[str, ...]:
    return sys.executable, "-m", module


class WorkerProcess:
    """One process, from `open` to `aclose`. One that ends too early is a BrokenPipeError."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_open(self) -> bool:
        return self._process is not None

    async def open(self) -> None:
        """Raises OSError if no process can be had."""
        starting = asyncio.create_task(
            asyncio.to_thread(
                subprocess.Popen,
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                process_group=0,  # Ctrl-C at the terminal lets the server drain, and it needs its workers for that.
            )
        )
        try:
            self._process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._process = await starting  # It is on its way already; `aclose` ends it.
            raise

    async def write(self, data: bytes) -> None:
        await asyncio.to_thread(self._stdin.write, data)

    async def write_document(self, document: AsyncIterator[bytes]) -> None:
        async for piece in document:
            await asyncio.to_thread(self._stdin.write, piece)
        await asyncio.to_thread(self._stdin.flush)

    async def write_end(self) -> None:
        await asyncio.to_thread(self._stdin.close)

    async def read(self, size_bytes: int) -> bytes:
        """At least one byte; less than asked for only at the end."""
        data = await asyncio.to_thread(self._stdout.read, size_bytes)
        if not data:
            raise _broken_off()
        return data

    async def read_exactly(self, size_bytes: int) -> bytes:
        data = await self.read(size_bytes)
        if len(data) < size_bytes:
            raise _broken_off()
        return data

    async def read_line(self, bytes_max: int) -> bytes:
        line = await asyncio.to_thread(self._stdout.readline, bytes_max)
        if not line.endswith(b"\n"):
            raise _broken_off()
        return line

    async def aclose(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await asyncio.to_thread(_end, process)

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process is not None and self._process.stdin is not None, "the process was not opened"
        return self._process.stdin

    @property
    def _stdout(self) -> IO[bytes]:
        assert self._process is not None and self._process.stdout is not None, "the process was not opened"
        return self._process.stdout


def _end(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):  # What was not written yet; nothing reads it any more.
                pipe.close()
    process.wait()


def _broken_off() -> BrokenPipeError:
    return BrokenPipeError("the process ended before its time")
