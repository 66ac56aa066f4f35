"""The latest moment that anything was judged by, kept in a file beside the store.

Every grant is a commit, and a commit carries its time into the journal, synced. What is left is a judgement without a
commit: a call that was refused because its lease was over. So that such a moment does not lie in the future of the
next process either, the time last asked for is written about once a second, without a sync: a crash of the process
loses a second of it, a power cut what the system had not written yet. What that can cost is a lease that lives on for
so long after it was refused as over; it cannot cost two holders, because the second one would be a commit.

An idle store asks for no time, and nothing is written.
"""

import asyncio
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from holdfast.common.logging import get_logger
from holdfast.storage.store_clock import StoreClock

INTERVAL_S: Final = 1.0
_MARK = struct.Struct(">QI")  # Unix milliseconds · CRC-32 of them
_LATEST_MS: Final = 253_402_300_800_000  # The year 10000: no clock has written that.

_log = get_logger("storage.clock")


class ClockMark:
    """The file `clock` of a store's folder."""

    def __init__(self, fd: int, clock: StoreClock, of: str) -> None:
        self._fd = fd
        self._clock = clock
        self._of = of
        self._written_ms = 0

    def restore(self) -> None:
        """Begin no earlier than the process before has judged. A torn mark counts as none: the journal has its own."""
        raw = os.pread(self._fd, _MARK.size, 0)
        if len(raw) < _MARK.size:
            return
        at_ms, checksum = _MARK.unpack(raw)
        if zlib.crc32(raw[:8]) == checksum and at_ms < _LATEST_MS:
            self._written_ms = at_ms
            self._clock.raise_to(at_ms / 1000)

    def write(self) -> None:
        last_ms = self._clock.last_ms
        if last_ms > self._written_ms:
            raw = struct.pack(">Q", last_ms)
            os.pwrite(self._fd, _MARK.pack(last_ms, zlib.crc32(raw)), 0)
            self._written_ms = last_ms

    async def run(self) -> None:
        """Keep the mark, and bring a time that is ahead of the machine's clock back to it, slowly."""
        is_failing = False
        while True:
            await asyncio.sleep(INTERVAL_S)
            self._clock.come_back(INTERVAL_S)
            self._clock.tell_lag(self._of)
            try:
                self.write()
                is_failing = False
            except OSError as error:
                # The journal carries the time of every commit; this one is for what comes between.
                if not is_failing:
                    _log.warn("storage.clock.mark_failed", reason=str(error))
                is_failing = True


@contextmanager
def open_mark(folder: Path, clock: StoreClock) -> Iterator[ClockMark]:
    fd = os.open(folder / "clock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        mark = ClockMark(fd, clock, f"disk://{folder}")
        mark.restore()
        try:
            yield mark
        finally:
            with suppress(OSError):  # The journal has the time of every commit.
                mark.write()
    finally:
        os.close(fd)
