"""Blobs sealed on their way in and opened on their way out, a chunk at a time.

What a reference keeps as its `descriptor` is the HF1 descriptor followed by what the backend said of the stored
bytes, so that reading needs no further lookup:

    HF1 descriptor (76) · u64 stored size · sha256 of the stored bytes (32)

Size and sha256 of the reference itself are those of the plain content.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from struct import Struct
from typing import Self

from holdfast.storage.codec.body import HEADER_BYTES
from holdfast.storage.codec.descriptor import DESCRIPTOR_BYTES, is_compressed, unwrap
from holdfast.storage.codec.hf1 import Codec
from holdfast.storage.codec.stream import RangeReader
from holdfast.storage.errors import DecryptionError, InvalidBatch
from holdfast.storage.port import BlobInfo, BlobRef, BlobStore, BlobWriter

STEP_BYTES = 1 << 16  # Sealed between two looks of the event loop: well below a millisecond, also with zlib.

_TAIL = Struct(">Q32s")


class EncodedBlobStore:
    """The `BlobStore` of an encoded store."""

    def __init__(self, inner: BlobStore, codec: Codec) -> None:
        self._inner = inner
        self._codec = codec

    def create(self, *, context: str = "", blob_id: str | None = None) -> "EncodedBlobWriter":
        return EncodedBlobWriter(self._inner.create(context=context, blob_id=blob_id), self._codec, context)

    def read(
        self, ref: BlobRef, *, context: str = "", start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        """Chunks of the plain bytes [start, end); DecryptionError before a chunk that was altered, cut or moved.

        A range of an uncompressed blob costs the chunks it touches; of a compressed one, everything before its end.
        """
        end = ref.size_bytes if end is None else min(end, ref.size_bytes)
        if not 0 <= start <= end:
            raise InvalidBatch(f"bytes {start} to {end} are not within a blob of {ref.size_bytes} bytes")
        descriptor, stored = _split(ref)
        if is_compressed(descriptor) or (start == 0 and end == ref.size_bytes):
            return self._read_whole(ref, descriptor, stored, context, start, end)
        return self._read_range(ref, descriptor, stored, context, start, end)

    async def info(self, blob_id: str) -> BlobInfo | None:
        return await self._inner.info(blob_id)

    def list(self) -> AsyncIterator[BlobInfo]:
        return self._inner.list()

    async def remove(self, blob_id: str) -> bool:
        return await self._inner.remove(blob_id)

    async def free(self, *, grace_s: float) -> int:
        return await self._inner.free(grace_s=grace_s)

    async def sweep(self, *, grace_s: float) -> int:
        return await self._inner.sweep(grace_s=grace_s)

    async def touch(self) -> None:
        await self._inner.touch()

    def rewrap(self, ref: BlobRef, old_context: str, new_context: str) -> BlobRef:
        """The same blob for another context, or for the current root key: put the record anew, the bytes stay."""
        descriptor, _ = _split(ref)
        rewrapped = self._codec.rewrap(descriptor, old_context, new_context)
        return BlobRef(ref.id, ref.size_bytes, ref.sha256, rewrapped + ref.descriptor[DESCRIPTOR_BYTES:])

    async def _read_whole(
        self, ref: BlobRef, descriptor: bytes, stored: BlobRef, context: str, start: int, end: int
    ) -> AsyncIterator[bytes]:
        reader = self._codec.open_stream(descriptor, context, size_bytes_max=ref.size_bytes)
        at = 0
        async with _closing(self._inner.read(stored)) as stored_pieces:
            async for stored_piece in stored_pieces:
                for piece in reader.add(stored_piece):
                    if cut := _cut(piece, at, start, end):
                        yield cut
                    at += len(piece)
                if at >= end and end < ref.size_bytes:
                    return
        for piece in reader.finish():
            if cut := _cut(piece, at, start, end):
                yield cut
            at += len(piece)
        if at != ref.size_bytes:
            raise DecryptionError(f"blob {ref.id} has {at} bytes, its record says {ref.size_bytes}")

    async def _read_range(
        self, ref: BlobRef, descriptor: bytes, stored: BlobRef, context: str, start: int, end: int
    ) -> AsyncIterator[bytes]:
        data_key = unwrap(self._codec.keyring, context, descriptor)
        header = b"".join([piece async for piece in self._inner.read(stored, end=HEADER_BYTES)])
        reader = RangeReader(data_key, header, stored_bytes=stored.size_bytes)
        if reader.content_bytes != ref.size_bytes:
            raise DecryptionError(
                f"blob {ref.id} has {reader.content_bytes} bytes, its record says {ref.size_bytes}"
            )
        if start == end:
            return
        stored_start, stored_end = reader.seek(start, end)
        at = start
        async with _closing(self._inner.read(stored, start=stored_start, end=stored_end)) as stored_pieces:
            async for stored_piece in stored_pieces:
                for piece in reader.add(stored_piece):
                    yield piece[: end - at]
                    at += len(piece)
        if at < end:
            raise DecryptionError(f"blob {ref.id} is cut at byte {at}")


class EncodedBlobWriter:
    """One blob on its way in."""

    def __init__(self, inner: BlobWriter, codec: Codec, context: str) -> None:
        self._inner = inner
        self._seal = codec.seal_stream(context)
        self._sha256 = hashlib.sha256()
        self._size_bytes = 0

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._inner.__aexit__(*exc)

    async def write(self, chunk: bytes) -> None:
        for start in range(0, len(chunk), STEP_BYTES):
            if start:
                await asyncio.sleep(0)  # The backend may take what it is given without waiting even once.
            await self._add(chunk[start : start + STEP_BYTES])

    async def finish(self) -> BlobRef:
        await self._inner.write(self._seal.finish())
        stored = await self._inner.finish()
        descriptor = self._seal.descriptor + _TAIL.pack(stored.size_bytes, stored.sha256)
        return BlobRef(stored.id, self._size_bytes, self._sha256.digest(), descriptor)

    async def _add(self, step: bytes) -> None:
        self._sha256.update(step)
        self._size_bytes += len(step)
        if stored := self._seal.add(step):
            await self._inner.write(stored)


@asynccontextmanager
async def _closing(pieces: AsyncIterator[bytes]) -> AsyncGenerator[AsyncIterator[bytes], None]:
    """A reader that stops early, or is stopped, gives the backend's file or connection back at once."""
    try:
        yield pieces
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


def _split(ref: BlobRef) -> tuple[bytes, BlobRef]:
    """The HF1 descriptor, and the reference as the backend made it."""
    if len(ref.descriptor) != DESCRIPTOR_BYTES + _TAIL.size:
        raise DecryptionError(f"blob {ref.id} was stored without encryption, or its reference was altered")
    stored_bytes, stored_sha256 = _TAIL.unpack_from(ref.descriptor, DESCRIPTOR_BYTES)
    return ref.descriptor[:DESCRIPTOR_BYTES], BlobRef(ref.id, stored_bytes, stored_sha256)


def _cut(piece: bytes, at: int, start: int, end: int) -> bytes:
    """What of the piece that stands at `at` lies within [start, end)."""
    if start <= at and at + len(piece) <= end:
        return piece
    return piece[max(0, start - at) : max(0, end - at)]
