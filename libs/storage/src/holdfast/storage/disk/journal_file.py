"""The files that the journal writes to: preallocated, overwritten in place, synced with each write."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from holdfast.storage.disk.segment import FILL_SECTOR

_FILL = FILL_SECTOR * ((1 << 20) // len(FILL_SECTOR))


class JournalFile(Protocol):
    """What the journal needs of a file; tests put one here that forgets what was not synced."""

    def pwrite(self, data: bytes, offset: int) -> None: ...

    def pwrite_synced(self, data: bytes, offset: int) -> None:
        """Write, and return when the device has it."""
        ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


JournalFileFactory = Callable[[Path], JournalFile]


class DiskFile:
    """A real file, open for writing."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def pwrite(self, data: bytes, offset: int) -> None:
        written = os.pwrite(self._descriptor, data, offset)
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], offset + written)

    def pwrite_synced(self, data: bytes, offset: int) -> None:
        # One call for both: every return into Python costs a commit more than the sync of a byte.
        if os.pwritev(self._descriptor, [data], offset, os.RWF_DSYNC) != len(data):
            self.pwrite(data, offset)
            self.sync()

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def allocate(path: Path, size_bytes: int) -> None:
    """Write the fill pattern, so that later syncs find every block in place; no file is left behind on failure."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        for at in range(0, size_bytes, len(_FILL)):
            _write_all(descriptor, _FILL[: min(len(_FILL), size_bytes - at)])
        os.fsync(descriptor)
    except BaseException:
        path.unlink()
        raise
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    """A write may stop short of a full disk; the next one then says so."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, data[written:])
