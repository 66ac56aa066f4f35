"""A shell that works with a plane, as a user's would."""

import os
import subprocess
import sys
from pathlib import Path

from holdfast.client.testing import TestServer

BIN = str(Path(sys.executable).parent)
TIMEOUT_S = 120


def shell(server: TestServer, folder: Path, script: str) -> "subprocess.CompletedProcess[str]":
    environment = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(folder),
        "LOCKD_CLIENT_SERVER": server.url,
    }
    return subprocess.run(
        ["sh", "-euc", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
