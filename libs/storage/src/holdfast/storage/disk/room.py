"""The room on the device of a store, and the reserve below which nothing is written."""

import os
from pathlib import Path

from holdfast.storage.errors import RETRY_AFTER_S, StoreFull


class Room:
    """A full device must be met where nothing is half done, and the engine needs some room to flush: hence the reserve."""

    def __init__(self, folder: Path, free_bytes_min: int) -> None:
        self._folder = folder
        self._free_bytes_min = free_bytes_min

    def problem(self) -> StoreFull | None:
        """Why nothing may be written now."""
        usage = os.statvfs(self._folder)
        free_bytes = usage.f_bavail * usage.f_frsize
        if free_bytes >= self._free_bytes_min:
            return None
        return StoreFull(
            f"less than {_mib(self._free_bytes_min)} free on the device of {self._folder} ({_mib(free_bytes)} are), "
            "which is the reserve; free some space or lower --disk-reserve, and writes go on by themselves; "
            "reads go on meanwhile",
            retry_after_s=RETRY_AFTER_S,
        )

    def check(self) -> None:
        if (problem := self.problem()) is not None:
            raise problem


def _mib(size_bytes: int) -> str:
    return f"{round(size_bytes / (1 << 20), 1):g} MiB"
