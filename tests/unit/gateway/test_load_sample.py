"""What is read from /proc, and what becomes of it where something is missing."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.gateway.admission.load_sample import (
    HostFigures,
    HostProbe,
    InFlight,
    LoadBaseline,
    LoadSample,
    memory_in_use_percent,
    parse_cpu_times,
    parse_meminfo,
    swap_in_use,
)

MEMINFO = "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable: 400 kB\nSwapTotal: 200 kB\nSwapFree: 150 kB\nHugePages_Total: 3\n"


def _proc(folder: Path, **files: str) -> str:
    (folder / "self").mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", "/")).write_text(text)
    return str(folder)


def test_the_figures_of_a_machine_are_read(tmp_path: Path) -> None:
    proc = _proc(
        tmp_path,
        meminfo=MEMINFO,
        loadavg="40.0 2.0 1.0 1/100 4711\n",
        self_statm="500 7 3 1 0 9 0\n",
        stat="cpu  10 0 10 70 10 0 0 0 0 0\ncpu0 1 2 3\n",
    )
    probe = HostProbe(strict_headroom_percent=15, proc=proc)

    first = probe.read()
    _proc(tmp_path, stat="cpu  70 0 10 80 20 0 20 0 60 0\n")
    second = probe.read()
    probe.close()

    assert first.memory_percent == 60.0
    assert first.rss_bytes > 0
    assert (first.swap_bytes, first.swap_percent) == (50 * 1024, 25.0)
    assert (first.load_1, first.load_5, first.load_15) == (40.0, 2.0, 1.0)
    assert first.cpu_percent == 0.0
    assert second.cpu_percent == 80.0


def test_a_system_without_these_files_tells_nothing(tmp_path: Path) -> None:
    probe = HostProbe(strict_headroom_percent=15, proc=str(tmp_path / "missing"))

    figures = probe.read()

    assert figures.memory_percent == figures.cpu_percent == figures.load_multiplier == 0.0
    assert figures.rss_bytes == figures.swap_bytes == 0


def test_this_machine_can_be_read() -> None:
    probe = HostProbe(strict_headroom_percent=15)

    figures = probe.read()
    probe.close()

    assert isinstance(figures, HostFigures)


def test_without_available_memory_the_headroom_is_taken_off() -> None:
    sizes = parse_meminfo("MemTotal: 1000 kB\nMemFree: 100 kB\n")

    assert memory_in_use_percent(sizes, 15) == 75.0


def test_a_machine_without_swap_uses_none() -> None:
    assert swap_in_use({"SwapTotal": 0, "SwapFree": 0}) == (0, 0.0)


def test_the_usual_load_follows_slowly() -> None:
    baseline = LoadBaseline(floor=1.0)

    first = baseline.multiplier(4.0)
    second = baseline.multiplier(24.0)

    assert first == (4.0, 1.0)
    assert list(second) == pytest.approx([5.0, 4.8])


def test_waking_up_from_idle_is_no_storm() -> None:
    baseline = LoadBaseline(floor=2.0)

    baseline.multiplier(0.01)

    assert baseline.multiplier(3.0) == (2.0, 1.5)


def test_a_snapshot_shows_every_figure() -> None:
    shown = LoadSample(0.0123, InFlight(locks=3), HostFigures(cpu_percent=12.25)).shown()

    assert shown["lag_ms"] == 12.3
    assert shown["locks"] == 3
    assert shown["cpu_percent"] == 12.25
    assert {"producers", "consumers", "acks", "queries", "rss_bytes", "load_multiplier"} <= shown.keys()


@example(text="¹")  # A digit to Python, and no number.
@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    sizes = parse_meminfo(text)
    busy, ticks = parse_cpu_times("cpu " + text)

    assert memory_in_use_percent(sizes, 15) >= 0.0
    assert 0 <= busy <= ticks
