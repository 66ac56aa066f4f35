"""The rules a batch must keep, checked before any backend sees it."""

from holdfast.storage.errors import InvalidBatch
from holdfast.storage.port import BATCH_BYTES_MAX, BATCH_KEYS_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX, Batch

BLOBS_PER_RECORD_MAX = 255
BLOB_ID_CHARS = 36


SEALED_VALUE_BYTES = 4096  # A codec's envelope around the largest value takes less.
SEALED_BATCH_BYTES = 4 << 20  # And around the values of the largest batch.


def check_batch(batch: Batch, *, is_sealed: bool = False) -> None:
    """Raise InvalidBatch, saying which rule is broken. Sealed values carry an envelope that the rules do not count."""
    value_bytes_max = VALUE_BYTES_MAX + SEALED_VALUE_BYTES * is_sealed
    batch_bytes_max = BATCH_BYTES_MAX + SEALED_BATCH_BYTES * is_sealed
    puts, deletes = batch.puts, batch.deletes
    if len(puts) + len(deletes) + len(batch.expects) > BATCH_KEYS_MAX:
        raise InvalidBatch(f"a batch names at most {BATCH_KEYS_MAX} keys; split it")
    size_bytes = 0
    for key, value in puts.items():
        if len(key) > KEY_BYTES_MAX or len(value) > value_bytes_max:
            raise InvalidBatch(
                f"a key has at most {KEY_BYTES_MAX} bytes and a value {VALUE_BYTES_MAX}; put more into a blob"
            )
        size_bytes += len(key) + len(value)
    if size_bytes > batch_bytes_max:
        raise InvalidBatch(f"a batch carries at most {BATCH_BYTES_MAX} bytes; split it or use blobs")
    if deletes and not deletes.isdisjoint(puts):
        raise InvalidBatch(f"key {next(iter(deletes & puts.keys()))!r} is both put and deleted")
    if batch.blobs:
        _check_blobs(batch)


def _check_blobs(batch: Batch) -> None:
    for key, blob_ids in batch.blobs.items():
        if key not in batch.puts:
            raise InvalidBatch(f"key {key!r} names blobs but is not put")
        if len(blob_ids) > BLOBS_PER_RECORD_MAX or any(len(blob_id) != BLOB_ID_CHARS for blob_id in blob_ids):
            raise InvalidBatch(
                f"key {key!r} names more than {BLOBS_PER_RECORD_MAX} blobs or something else than one"
            )
