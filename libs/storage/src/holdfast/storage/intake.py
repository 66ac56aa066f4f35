"""Content on its way in: kept in memory while it is small, streamed to a blob from there on, which hashes it."""

from collections.abc import AsyncIterator, Iterable
from hashlib import sha256
from typing import NamedTuple, Self

from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.storage.errors import InvalidBatch, StorageError, TransactionContended
from holdfast.storage.port import BlobRef, BlobStore, BlobWriter
from holdfast.storage.records_pb2 import Payload
from holdfast.storage.tables import blob_message

INLINE_BYTES_MAX = 64 << 10
PIECE_BYTES = 64 << 10  # What is hashed and compacted in one go, while other requests wait.

_log = get_logger("storage.backend.core")


class Content(NamedTuple):
    """What came in: whole, or in a blob that is already durable."""

    inline: bytes
    blob: BlobRef | None
    size_bytes: int
    sha256: bytes


class Intake:
    """Collects one content. Leaving the `async with` without `finish`, or by an error, throws it away."""

    def __init__(self, blobs: BlobStore, context: str) -> None:
        self._blobs = blobs
        self._context = context
        self._pending = bytearray()
        self._writer: BlobWriter | None = None
        self._blob: BlobRef | None = None
        self.size_bytes = 0

    async def write(self, chunk: bytes) -> None:
        self.size_bytes += len(chunk)
        if self._writer is None:
            self._pending += chunk
            if len(self._pending) <= INLINE_BYTES_MAX:
                return
            self._writer = await self._blobs.create(context=self._context).__aenter__()
            chunk = bytes(self._pending)
            self._pending.clear()
        await self._writer.write(chunk)

    async def finish(self) -> Content:
        if self._writer is None:
            return Content(bytes(self._pending), None, self.size_bytes, sha256(self._pending).digest())
        self._blob = blob = await self._writer.finish()
        return Content(b"", blob, self.size_bytes, blob.sha256)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._writer is not None:
            await self._writer.__aexit__(*exc)
        if self._blob is not None and exc[0] is not None:
            await _remove(self._blobs, self._blob)


async def remove_refused(blobs: BlobStore, contents: Iterable[Content], error: HoldfastError) -> None:
    """Nothing will ever refer to what came in for a commit that was refused. What became of one that met trouble with the
    store is not known: its blobs are left to the sweep."""
    is_unknown = isinstance(error, StorageError) and not isinstance(
        error, (InvalidBatch, TransactionContended)
    )
    if not is_unknown:
        await remove_unused(blobs, contents)


async def remove_unused(blobs: BlobStore, contents: Iterable[Content]) -> None:
    """For contents that no commit was given, or none that was done."""
    for content in contents:
        if content.blob is not None:
            await _remove(blobs, content.blob)


async def _remove(blobs: BlobStore, blob: BlobRef) -> None:
    try:
        await blobs.remove(blob.id)
    except (StorageError, OSError) as error:
        # The sweep finds it, and the caller is told what it was refused for.
        _log.debug("storage.intake.blob_left", blob=blob.id, reason=str(error))


def payload_of(content: Content) -> Payload:
    """Content as records keep it."""
    if content.blob is None:
        return Payload(inline=content.inline, size_bytes=content.size_bytes)
    return Payload(blob=blob_message(content.blob), size_bytes=content.size_bytes)


async def pieces_of(body: bytes) -> AsyncIterator[bytes]:
    """A body in memory as if it streamed."""
    for start in range(0, len(body), PIECE_BYTES):
        yield body[start : start + PIECE_BYTES]
