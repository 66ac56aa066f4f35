"""HF1 bodies piece by piece: what goes in comes out sealed or opened with at most a few chunks in memory."""

from collections.abc import Iterator

from holdfast.storage.codec.body import HEADER_BYTES, Body, new_body, stored_body
from holdfast.storage.codec.compression import (
    BLOCK_BYTES,
    Compression,
    Compressor,
    Decompressor,
    compressor,
    decompressor,
)
from holdfast.storage.codec.descriptor import DataKey, new_data_key, wrap
from holdfast.storage.codec.keyring import Keyring
from holdfast.storage.codec.suite import TAG_BYTES, Suite
from holdfast.storage.errors import DecryptionError


class SealWriter:
    """Seals a stream. `descriptor` is known once `add` or `finish` has returned the first bytes.

    Whether to compress is decided by the first block of the stream: one that does not shrink by a sixteenth
    (pictures, archives) is stored plain, which also keeps its ranges cheap to read.
    """

    def __init__(
        self, keyring: Keyring, context: str, *, suite: Suite, compression: Compression, chunk_log2: int
    ) -> None:
        self.descriptor = b""
        self._keyring = keyring
        self._context = context
        self._suite = suite
        self._compression = compression
        self._chunk_log2 = chunk_log2
        self._compressor: Compressor | None = None
        self._body: Body | None = None
        self._pending = bytearray()
        self._index = 0

    def add(self, plaintext: bytes) -> bytes:
        """Stored bytes that are ready; may be none."""
        if self._body is not None:
            return self._seal(plaintext if self._compressor is None else self._compressor.add(plaintext))
        self._pending += plaintext
        if self._compression and len(self._pending) < BLOCK_BYTES:
            return b""
        return self._begin()

    def finish(self) -> bytes:
        """The rest of the stored bytes."""
        stored = self._begin() if self._body is None else b""
        if self._compressor is not None:
            stored += self._seal(self._compressor.finish())
        assert self._body is not None
        last = self._body.seal_chunk(self._index, True, self._pending)
        self._pending.clear()
        return stored + last

    def _begin(self) -> bytes:
        first, self._pending = bytes(self._pending), bytearray()
        compression = (
            self._compression if _is_worth(first[:BLOCK_BYTES], self._compression) else Compression.NONE
        )
        data_key = new_data_key(self._suite, compression)
        try:
            self.descriptor = wrap(self._keyring, self._context, data_key)
            self._body = new_body(data_key, self._chunk_log2)
        finally:
            data_key.wipe()
        if compression:
            self._compressor = compressor(compression)
            first = self._compressor.add(first)
        return self._body.header + self._seal(first)

    def _seal(self, content: bytes) -> bytes:
        """Full chunks that are known not to be the last: at least one byte always stays back."""
        assert self._body is not None
        self._pending += content
        size, sealed = self._body.chunk_bytes, list[bytes]()
        while len(self._pending) > size:
            sealed.append(self._body.seal_chunk(self._index, False, self._pending[:size]))
            del self._pending[:size]
            self._index += 1
        return b"".join(sealed)


class OpenReader:
    """Opens a stream from its first byte to its last. Nothing of a chunk is handed out before it is proven."""

    def __init__(self, data_key: DataKey, *, size_bytes_max: int) -> None:
        self._data_key = data_key
        self._body: Body | None = None
        self._decompressor: Decompressor | None = (
            decompressor(data_key.compression) if data_key.compression else None
        )
        self._pending = bytearray()
        self._index = 0
        self._left_bytes = size_bytes_max

    def add(self, stored: bytes) -> Iterator[bytes]:
        """Plaintext of the chunks that are known not to be the last. Must be iterated to its end."""
        self._pending += stored
        if self._body is None:
            if len(self._pending) < HEADER_BYTES:
                return
            self._begin()
        assert self._body is not None
        size = self._body.stored_chunk_bytes
        while len(self._pending) > size:
            content = self._body.open_chunk(self._index, False, self._pending[:size])
            del self._pending[:size]
            self._index += 1
            yield from self._expand(content)

    def finish(self) -> Iterator[bytes]:
        """Plaintext of the last chunk; DecryptionError if the stream was cut."""
        if self._body is None:
            self._begin()
        assert self._body is not None
        content = self._body.open_chunk(self._index, True, self._pending)
        self._pending.clear()
        yield from self._expand(content)
        if self._decompressor is not None:
            self._decompressor.finish()

    def _begin(self) -> None:
        try:
            self._body = stored_body(self._data_key, bytes(self._pending[:HEADER_BYTES]))
        finally:
            self._data_key.wipe()
        del self._pending[:HEADER_BYTES]

    def _expand(self, content: bytes) -> Iterator[bytes]:
        for piece in (content,) if self._decompressor is None else self._decompressor.add(content):
            self._left_bytes -= len(piece)
            if self._left_bytes < 0:
                raise DecryptionError("decrypted content is larger than its record says")
            if piece:
                yield piece


class RangeReader:
    """Opens any run of chunks of an uncompressed body whose length is known; no chunk needs its dependencies."""

    def __init__(self, data_key: DataKey, header: bytes, *, stored_bytes: int) -> None:
        try:
            self._body = stored_body(data_key, header)
        finally:
            data_key.wipe()
        self._last = max(0, stored_bytes - HEADER_BYTES - 1) // self._body.stored_chunk_bytes
        self._stored_bytes = stored_bytes
        self._pending = bytearray()
        self._index = 0
        self._skip_bytes = 0

    @property
    def content_bytes(self) -> int:
        """How much content the whole body holds."""
        return self._stored_bytes - HEADER_BYTES - TAG_BYTES * (self._last + 1)

    def seek(self, start: int, end: int) -> tuple[int, int]:
        """Which stored bytes [from, to) hold the content [start, end), which must not be empty."""
        size = self._body.chunk_bytes
        self._index, self._skip_bytes = divmod(start, size)
        last = min((end - 1) // size, self._last)
        stored = self._body.stored_chunk_bytes
        return HEADER_BYTES + self._index * stored, min(
            HEADER_BYTES + (last + 1) * stored, self._stored_bytes
        )

    def add(self, stored: bytes) -> Iterator[bytes]:
        """Content from the `start` of `seek` on, as far as chunks are complete. Must be iterated to its end."""
        self._pending += stored
        while (size := self._next_bytes()) and len(self._pending) >= size:
            content = self._body.open_chunk(self._index, self._index == self._last, self._pending[:size])
            del self._pending[:size]
            self._index += 1
            skip, self._skip_bytes = self._skip_bytes, 0
            yield content[skip:] if skip else content

    def _next_bytes(self) -> int:
        """How long the next chunk is; 0 behind the last."""
        if self._index < self._last:
            return self._body.stored_chunk_bytes
        if self._index > self._last:
            return 0
        return self._stored_bytes - HEADER_BYTES - self._last * self._body.stored_chunk_bytes


def _is_worth(sample: bytes, compression: Compression) -> bool:
    if not compression:
        return False
    stream = compressor(compression)
    packed_bytes = len(stream.add(sample)) + len(stream.finish())
    return packed_bytes < len(sample) - len(sample) // 16
