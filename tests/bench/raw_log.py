"""What the disk allows: one record after the other into a preallocated file, each synced, with nothing around it."""

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from holdfast.storage.disk.segment import allocate

SIZE_BYTES: Final = 16 << 20


class RawLog:
    """The floor that a store on the same disk is compared with."""

    def __init__(self, folder: Path, record_bytes: int) -> None:
        self._path = folder / "raw.log"
        self._record = os.urandom(record_bytes)
        self._offset = 0

    def __enter__(self) -> Self:
        allocate(self._path, SIZE_BYTES)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)
        self._path.unlink()

    def syncs_per_s(self, seconds: float) -> float:
        """Append and sync for so long; at the end of the file it begins again."""
        count = 0
        began_s = time.perf_counter()
        while (elapsed_s := time.perf_counter() - began_s) < seconds:
            os.pwrite(self._descriptor, self._record, self._offset)
            os.fdatasync(self._descriptor)
            self._offset = (self._offset + len(self._record)) % (SIZE_BYTES - len(self._record))
            count += 1
        return count / elapsed_s
