"""The journal: staged batches in, one synced record per group out.

While the device is quick, what one turn of the loop has offered is written and synced by the loop itself, because waking a
thread and being woken by it takes longer than that (`fsync_policy`, docs/decisions/0018). Large groups, the start of the next
segment and slow devices are left to a thread, which does nothing but wait, write, sync and report. While it syncs, the next
group gathers. A full segment is followed by the next one; the old one is reused once the engine holds all of it without the
journal's help.

    offer → queue ─┬─ [loop, device quick, at most 64 batches: write → sync] ─┬─→ became_durable (loop)
                   └─ [thread: take group → write → sync] ────────────────────┘
                                    └─ on an error, either way: queue dropped, failed (loop)

`_file_lock` is held by the one that writes. `_lock` may be taken while it is held; under `_lock` it is only tried.

At rotation the order is: the next segment is made durable, the full one is sealed, the first record goes into the next
one. `segment` says which states a crash may leave and how a file that lost bytes is told apart from them.
"""

import asyncio
import errno
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.common import failpoint
from holdfast.common.logging import get_logger
from holdfast.storage.disk import segment
from holdfast.storage.disk.fsync_policy import QUICK_S, FsyncPolicy
from holdfast.storage.disk.recovery import RecoveredSegment, Recovery
from holdfast.storage.disk.room import Room
from holdfast.storage.disk.segment import DiskFile, JournalFile, JournalFileFactory, Seal, SegmentHeader
from holdfast.storage.disk.segment_folder import SegmentFolder
from holdfast.storage.errors import NO_ROOM, StorageError, StoreFull, StoreReadOnly, storage_error
from holdfast.storage.local.pending import PendingBatch
from holdfast.storage.local.store import LocalStore
from holdfast.storage.options import StoreOptions

GROUP_BYTES_MAX = 16 << 20
ROOM_CHECK_S = 0.05
TURN_BATCHES_ENOUGH = 8
TURN_BATCHES_MAX = 64  # More than these, or than so many bytes, are written by the thread.
TURN_BYTES_MAX = 256 << 10
END_MARKER_AFTER_S = 0.02  # Idle this long, the end marker is written: it must not delay the next commit.

_log = get_logger("storage.backend.core")

Queued = tuple[bytes, PendingBatch]


class DiskJournal:
    """A folder of segments, named by the revision before their first."""

    def __init__(
        self, folder: Path, options: StoreOptions, file_factory: JournalFileFactory = DiskFile
    ) -> None:
        self._folder = folder
        self._options = options
        self._file_factory = file_factory
        self._file: JournalFile | None = None
        self._header = SegmentHeader(0, 0, 0, 0)
        self._salt = 0
        self._limit = 0  # Where the space for records ends.
        self._offset = 0
        self._revision = 0
        self._has_remains = False  # Behind the last record may be one that was refused.
        self._fsync_policy = FsyncPolicy(options.loop_syncs_after)
        self._file_lock = threading.Lock()  # Held by the writer, the thread or the loop.
        self._is_flush_due = False
        self._gathered = 0  # Batches that were there at the last look of this turn.
        self._is_end_marker_failing = False
        self._end_marker_timer: asyncio.TimerHandle | None = None
        self._lock = threading.Lock()  # Guards the six below, which loop and thread share.
        self._queue: list[Queued] = []
        self._is_idle = True
        self._is_for_thread = False  # What is queued is too much for the loop.
        self._error: StorageError | None = None
        self._unreported = (
            0  # Groups of the thread of which the loop has not heard yet: none may overtake them.
        )
        self._is_stopping = False
        self._wake = (
            threading.Lock()
        )  # Held while the thread sleeps; a plain lock is the cheapest way to wake it.
        self._wake.acquire()
        self._thread = threading.Thread(target=self._run, name="holdfast-journal", daemon=True)
        self._room = Room(folder, options.free_bytes_min)
        self._room_checked_s = 0.0
        self._segments = SegmentFolder(folder, options.journal_segment_bytes, self._room)
        self.syncs = 0  # For the benchmarks: syncs per commit.

    # -- opening

    def recover(self, applied_revision: int) -> Iterator[bytes]:
        """Every entry that may be missing on an engine at `applied_revision`; afterwards the end of the log is known."""
        self._segments.begin()
        recovery = Recovery(self._folder, applied_revision)
        yield from recovery.entries()
        if not recovery.segments:
            self._start_segment(0)
            return
        for full in recovery.segments[:-1]:
            if full.header.version > 1 and not full.is_sealed:
                self._seal(self._file_factory(full.path), full.header, full.end())
        self._reopen_segment(recovery.last)
        if self._header.version == 1:
            self._leave_old_format()

    def _reopen_segment(self, last: RecoveredSegment) -> None:
        """Go on behind the last record. What a crash left unsynced there is shown as committed, so it is synced first."""
        file = self._file_factory(last.path)
        file.sync()
        self._use(file, last.header, last.offset, last.revision)

    def _leave_old_format(self) -> None:
        """From now on a cut is noticed. Without room for a new segment the old one is used up first."""
        old = self._file
        try:
            self._start_segment(self._revision)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            _log.warn("storage.journal.old_format_kept", folder=str(self._folder), reason=str(error))
        else:
            if old is not None:
                old.close()

    def _use(self, file: JournalFile, header: SegmentHeader, offset: int, revision: int) -> None:
        self._file = file
        self._header = header
        self._salt = header.salt
        self._limit = header.records_limit
        self._offset = offset
        self._revision = revision

    def start(self, store: LocalStore) -> None:
        """Begin to take batches; answers go to `store` on the running loop."""
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._rotated: Callable[[], None] = lambda: None
        self._thread.start()

    def on_rotation(self, callback: Callable[[], None]) -> None:
        """`callback()` on the loop: a segment is full and waits for a flush of the engine."""
        self._rotated = callback

    # -- loop side

    def offer(self, entry: bytes, staged: PendingBatch) -> None:
        """After a failure nothing is queued: `_failed` is then on its way to the loop and will find it staged."""
        with self._lock:
            if self._error is not None:
                return
            self._queue.append((entry, staged))
            if not self._is_idle:
                return  # The thread looks for more before it rests.
            if not self._fsync_policy.allows_loop:
                self._rouse()
                return
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """The end of a turn: every task that was ready has offered its batch, and all are synced together.
        A sync costs as much as a few requests, so the loop looks for more of them first, as long as some come in."""
        with self._lock:
            queue = self._queue
            if self._is_idle and self._gathered < len(queue) < TURN_BATCHES_ENOUGH:
                self._gathered = len(queue)
                self._loop.call_soon(self._flush)
                return
            self._gathered = 0
            self._is_flush_due = False
            if not self._is_idle or not queue or self._unreported:
                return
            if not self._fits_turn(queue) or not self._file_lock.acquire(blocking=False):
                self._is_for_thread = True
                self._rouse()
                return
            self._queue = []
        try:
            is_written = self._write_group(queue)
        except Exception as error:  # noqa: BLE001 (as in the thread: no commit may be left waiting)
            self._died(error)
            return
        finally:
            self._file_lock.release()
        try:
            if is_written:
                self._store.became_durable([staged for _, staged in queue])
        finally:
            if self._end_marker_timer is None:
                self._end_marker_timer = self._loop.call_later(END_MARKER_AFTER_S, self._wake_for_end_marker)

    def _report(self, group: list[Queued], is_written: bool) -> None:
        """The thread is done with a group. What came meanwhile may be written by the loop now."""
        with self._lock:
            self._unreported -= 1
        try:
            if is_written:
                self._store.became_durable([staged for _, staged in group])
        finally:
            self._flush_soon()

    def _fits_turn(self, queue: list[Queued]) -> bool:
        """Large groups would hold up the loop, and so would the start of the next segment."""
        size_bytes = sum(segment.room_for(entry) for entry, _ in queue)
        return (
            len(queue) <= TURN_BATCHES_MAX
            and size_bytes <= TURN_BYTES_MAX
            and self._offset + size_bytes <= self._limit
        )

    def _wake_for_end_marker(self) -> None:
        """The thread writes the end marker after it was idle for a while; so it is woken to be idle again."""
        self._end_marker_timer = None
        with self._lock:
            self._rouse()

    def entries(self) -> Iterator[bytes]:
        """Everything in the segments, for an engine that lost its tail. Only while nothing is offered."""
        for path in self._segments.segments():
            for record in segment.read_records(path, segment.read_header(path)):
                yield from record.entries

    @property
    def is_idle(self) -> bool:
        with self._lock:
            return self._is_idle

    def room_problem(self) -> StoreFull | None:
        """Why the next batch would be refused, as far as free space tells."""
        return self._room.problem()

    def can_write(self) -> bool:
        """Try what a write needs: the reserve, the file in use, a next segment. Blocking: call it from a thread.

        After a write or a sync that failed for good it never can: what the device has is unknown until it is opened again.
        """
        try:
            if self._error is not None or self._room.problem() is not None:
                return False
            with self._file_lock:
                self._write_end_marker()
                if self._file is not None:
                    self._file.sync()
            self.prepare_spare()
        except OSError:
            return False
        return True

    def has_full_segments(self) -> bool:
        return len(self._segments.segments()) > 1

    def release(self, flushed_revision: int) -> None:
        """Reuse or remove the segments that end at or before `flushed_revision`. Blocking: call it from a thread."""
        self._segments.release(flushed_revision, self._header.size_bytes)

    def prepare_spare(self) -> None:
        """Have the next segment ready before it is needed. Blocking: call it from a thread."""
        self._segments.prepare_spare(self._header.size_bytes)

    def stop(self) -> None:
        """End the thread when its queue is empty. Blocking."""
        if self._end_marker_timer is not None:
            self._end_marker_timer.cancel()
        with self._lock:
            self._is_stopping = True
            self._rouse()
        if self._thread.ident is not None:
            self._thread.join()
        if self._file is not None:
            self._file.close()

    def _rouse(self) -> None:
        if self._is_idle:
            self._is_idle = False
            self._wake.release()

    # -- thread side

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:  # noqa: BLE001 (the edge of the thread: no commit may be left waiting)
            self._died(error)

    def _died(self, error: Exception) -> None:
        _log.error("storage.journal.died", exception=error)
        self._fail(_read_only(self._folder, OSError(str(error))), is_fatal=True)

    def _serve(self) -> None:
        while True:
            group = self._take()
            if group:
                with self._file_lock:
                    is_written = self._write_group(group)
                self._loop.call_soon_threadsafe(self._report, group, is_written)
            elif self._is_stopping and not self._queue:
                self._try_to_write_end_marker()
                return
            elif not self._wake.acquire(timeout=END_MARKER_AFTER_S):
                self._try_to_write_end_marker()
                self._wake.acquire()

    def _take(self) -> list[Queued]:
        with self._lock:
            queue = self._queue
            is_for_loop = self._fsync_policy.allows_loop and not self._is_for_thread and not self._is_stopping
            if queue and is_for_loop and self._fits_turn(queue):
                # Else the thread, which always finds more under load, would never give it back.
                self._is_idle = True
                self._loop.call_soon_threadsafe(self._flush_soon)
                return []
            self._is_for_thread = False
            if (
                len(queue) <= self._options.group_batches_max
                and sum(len(entry) for entry, _ in queue) <= GROUP_BYTES_MAX
            ):
                self._queue = []
                self._is_idle = not queue
                self._unreported += bool(queue)
                return queue
            count = size_bytes = 0
            for entry, _ in queue[: self._options.group_batches_max]:
                size_bytes += len(entry)
                if count and size_bytes > GROUP_BYTES_MAX:
                    break
                count += 1
            self._queue = queue[count:]
            self._unreported += 1
            return queue[:count]

    def _write_group(self, group: list[Queued]) -> bool:
        """Whether it is durable now; if not, its callers are told."""
        try:
            self._append(group[-1][1].revision, [entry for entry, _ in group])
        except StorageError as error:
            self._fail(error, is_fatal=False)
        except OSError as error:
            self._has_remains = True
            if error.errno in NO_ROOM:
                self._fail(storage_error(error, f"writing the journal in {self._folder}"), is_fatal=False)
            else:
                self._fail(_read_only(self._folder, error), is_fatal=True)
        else:
            return True
        return False

    def _append(self, revision: int, entries: list[bytes]) -> None:
        self._check_room()
        record = segment.encode_record(self._salt, revision, entries)
        if self._offset + len(record) + segment.RECORD_HEAD_BYTES > self._limit:
            self._rotate(len(record))
            record = segment.encode_record(self._salt, revision, entries)
        assert self._file is not None, "recover was not called"
        if failpoint.ARMED:
            failpoint.hit("journal.write")
        if failpoint.ARMED and failpoint.hit("journal.sync"):
            self._file.pwrite(record, self._offset)
        else:
            began_s = time.perf_counter()
            self._file.pwrite_synced(record, self._offset)
            took_s = time.perf_counter() - began_s
            if took_s >= QUICK_S or not self._fsync_policy.is_calm:
                self._fsync_policy.took(took_s)
        if failpoint.ARMED:
            failpoint.hit("journal.synced")
        self.syncs += 1
        self._offset += len(record)
        self._revision = revision
        self._has_remains = False

    def _rotate(self, record_bytes: int) -> None:
        if self._has_remains and self._file is not None:
            # A device that had no room to sync a record may have it: it must not count, and nothing will be written over it.
            self._file.pwrite_synced(segment.encode_end_marker(self._salt, self._revision), self._offset)
            self._has_remains = False
        full, header, end = self._file, self._header, Seal(self._offset, self._revision)
        self._start_segment(
            self._revision,
            size_bytes_min=segment.HEADER_BYTES + 2 * record_bytes + segment.TAIL_BYTES,
        )
        if failpoint.ARMED:
            failpoint.hit("journal.rotated")
        try:
            if full is not None:
                self._seal(full, header, end)
        finally:
            self._loop.call_soon_threadsafe(self._rotated)
        if failpoint.ARMED:
            failpoint.hit("journal.sealed")

    def _seal(self, full: JournalFile, header: SegmentHeader, end: Seal) -> None:
        """Only when the successor is durable: a sealed segment without one is refused."""
        try:
            if header.version > 1:
                full.pwrite_synced(segment.encode_seal(end), header.records_limit)
        finally:
            full.close()

    def _start_segment(self, base_revision: int, size_bytes_min: int = 0) -> None:
        """Nothing of `self` changes before the new segment is durable under its name."""
        path, header = self._segments.create(
            base_revision, used_bytes=self._header.size_bytes, size_bytes_min=size_bytes_min
        )
        try:
            opened = self._file_factory(path)
        except OSError as error:
            # It stands behind the one in use, to which nothing may be added any more.
            raise OSError(errno.EIO, f"opening {path.name}: {error.strerror or error}") from error
        self._use(opened, header, segment.HEADER_BYTES, base_revision)

    def _try_to_write_end_marker(self) -> None:
        """No commit waits for it, and nothing is lost without it; a broken device fails the next commit."""
        try:
            with self._file_lock:
                self._write_end_marker()
        except OSError as error:
            if not self._is_end_marker_failing:
                _log.warn("storage.journal.mark_failed", reason=str(error))
            self._is_end_marker_failing = True
        else:
            self._is_end_marker_failing = False

    def _write_end_marker(self) -> None:
        if self._file is None or self._error is not None or self._offset == segment.HEADER_BYTES:
            return
        self._file.pwrite(segment.encode_end_marker(self._salt, self._revision), self._offset)

    def _check_room(self) -> None:
        """Leave the engine room to flush: a full device must meet us here, where nothing is half done."""
        now_s = time.monotonic()
        if now_s >= self._room_checked_s + ROOM_CHECK_S:
            self._room.check()
            self._room_checked_s = now_s

    def _fail(self, error: StorageError, *, is_fatal: bool) -> None:
        with self._lock:
            self._error = error
            self._queue = []
        self._loop.call_soon_threadsafe(self._failed, error, is_fatal)

    def _failed(self, error: StorageError, is_fatal: bool) -> None:
        """On the loop: what was staged on the lost group is lost with it; then, if the disk may get better, go on."""
        self._store.failed(error, problem=error if is_fatal else None)
        if not is_fatal:
            with self._lock:
                self._error = None


def _read_only(folder: Path, error: OSError) -> StoreReadOnly:
    """After a failed write or sync it is unknown what the device has: only opening the store again tells."""
    return StoreReadOnly(
        f"writing the journal in {folder} failed ({error.strerror or error}) and the store is read-only; check the "
        "device and its file system, then restart: what was not acknowledged is decided then; reads go on meanwhile"
    )
