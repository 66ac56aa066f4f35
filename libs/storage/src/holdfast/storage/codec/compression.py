"""Compression of plaintext before it is sealed: snappy in its framing format, or zlib, both as bounded streams.

A compressor that does not help is left out per object, so descriptors say "none" for what was small or did not
shrink. Compressed length tells something about content: leave compression off where strangers' data and secrets
meet in one document.
"""

import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import Protocol

import cramjam

from holdfast.storage.errors import DecryptionError

BLOCK_BYTES = (
    1 << 16
)  # Snappy's own limit for one frame; zlib output is handed on in pieces of this size too.

_SNAPPY_START = b"\xff\x06\x00\x00sNaPpY"
_SNAPPY_FRAME_BYTES_MAX = 80_000  # A block that does not shrink grows to at most 76,490 bytes and a checksum.
_SMALL_BYTES = 128  # Below this no method gains what its own framing costs.


class Compression(IntEnum):
    """As written in descriptors and headers."""

    NONE = 0
    SNAPPY = 1
    ZLIB = 2


class Compressor(Protocol):
    """Plaintext in, compressed stream out."""

    def add(self, data: bytes) -> bytes: ...

    def finish(self) -> bytes: ...


class Decompressor(Protocol):
    """Compressed stream in, plaintext out in pieces of at most BLOCK_BYTES."""

    def add(self, data: bytes) -> Iterator[bytes]: ...

    def finish(self) -> None:
        """Raise DecryptionError if the stream is not complete."""
        ...


class SnappyCompressor:
    """Blocks are independent of each other in the framing format, so each is compressed alone."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._start = _SNAPPY_START

    def add(self, data: bytes) -> bytes:
        self._pending += data
        whole = len(self._pending) - len(self._pending) % BLOCK_BYTES
        frames = self._frames(bytes(self._pending[:whole]))
        del self._pending[:whole]
        return frames

    def finish(self) -> bytes:
        frames = self._frames(bytes(self._pending))
        self._pending.clear()
        return frames or self._start  # An empty stream is its identifier alone.

    def _frames(self, blocks: bytes) -> bytes:
        if not blocks:
            return b""
        frames = bytes(cramjam.snappy.compress(blocks)).removeprefix(_SNAPPY_START)
        start, self._start = self._start, b""
        return start + frames


class SnappyDecompressor:
    """Takes frames apart itself, so that no more than one is ever decompressed at a time."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._has_started = False

    def add(self, data: bytes) -> Iterator[bytes]:
        self._pending += data
        while len(self._pending) >= 4:
            size = int.from_bytes(self._pending[1:4], "little")
            if size > _SNAPPY_FRAME_BYTES_MAX:
                raise DecryptionError("a compressed frame is larger than any writer makes it")
            if len(self._pending) < 4 + size:
                return
            frame = bytes(self._pending[: 4 + size])
            del self._pending[: 4 + size]
            if frame == _SNAPPY_START:
                self._has_started = True
            elif not self._has_started:
                raise DecryptionError("compressed content does not begin as it must")
            elif block := _decompress_frame(frame):
                yield block

    def finish(self) -> None:
        if self._pending or not self._has_started:
            raise DecryptionError("compressed content ends too early")


class ZlibCompressor:
    """Level 1: most of the gain for a fraction of the time."""

    def __init__(self) -> None:
        self._stream = zlib.compressobj(level=1)

    def add(self, data: bytes) -> bytes:
        return self._stream.compress(data)

    def finish(self) -> bytes:
        return self._stream.flush()


class ZlibDecompressor:
    def __init__(self) -> None:
        self._stream = zlib.decompressobj()

    def add(self, data: bytes) -> Iterator[bytes]:
        is_drained = False
        while data or not is_drained:
            if self._stream.eof:
                if data:
                    raise DecryptionError("bytes follow the end of compressed content")
                return
            try:
                block = self._stream.decompress(data, BLOCK_BYTES)
            except zlib.error as error:
                raise DecryptionError("compressed content is damaged") from error
            data = self._stream.unconsumed_tail or self._stream.unused_data
            is_drained = (
                len(block) < BLOCK_BYTES
            )  # A full block may have more behind it, without further input.
            if block:
                yield block

    def finish(self) -> None:
        if not self._stream.eof:
            raise DecryptionError("compressed content ends too early")


def compressor(method: Compression) -> Compressor:
    """A fresh stream. `method` is not NONE."""
    return SnappyCompressor() if method == Compression.SNAPPY else ZlibCompressor()


def decompressor(method: Compression) -> Decompressor:
    """A fresh stream. `method` is not NONE."""
    return SnappyDecompressor() if method == Compression.SNAPPY else ZlibDecompressor()


def compress(plaintext: bytes, method: Compression) -> tuple[bytes, Compression]:
    """The shorter of compressed and plain, and which it is."""
    if method == Compression.NONE or len(plaintext) < _SMALL_BYTES:
        return plaintext, Compression.NONE
    stream = compressor(method)
    packed = stream.add(plaintext) + stream.finish()
    return (packed, method) if len(packed) < len(plaintext) else (plaintext, Compression.NONE)


def decompress(packed: bytes, method: Compression, size_bytes_max: int) -> bytes:
    """The plaintext; DecryptionError as soon as it grows beyond `size_bytes_max`."""
    stream = decompressor(method)
    blocks: list[bytes] = []
    size_bytes = 0
    for block in stream.add(packed):
        size_bytes += len(block)
        if size_bytes > size_bytes_max:
            raise DecryptionError(f"decompressed content is larger than {size_bytes_max} bytes")
        blocks.append(block)
    stream.finish()
    return b"".join(blocks)


def _decompress_frame(frame: bytes) -> bytes:
    try:
        return bytes(cramjam.snappy.decompress(_SNAPPY_START + frame))
    except cramjam.DecompressionError as error:
        raise DecryptionError("compressed content is damaged") from error
