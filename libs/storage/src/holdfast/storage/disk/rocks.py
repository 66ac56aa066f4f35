"""The engine on disk: RocksDB without its own log, because the journal in front of it is the log.

What RocksDB has not flushed yet is gone after a crash, always as a whole tail of writes, and the journal brings it
back. Errors of RocksDB become ours here and nowhere else.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DbClosedError,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from holdfast.common.logging import get_logger
from holdfast.storage.errors import (
    StorageError,
    StoreClosed,
    StoreCorrupt,
    StoreUnavailable,
    mounted_read_only,
    no_room,
)
from holdfast.storage.local.engine import EngineView, Prepared, Write

_log = get_logger("storage.backend.core")

WRITE_BUFFER_BYTES = 32 << 20
WRITE_BUFFERS_MAX = 4
BLOCK_CACHE_BYTES = 64 << 20


class RocksEngine:
    """One RocksDB in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_closed = False
        self._flushing = (
            threading.Lock()
        )  # A flush runs in a thread, which nothing cancels; closing waits for it.
        self._not_logged = WriteOptions()
        # The package's stub calls this a method; it is an attribute.
        self._not_logged.disable_wal = True  # type: ignore[method-assign, assignment]
        try:
            self._db = Rdict(str(folder), _options())
        except Exception as error:
            raise self._mapped(error) from error

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:
            raise self._mapped(error) from error
        return value

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        try:
            iterator = self._db.iter(ReadOptions())
            yield from _falling(iterator, start, end) if reverse else _rising(iterator, start, end)
        except Exception as error:
            raise self._mapped(error) from error

    def write(self, writes: Sequence[Write]) -> None:
        self._write(_batch(writes))

    def prepare(self, writes: Sequence[Write]) -> Prepared:
        return _batch(writes)

    def write_prepared(self, prepared: Prepared) -> None:
        assert isinstance(prepared, WriteBatch), "prepared by another engine"
        self._write(prepared)

    def delete_range(self, start: bytes, end: bytes, also: Sequence[Write]) -> None:
        batch = _batch(also)
        batch.delete_range(start, end)
        self._write(batch)

    def view(self) -> EngineView:
        return _RocksView(self._db.iter(), self._mapped)

    def keys_estimate(self) -> int:
        return self._db.property_int_value("rocksdb.estimate-num-keys") or 0

    def flush(self) -> None:
        with self._flushing:
            if self._is_closed:
                raise StoreClosed(f"{self._folder} is closed")
            try:
                self._db.flush()
            except Exception as error:
                raise self._mapped(error) from error

    def close(self) -> None:
        with self._flushing:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                self._db.close()
            except Exception as error:  # noqa: BLE001 (the package raises nothing narrower)
                # Closing flushes first. After a failed flush only letting go of the handle frees the folder; the journal
                # still has what is lost with it.
                _log.warn("storage.engine.close_failed", reason=str(error))
                del self._db

    def _write(self, batch: WriteBatch) -> None:
        try:
            self._db.write(batch, self._not_logged)
        except Exception as error:
            raise self._mapped(error) from error

    def _mapped(self, error: Exception) -> StorageError:
        if isinstance(error, StorageError):
            return error
        if isinstance(error, DbClosedError):
            return StoreClosed(f"{self._folder} is closed")
        text = str(error)
        if "No space left" in text or "quota exceeded" in text:
            return no_room(f"{self._folder}: {text}")
        if "Read-only file system" in text:
            return mounted_read_only(f"{self._folder}: {text}")
        if "Corruption" in text or "No such file" in text or "NotFound" in text:
            return StoreCorrupt(f"{self._folder}: {text}; restore a backup")
        return StoreUnavailable(f"{self._folder}: {text}")


class _RocksView:
    """An iterator, which shows the moment of its making. A snapshot of this binding does so for single keys only: what
    it iterates over is the moment at which that begins. One scan at a time."""

    def __init__(self, iterator: RdictIter, mapped: Callable[[Exception], StorageError]) -> None:
        self._iterator: RdictIter | None = iterator
        self._mapped = mapped

    def scan(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        assert self._iterator is not None, "the view is closed"
        try:
            yield from _rising(self._iterator, start, end)
        except Exception as error:
            raise self._mapped(error) from error

    def close(self) -> None:
        self._iterator = None  # Dropping it releases it in RocksDB.


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_paranoid_checks(True)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(WRITE_BUFFERS_MAX)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(2)
    options.set_level_compaction_dynamic_level_bytes(True)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(BLOCK_CACHE_BYTES))
    table.set_bloom_filter(10, False)  # Most expectations are that a key is absent.
    options.set_block_based_table_factory(table)
    return options


def _batch(writes: Sequence[Write]) -> WriteBatch:
    batch = WriteBatch(raw_mode=True)
    for key, value in writes:
        if value is None:
            batch.delete(key)
        else:
            batch.put(key, value)
    return batch


def _rising(iterator: RdictIter, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    iterator.seek(start)
    while iterator.valid():
        key: bytes = iterator.key()
        if end is not None and key >= end:
            return
        yield key, iterator.value()
        iterator.next()
    iterator.status()  # Raises if it ended because of damage and not because of the end.


def _falling(iterator: RdictIter, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    iterator.seek_for_prev(end)
    if iterator.valid() and iterator.key() >= end:
        iterator.prev()
    while iterator.valid():
        key: bytes = iterator.key()
        if key < start:
            return
        yield key, iterator.value()
        iterator.prev()
    iterator.status()
