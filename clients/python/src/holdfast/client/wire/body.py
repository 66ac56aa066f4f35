"""What a request carries: bytes, a file, or a stream; a body knows whether it can be sent a second time."""

import io
import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import IO, Final, TypeGuard

from holdfast.client.errors import InvalidArgument

CHUNK_BYTES: Final = 64 * 1024

SyncSource = bytes | bytearray | memoryview | str | Path | IO[bytes] | Iterable[bytes]
"""Text is sent as UTF-8, a path as the file there, an open file from where it stands to its end."""
AsyncSource = SyncSource | AsyncIterable[bytes]


class Body:
    """A source, sent at most once unless it can be repeated, with a frame around it if it needs one."""

    def __init__(self, source: AsyncSource = b"", *, before: bytes = b"", after: bytes = b"") -> None:
        self.data: bytes | None = None
        self._before = before
        self._after = after
        self._source: AsyncSource = source
        self._is_started = False
        self._is_repeatable = True
        self._file_start = 0
        if isinstance(source, str):
            self.data = source.encode("utf-8")
        elif isinstance(source, bytes | bytearray | memoryview):
            self.data = bytes(source)
        elif _is_file(source) and source.seekable():
            self._file_start = source.tell()
        else:
            self._is_repeatable = isinstance(source, Path)

    @property
    def can_be_sent(self) -> bool:
        """Always the first time; again only if it can start where it began."""
        return self._is_repeatable or not self._is_started

    def size_bytes(self) -> int | None:
        """The length, if it is known before sending."""
        source_bytes = self._source_bytes()
        return None if source_bytes is None else len(self._before) + source_bytes + len(self._after)

    def _source_bytes(self) -> int | None:
        if self.data is not None:
            return len(self.data)
        source = self._source
        try:
            if isinstance(source, Path):
                return source.stat().st_size
            if _is_file(source) and source.seekable():
                end = source.seek(0, os.SEEK_END)
                source.seek(self._file_start)
                return end - self._file_start
        except OSError as error:
            raise InvalidArgument(f"the body can't be read: {error}") from error
        return None

    def chunks(self) -> Iterator[bytes]:
        """The body for a synchronous request."""
        if self.data is not None:
            yield self._before + self.data + self._after
            return
        yield from _unless_empty(self._before)
        yield from self._source_chunks()
        yield from _unless_empty(self._after)

    async def async_chunks(self) -> AsyncIterator[bytes]:
        """The body for an asynchronous request; files and iterators are read in a thread."""
        if self.data is None and isinstance(self._source, AsyncIterable):
            self._is_started = True
            if self._before:
                yield self._before
            async for chunk in self._source:
                yield _checked(chunk)
            if self._after:
                yield self._after
        elif self.data is not None:
            yield self._before + self.data + self._after
        else:
            import asyncio  # Here, because the blocking client does without it.

            chunks = self.chunks()
            while (piece := await asyncio.to_thread(_next, chunks)) is not None:
                yield piece

    def _source_chunks(self) -> Iterator[bytes]:
        self._is_started = True
        source = self._source
        if isinstance(source, Path):
            with source.open("rb") as file:
                yield from _file_chunks(file)
        elif _is_file(source):
            if source.seekable():
                source.seek(self._file_start)
            yield from _file_chunks(source)
        elif isinstance(source, AsyncIterable):
            raise InvalidArgument("an asynchronous stream needs an AsyncClient")
        else:
            assert not isinstance(source, str | bytes | bytearray | memoryview), "kept in `data`"
            yield from (_checked(chunk) for chunk in source)


def _unless_empty(frame: bytes) -> Iterator[bytes]:
    if frame:
        yield frame


def _next(chunks: Iterator[bytes]) -> bytes | None:
    return next(chunks, None)


def _file_chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield _checked(chunk)


def _checked(chunk: object) -> bytes:
    if not isinstance(chunk, bytes | bytearray | memoryview):
        raise InvalidArgument(f"a body stream gave {type(chunk).__name__}, not bytes")
    return bytes(chunk)


def _is_file(source: object) -> TypeGuard[IO[bytes]]:
    return isinstance(source, io.IOBase) or (hasattr(source, "read") and hasattr(source, "seekable"))
