"""Identifiers: xid for leases and transactions, UUIDv7 for keys and correlation, Snowflake for messages."""

import hashlib
import itertools
import os
import platform
import random
import re
import sys
import threading
import time
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Final

from holdfast.common.clock import Clock, SystemClock

_ALPHABET = "0123456789abcdefghijklmnopqrstuv"
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]  # Ten bits a step instead of five.
_XID = re.compile(
    "[0-9a-v]{19}[0g]"
)  # 96 bits end one bit into the last character: 0 or 1 followed by zeros.

_MARK_BITS: Final = 20
_MARK_MAX: Final = (1 << _MARK_BITS) - 1


@cache
def _machine_id() -> int:
    """24 bits that tell machines and containers apart; a container often has no machine-id, but a host name."""
    try:
        installed = Path("/etc/machine-id").read_bytes()
    except OSError:
        installed = b""
    digest = hashlib.sha256(installed + b"\0" + platform.node().encode()).digest()
    return int.from_bytes(digest[:3], "big")


class _XidSource:
    """What an xid is made of besides the time; made anew in a forked child, where the pid is another."""

    def __init__(self) -> None:
        self._maker = _machine_id() << 16 | os.getpid() & 0xFFFF
        self.rest = _rest_of(self._maker)
        """What the last three pairs have besides the counter."""
        self.head: tuple[int, str] = -1, ""
        """The pairs before those, and their second: they are the same for all ids of one."""
        self.counter = itertools.count(
            int.from_bytes(os.urandom(3), "big")
        )  # next() is atomic between threads.
        self.process = int.from_bytes(os.urandom(3), "big") & _MARK_MAX
        """What a marked xid has of its process instead of machine and pid."""

    def head_of(self, second: int) -> str:
        return _head_of(second, self._maker)


def _head_of(second: int, maker: int) -> str:
    """The first seven pairs: all but the lowest bits of the maker, and the counter."""
    bits = (second << 64 | maker << 24) << 4
    return "".join(_PAIRS[bits >> shift & 1023] for shift in range(90, 20, -10))


def _rest_of(maker: int) -> int:
    return (maker << 28) & 0x3FFF_FFFF


class _Uuid7Source:
    """The last value given out, as one number of 48 bits of milliseconds and 74 bits of randomness."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.last = 0
        # Unique, not secret: a generator seeded by the system costs a tenth of asking the system each time.
        self.random_bits = random.Random(os.urandom(32)).getrandbits

    def next(self) -> int:
        now_ms = time.time_ns() // 1_000_000
        with self.lock:
            last = self.last
            # Same millisecond, or the clock went back: a random step onwards keeps the order. Running out of the
            # 74 bits carries into the next millisecond by itself.
            fresh = now_ms > last >> 74
            self.last = value = (
                now_ms << 74 | self.random_bits(74) if fresh else last + 1 + self.random_bits(32)
            )
        return value


_xids = _XidSource()
_uuids = _Uuid7Source()


def _after_fork() -> None:
    global _xids, _uuids
    _xids = _XidSource()
    _uuids = _Uuid7Source()  # Also drops a lock that some other thread of the parent may have held.


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_after_fork)


def new_xid() -> str:
    """Twenty characters: seconds, machine, process, counter; sorts by second of birth."""
    source = _xids
    second = int(time.time()) & 0xFFFF_FFFF
    head = source.head
    if head[0] != second:
        head = source.head = second, source.head_of(second)
    rest = (
        source.rest | (next(source.counter) & 0xFF_FFFF) << 4
    )  # 96 bits are padded to the 100 of twenty characters.
    return head[1] + _PAIRS[rest >> 20] + _PAIRS[rest >> 10 & 1023] + _PAIRS[rest & 1023]


class MarkedXids:
    """Xids that all who know a name tell from all others, of those of their own clients too.

    In place of machine and pid they bear 20 bits of the process and 20 that follow from the name, the process and the
    second. So an id that was made elsewhere bears a mark by chance once in a million, and not again in the next second.
    """

    def __init__(self, name: str) -> None:
        self._key = hashlib.blake2b(name.encode(), digest_size=32).digest()
        self._head: tuple[_XidSource | None, int, str, int] = None, -1, "", 0

    def new(self) -> str:
        source = _xids
        second = int(time.time()) & 0xFFFF_FFFF
        made_by, made_at, head, rest = self._head
        if made_at != second or made_by is not source:
            maker = self._mark(second, source.process) << _MARK_BITS | source.process
            head, rest = _head_of(second, maker), _rest_of(maker)
            self._head = source, second, head, rest
        rest |= (next(source.counter) & 0xFF_FFFF) << 4
        return head + _PAIRS[rest >> 20] + _PAIRS[rest >> 10 & 1023] + _PAIRS[rest & 1023]

    def has(self, xid: str) -> bool:
        """Whether this xid was made under the name."""
        bits = int(xid, 32) >> 4
        maker = bits >> 24
        return maker >> _MARK_BITS & _MARK_MAX == self._mark(bits >> 64, maker & _MARK_MAX)

    def _mark(self, second: int, process: int) -> int:
        digest = hashlib.blake2b(b"%d %d" % (second, process), digest_size=3, key=self._key).digest()
        return int.from_bytes(digest, "big") & _MARK_MAX


def is_xid(text: str) -> bool:
    """Whether `text` is an xid as `new_xid` writes it: lower case and canonical."""
    return _XID.fullmatch(text) is not None


def xid_seconds(xid: str) -> int:
    """The second of its birth, in Unix time."""
    bits = 0
    for character in xid[:7]:
        bits = bits << 5 | _ALPHABET.index(character)
    return bits >> 3


def uuid7() -> str:
    """A UUIDv7, lower case with hyphens; within one process each is greater than the one before."""
    return _uuid7_text(_uuids.next())


def uuid7_at(at_ms: int) -> str:
    """A UUIDv7 of that moment, for a caller with a clock of its own."""
    return _uuid7_text(at_ms << 74 | _uuids.random_bits(74))


def _uuid7_text(bits: int) -> str:
    return "%08x-%04x-7%03x-%04x-%012x" % (  # noqa: UP031 - a third faster than an f-string here
        bits >> 90,
        bits >> 74 & 0xFFFF,
        bits >> 62 & 0xFFF,
        bits >> 48 & 0x3FFF | 0x8000,
        bits & 0xFFFF_FFFF_FFFF,
    )


SNOWFLAKE_EPOCH_MS = 1_704_067_200_000  # 2024-01-01T00:00:00Z; 41 bits last until 2093.
SNOWFLAKE_WORKER_MAX = 1023


class Snowflake:
    """63-bit numbers that grow: 41 bits of milliseconds, 10 of worker, 12 of sequence.

    The sequence carries into the milliseconds: more than 4096 in one millisecond, or a clock that goes back, borrow
    from the time to come instead of waiting for it.
    """

    def __init__(self, worker_id: int, clock: Clock | None = None) -> None:
        if not 0 <= worker_id <= SNOWFLAKE_WORKER_MAX:
            raise ValueError(f"worker id {worker_id} is not in 0..{SNOWFLAKE_WORKER_MAX}")
        self._worker_bits = worker_id << 12
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._last = -1  # Milliseconds and sequence as one number.

    def next(self) -> int:
        """The next number, greater than every one before."""
        elapsed_ms = max(0, int(self._clock.wall_s() * 1000) - SNOWFLAKE_EPOCH_MS)
        with self._lock:
            self._last = ticks = max(self._last + 1, elapsed_ms << 12)
        return ticks >> 12 << 22 | self._worker_bits | ticks & 0xFFF


HEADER: Final = b"x-correlation-id"

_FRESH_FOR_S: Final = 0.05
_HEAD_CHARS: Final = 24
_COUNTER_MAX: Final = (1 << 48) - 1

_is_acceptable = re.compile(rb"[\x20-\x7e]{1,128}").fullmatch


class _FreshIds:
    """UUIDv7 at a fifth of the price: for a moment the last 48 bits count on from a random start.

    These ids need not be unguessable or in strict order, and every request without an id gets one.
    """

    __slots__ = ("_counter", "_head", "_until_s")

    def __init__(self) -> None:
        self._head = ""
        self._counter = _COUNTER_MAX
        self._until_s = 0.0

    def next(self) -> str:
        if monotonic() > self._until_s or self._counter >= _COUNTER_MAX:
            start = uuid7()
            self._head = start[:_HEAD_CHARS]
            self._counter = int(start[_HEAD_CHARS:], 16)
            self._until_s = monotonic() + _FRESH_FOR_S
            return start
        self._counter += 1
        return "%s%012x" % (self._head, self._counter)  # noqa: UP031 - faster than an f-string here


fresh_correlation_id = _FreshIds().next


def correlation_id(offered: bytes | None) -> str:
    """The caller's id when it is 1 to 128 printable ASCII characters after trimming, else a new UUIDv7."""
    if offered is not None:
        trimmed = offered.strip()
        if _is_acceptable(trimmed):
            return trimmed.decode("ascii")
    return fresh_correlation_id()


def correlation_id_of(headers: list[tuple[bytes, bytes]]) -> str:
    """The same, from a list of headers with lower-case names; the first of a repeated header counts."""
    for name, value in headers:
        if name == HEADER:
            return correlation_id(value)
    return fresh_correlation_id()
