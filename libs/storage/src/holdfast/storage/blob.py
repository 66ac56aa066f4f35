"""What all blob stores share."""

from holdfast.storage.errors import InvalidBatch
from holdfast.storage.port import BlobRef


def checked_end(ref: BlobRef, start: int, end: int | None) -> int:
    """Where a read of [start, end) ends; InvalidBatch if that is no part of the blob."""
    last = ref.size_bytes if end is None else min(end, ref.size_bytes)
    if not 0 <= start <= last:
        raise InvalidBatch(f"bytes {start} to {last} are not within a blob of {ref.size_bytes} bytes")
    return last
