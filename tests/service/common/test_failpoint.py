"""A failpoint that is armed by the environment kills the process."""

import os
import signal
import subprocess
import sys


def test_crash_kills_the_process_and_the_environment_arms_it() -> None:
    code = "from holdfast.common import failpoint; failpoint.hit('a'); print('alive')"
    environ = {**os.environ, "HOLDFAST_FAILPOINT": "a:crash"}

    ended = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, timeout=60, check=False
    )

    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout == b""
