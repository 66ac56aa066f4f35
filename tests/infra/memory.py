"""How much memory other processes take while something large passes through them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MIB: Final = 1 << 20
EXTRA_BYTES_MAX: Final = 64 * MIB


@contextmanager
def taking_little_memory(*pids: int) -> Iterator[None]:
    """At no time in this block does one of these processes hold EXTRA_BYTES_MAX more than before."""
    before_bytes = {pid: _resident_bytes(pid, "VmRSS") for pid in pids}
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # From here on the peak counts anew.
    yield
    extra_bytes = [_resident_bytes(pid, "VmHWM") - before_bytes[pid] for pid in pids]
    assert max(extra_bytes) < EXTRA_BYTES_MAX, extra_bytes


def _resident_bytes(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
