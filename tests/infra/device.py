"""A device under the journal: it says itself what it has synced, fails and takes its time as it is told, and can be copied
in the moment of a power cut.

What was written and not synced is in its cache alone. A power cut keeps any of its sectors, and each old or new as a whole.
"""

import errno
import os
import random
import shutil
import struct
import threading
import time
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import SimpleNamespace

from holdfast.storage.disk import segment
from holdfast.storage.disk.segment import DiskFile

GATE_TIMEOUT_S = 30
COPIES_MAX = 10
_RECORD_HEAD = struct.Struct(">4sIIIQ")


class Fault(Enum):
    """How a synced write fails: by which error, and how much of it the device has all the same."""

    EIO_NOTHING = (errno.EIO, 0.0)
    EIO_SOME = (errno.EIO, 0.5)
    EIO_ALL = (errno.EIO, 1.0)
    FULL_NOTHING = (errno.ENOSPC, 0.0)
    FULL_SOME = (errno.ENOSPC, 0.5)
    FULL_ALL = (errno.ENOSPC, 1.0)

    @property
    def is_fatal(self) -> bool:
        return self.value[0] == errno.EIO


@dataclass(slots=True)
class CachedWrite:
    """Bytes that the device has not synced."""

    path: Path
    data: bytes
    offset: int


class Device:
    """One for each life of a store. `gate` holds up the journal's thread, never the loop."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # Held for each change of a real file, and for a copy of all.
        self.gate = threading.Event()
        self.gate.set()
        self.is_syncing = threading.Event()
        self.faults: deque[Fault] = deque()
        self.random = random.Random(0)
        self.sync_s = 0.0
        self.now_s = 0.0
        self.synced_revision = 0
        self.by_loop = self.by_thread = 0  # Who synced how many records.
        self.cached: list[CachedWrite] = []
        self._loop_thread = threading.get_ident()

    def open(self, path: Path) -> "DeviceFile":
        return DeviceFile(self, path)

    def clock(self) -> SimpleNamespace:
        """In place of the module `time` in the journal: what a sync takes is what it is told to take."""
        return SimpleNamespace(perf_counter=lambda: self.now_s, monotonic=time.monotonic)

    def wait(self) -> None:
        if threading.get_ident() == self._loop_thread:
            return
        self.is_syncing.set()
        assert self.gate.wait(GATE_TIMEOUT_S), "the gate was left closed"

    def note(self, data: bytes) -> None:
        """Read what a record says of itself: the journal's own account is what is on trial."""
        magic, _, _, count, revision = _RECORD_HEAD.unpack_from(data.ljust(_RECORD_HEAD.size))
        if magic != b"HFJR" or not count:
            return
        self.synced_revision = max(self.synced_revision, revision)
        if threading.get_ident() == self._loop_thread:
            self.by_loop += 1
        else:
            self.by_thread += 1

    def copy(
        self, source: Path, target: Path, seed: int, at_rest: AbstractContextManager[object] | None = None
    ) -> None:
        """What is in the folder when the power goes out now. Nothing is synced meanwhile, so the engine goes last; `at_rest`
        keeps it from being flushed."""
        with at_rest or nullcontext(), self.lock:
            target.mkdir()
            for part in ("journal", "blobs", "shelf"):
                _copy_living(source / part, target / part)
            for entry in source.iterdir():
                if entry.is_file():
                    shutil.copy2(entry, target)
            rng = random.Random(seed)
            keeps = rng.choice([0.0, 0.5, 1.0])
            for write in self.cached:
                copied = target / "journal" / write.path.name
                if copied.exists():
                    _keep_sectors(copied, write.data, write.offset, keeps, rng)


class DeviceFile(DiskFile):
    """A journal file on it."""

    def __init__(self, device: Device, path: Path) -> None:
        super().__init__(path)
        self._path = path
        self._device = device

    def pwrite(self, data: bytes, offset: int) -> None:
        with self._device.lock:
            self._device.cached.append(CachedWrite(self._path, data, offset))

    def pwrite_synced(self, data: bytes, offset: int) -> None:
        device = self._device
        self.pwrite(data, offset)
        device.wait()
        with device.lock:
            device.now_s += device.sync_s
            if not device.faults:
                self.sync()
                return
            device.cached.pop()
            self.sync()
            error, share = device.faults.popleft().value
            _keep_sectors(self._path, data, offset, share, device.random)
        raise OSError(error, os.strerror(error))

    def sync(self) -> None:
        """Without asking the real device, which would only take its time."""
        with self._device.lock:
            mine = [write for write in self._device.cached if write.path == self._path]
            for write in mine:
                super().pwrite(write.data, write.offset)
                self._device.note(write.data)
                self._device.cached.remove(write)


def _keep_sectors(path: Path, data: bytes, offset: int, share: float, rng: random.Random) -> None:
    """Each sector with that probability."""
    with path.open("r+b") as file:
        at = 0
        while at < len(data):
            sector_end = min(len(data), at + segment.SECTOR_BYTES - (offset + at) % segment.SECTOR_BYTES)
            if rng.random() < share:
                file.seek(offset + at)
                file.write(data[at:sector_end])
            at = sector_end


def _copy_living(source: Path, target: Path) -> None:
    """Files are prepared and removed in the background: a copy that missed one is made again."""
    for _ in range(COPIES_MAX):
        try:
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("allocating.*", "*.spare"))
        except (shutil.Error, FileNotFoundError):
            shutil.rmtree(target)
        else:
            return
    raise AssertionError(f"{source} never held still")
