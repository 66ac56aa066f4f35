"""`holdfast` whose failpoints are armed by SIGUSR1: what the file `failpoints` beside it names; then the file is gone.

So what a process does to begin meets none of them.
"""

import signal
from pathlib import Path

from holdfast.cli.main import app
from holdfast.common import failpoint

FAILPOINTS = Path("failpoints")


def arm(*_: object) -> None:
    failpoint.arm(FAILPOINTS.read_text())
    FAILPOINTS.unlink()


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, arm)
    app()
