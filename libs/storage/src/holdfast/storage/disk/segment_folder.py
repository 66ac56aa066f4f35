"""The folder of the journal: segments named by the revision before their first, spares for the next ones.

<20 digits>.segment   in use, or full and waiting for a flush of the engine
<16 hex>.spare        the next segment, allocated ahead, or a full one that is not needed any more
allocating.*          on its way to be one of them; removed at the next start
"""

import errno
import os
import secrets
import threading
from itertools import pairwise
from pathlib import Path

from holdfast.storage.disk import segment
from holdfast.storage.disk.room import Room
from holdfast.storage.disk.segment import SegmentHeader, allocate
from holdfast.storage.whole_file import sync_folder

FIRST_SEGMENT_BYTES = 2 << 20  # Each is twice the one before: a small store takes little.
BLOCK_BYTES = 4096


class SegmentFolder:
    """Makes segments and does away with them. `used_bytes` is the size of the one in use, 0 before there is one."""

    def __init__(self, folder: Path, segment_bytes_max: int, room: Room) -> None:
        self._folder = folder
        self._segment_bytes_max = segment_bytes_max
        self._room = room
        self._spare_lock = threading.Lock()  # One thread at a time prepares a spare.

    def begin(self) -> None:
        """Make the folder, or clear what an earlier process left."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        # A spare is not trusted over a restart: it may have holes if the folder was copied meanwhile.
        for left_over in [*self._folder.glob("allocating.*"), *self._folder.glob("*.spare")]:
            left_over.unlink()

    def segments(self) -> list[Path]:
        return sorted(self._folder.glob("*.segment"))

    def create(
        self, base_revision: int, *, used_bytes: int, size_bytes_min: int
    ) -> tuple[Path, SegmentHeader]:
        """A new segment, durable under its name."""
        size_bytes = max(self._next_bytes(used_bytes), _whole_blocks(size_bytes_min))
        blank = self._folder / "allocating.now"
        if not self._take_spare(size_bytes, blank):
            allocate(blank, size_bytes)
        header = SegmentHeader(2, secrets.randbits(32), base_revision, blank.stat().st_size)
        with blank.open("r+b") as file:
            file.write(segment.encode_header(header))
            file.seek(header.records_limit)
            file.write(segment.encode_tail(header))
            file.flush()
            os.fsync(file.fileno())
        path = self._folder / f"{base_revision:020d}.segment"
        blank.rename(path)
        try:
            sync_folder(self._folder)
        except OSError as error:
            # Whether it is there after a crash is not known: nothing may be added to the one before it any more.
            raise OSError(errno.EIO, f"starting {path.name}: {error.strerror or error}") from error
        return path, header

    def _take_spare(self, size_bytes: int, path: Path) -> bool:
        """A thread that prepares the next one may remove it meanwhile, because it is too small for that."""
        spare = self._spare_of(size_bytes)
        if spare is None:
            return False
        try:
            spare.rename(path)
        except FileNotFoundError:
            return False
        return True

    def prepare_spare(self, used_bytes: int) -> None:
        """Have the next segment ready before it is needed. Blocking."""
        with self._spare_lock:
            size_bytes = self._next_bytes(used_bytes)
            if self._spare_of(size_bytes) is not None or self._room.problem() is not None:
                return
            for too_small in self._folder.glob("*.spare"):
                too_small.unlink()
            half_done = self._folder / "allocating.ahead"
            allocate(half_done, size_bytes)
            self._keep_as_spare(half_done)

    def release(self, flushed_revision: int, used_bytes: int) -> None:
        """Reuse or remove the segments that end at or before `flushed_revision`. Blocking."""
        for path, successor in pairwise(self.segments()):
            if int(successor.stem) <= flushed_revision:
                self._retire(path, used_bytes)

    def _retire(self, path: Path, used_bytes: int) -> None:
        is_wanted = path.stat().st_size >= self._next_bytes(used_bytes) and segment.is_reusable(path)
        if is_wanted and not list(self._folder.glob("*.spare")):
            self._keep_as_spare(path)
        else:
            path.unlink()

    def _keep_as_spare(self, path: Path) -> None:
        path.rename(self._folder / f"{secrets.token_hex(8)}.spare")

    def _next_bytes(self, used_bytes: int) -> int:
        return _whole_blocks(min(self._segment_bytes_max, max(FIRST_SEGMENT_BYTES, 2 * used_bytes)))

    def _spare_of(self, size_bytes: int) -> Path | None:
        return next((path for path in self._folder.glob("*.spare") if _size_of(path) >= size_bytes), None)


def _size_of(path: Path) -> int:
    """-1 for one that was removed since it was found."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1


def _whole_blocks(size_bytes: int) -> int:
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES
