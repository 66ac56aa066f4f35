"""Journal files with the faults of real devices, and the sizes of files that may go away meanwhile."""

import contextlib
import errno
import threading
from pathlib import Path
from typing import ClassVar

from holdfast.storage.disk.segment import RECORD_HEAD_BYTES, DiskFile


def sizes_of(folder: Path, pattern: str) -> list[int]:
    """Of every file below a folder; those that a thread of the store removes during the look do not count."""
    sizes: list[int] = []
    for path in folder.rglob(pattern):
        with contextlib.suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return sizes


class LossyFile(DiskFile):
    """Keeps what was not synced in memory only, as a device's cache does; after the cut nothing reaches the folder."""

    is_cut = False

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._cache: list[tuple[bytes, int]] = []

    def pwrite(self, data: bytes, offset: int) -> None:
        self._cache.append((data, offset))

    def pwrite_synced(self, data: bytes, offset: int) -> None:
        self.pwrite(data, offset)
        self.sync()

    def sync(self) -> None:
        for data, offset in self._cache:
            if not LossyFile.is_cut:
                super().pwrite(data, offset)
        self._cache.clear()
        super().sync()


class GatedFile(DiskFile):
    """Syncs only while the gate is open."""

    gate = threading.Event()
    is_syncing = threading.Event()

    def pwrite_synced(self, data: bytes, offset: int) -> None:
        self.is_syncing.set()
        self.gate.wait()
        super().pwrite_synced(data, offset)


class NotedFile(DiskFile):
    """Notes which thread synced each record."""

    synced_by: ClassVar[list[int]] = []

    def pwrite_synced(self, data: bytes, offset: int) -> None:
        self.synced_by.append(threading.get_ident())
        super().pwrite_synced(data, offset)


class UnmarkableFile(DiskFile):
    """Takes records, and fails when the journal, fallen idle, leaves its mark behind them."""

    has_failed = threading.Event()

    def pwrite(self, data: bytes, offset: int) -> None:
        if len(data) == RECORD_HEAD_BYTES:
            UnmarkableFile.has_failed.set()
            raise OSError(errno.EIO, "Input/output error")
        super().pwrite(data, offset)


class FullFile(DiskFile):
    """A device that can be filled and emptied by hand."""

    is_full = False

    def pwrite(self, data: bytes, offset: int) -> None:
        if FullFile.is_full:
            super().pwrite(data[: len(data) // 2], offset)
            raise OSError(errno.ENOSPC, "No space left on device")
        super().pwrite(data, offset)

    def pwrite_synced(self, data: bytes, offset: int) -> None:
        self.pwrite(data, offset)
        self.sync()


class BrokenFile(DiskFile):
    """A device whose writes fail for a while, and what it has of them is unknown."""

    is_broken = False

    def pwrite_synced(self, data: bytes, offset: int) -> None:
        if BrokenFile.is_broken:
            raise OSError(errno.EIO, "Input/output error")
        super().pwrite_synced(data, offset)
