"""`holdfast` on a machine whose clock is wrong: `python wrong_clock.py FILE arguments…`, the file says by how many seconds.

The file is read again whenever the time is asked for, so a test can set the clock while the process runs. The monotonic
clock is left alone, as the kernel leaves it alone.
"""

import sys
import time
from pathlib import Path

_now_ns = time.time_ns


def run(file: Path, arguments: list[str]) -> None:
    def wrong_ns() -> int:
        return _now_ns() + int(float(file.read_text() or "0") * 1e9)

    time.time_ns = wrong_ns
    time.time = lambda: wrong_ns() / 1e9
    from holdfast.cli.main import app

    sys.argv = ["holdfast", *arguments]
    app()


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:])
