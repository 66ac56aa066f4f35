"""One look at the load (LSF): what is in flight, how late the event loop is, and how the machine does."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final

BASELINE_WEIGHT: Final = 0.05

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_READ_BYTES: Final = 4096  # All that is looked for stands in the first lines.
_IDLE_COLUMNS: Final = (3, 4)  # Of the line `cpu` in /proc/stat: idle, and idle while the disk works.
_CPU_COLUMNS: Final = 8  # What virtual machines use is already in the figures of user time.


@dataclass(frozen=True, slots=True)
class InFlight:
    """Requests being served, by group; one that the throttle holds back is not counted."""

    producers: int = 0
    consumers: int = 0
    acks: int = 0
    locks: int = 0
    queries: int = 0

    @property
    def queue(self) -> int:
        return self.producers + self.consumers + self.acks

    @property
    def total(self) -> int:
        return self.queue + self.locks + self.queries


@dataclass(frozen=True, slots=True)
class HostFigures:
    """The machine and this process; a figure that the system does not tell is 0."""

    rss_bytes: int = 0
    swap_bytes: int = 0
    swap_percent: float = 0.0
    memory_percent: float = 0.0
    cpu_percent: float = 0.0
    load_1: float = 0.0
    load_5: float = 0.0
    load_15: float = 0.0
    load_baseline: float = 0.0
    load_multiplier: float = 0.0


@dataclass(frozen=True, slots=True)
class LoadSample:
    """All that the throttle decides on."""

    lag_s: float = 0.0
    in_flight: InFlight = field(default_factory=InFlight)
    host: HostFigures = field(default_factory=HostFigures)

    def shown(self) -> dict[str, float]:
        """The snapshot as log lines carry it."""
        figures = {"lag_ms": round(self.lag_s * 1000, 1)}
        for part in (self.in_flight, self.host):
            figures.update((item.name, round(getattr(part, item.name), 2)) for item in fields(part))
        return figures


class LoadBaseline:
    """The usual load: a slow moving average, never below the floor, so that waking up is not taken for a storm."""

    def __init__(self, floor: float) -> None:
        self._floor = floor
        self._average: float | None = None

    def multiplier(self, load_1: float) -> tuple[float, float]:
        """Take one more reading; the baseline, and how many times of it the load is."""
        if self._average is None:
            self._average = load_1
        self._average += BASELINE_WEIGHT * (load_1 - self._average)
        baseline = max(self._average, self._floor)
        return baseline, load_1 / baseline


class HostProbe:
    """Reads the host figures from /proc. Files stay open and are read in one call each: about 0.1 ms for all."""

    def __init__(self, *, strict_headroom_percent: float, proc: str = "/proc") -> None:
        self._headroom_percent = strict_headroom_percent
        self._proc = proc
        self._descriptors: dict[str, int] = {}
        self._baseline = LoadBaseline(floor=float(os.cpu_count() or 1))
        self._cpu_before = (0, 0)

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def read(self) -> HostFigures:
        memory = parse_meminfo(self._text("meminfo"))
        swap_bytes, swap_percent = swap_in_use(memory)
        loads = _numbers(self._text("loadavg"), 3)
        baseline, multiplier = self._baseline.multiplier(loads[0])
        return HostFigures(
            rss_bytes=int(_numbers(self._text("self/statm"), 2)[1]) * _PAGE_BYTES,
            swap_bytes=swap_bytes,
            swap_percent=swap_percent,
            memory_percent=memory_in_use_percent(memory, self._headroom_percent),
            cpu_percent=self._cpu_percent(),
            load_1=loads[0],
            load_5=loads[1],
            load_15=loads[2],
            load_baseline=baseline,
            load_multiplier=multiplier,
        )

    def _cpu_percent(self) -> float:
        """Since the last reading; the first one has nothing to compare with."""
        before, now = self._cpu_before, parse_cpu_times(self._text("stat"))
        self._cpu_before = now
        passed = now[1] - before[1]
        if before[1] == 0 or passed <= 0:
            return 0.0
        return min(100.0, max(0.0, 100.0 * (now[0] - before[0]) / passed))

    def _text(self, name: str) -> str:
        """The beginning of a file; nothing on a system that does not have it."""
        try:
            descriptor = self._descriptors.get(name)
            if descriptor is None:
                descriptor = os.open(f"{self._proc}/{name}", os.O_RDONLY | os.O_CLOEXEC)
                self._descriptors[name] = descriptor
            return os.pread(descriptor, _READ_BYTES, 0).decode("ascii", "replace")
        except OSError:
            return ""


def parse_meminfo(text: str) -> dict[str, int]:
    """Sizes in bytes by name; a line that is not a size is left out."""
    sizes: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[0].isdecimal() and words[1] == "kB":
            sizes[name] = int(words[0]) * 1024
    return sizes


def memory_in_use_percent(sizes: Mapping[str, int], strict_headroom_percent: float) -> float:
    """Memory that cannot be had back. Without `MemAvailable` caches count as used, so some headroom is taken off."""
    total = sizes.get("MemTotal", 0)
    if total <= 0:
        return 0.0
    available = sizes.get("MemAvailable")
    if available is not None:
        return max(0.0, 100.0 * (total - available) / total)
    return max(0.0, 100.0 * (total - sizes.get("MemFree", 0)) / total - strict_headroom_percent)


def swap_in_use(sizes: Mapping[str, int]) -> tuple[int, float]:
    """Bytes of the swap in use, and their share of it."""
    total = sizes.get("SwapTotal", 0)
    used = max(0, total - sizes.get("SwapFree", 0))
    return used, (100.0 * used / total if total > 0 else 0.0)


def parse_cpu_times(text: str) -> tuple[int, int]:
    """Busy and all ticks since the start of the machine; zeros when the text is something else."""
    words = text.partition("\n")[0].split()
    if not words or words[0] != "cpu":
        return 0, 0
    ticks = [int(word) for word in words[1 : _CPU_COLUMNS + 1] if word.isdecimal()]
    idle = sum(ticks[column] for column in _IDLE_COLUMNS if column < len(ticks))
    return sum(ticks) - idle, sum(ticks)


def _numbers(text: str, count: int) -> list[float]:
    """The first numbers of a text; zeros for those it does not have."""
    numbers: list[float] = []
    for word in text.split()[:count]:
        try:
            numbers.append(float(word))
        except ValueError:
            break
    return numbers + [0.0] * (count - len(numbers))
