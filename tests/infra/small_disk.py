"""A small file system of its own for one test: a tmpfs, in a mount namespace when we are not root."""

import os
import subprocess
import sys
from pathlib import Path


def can_mount() -> bool:
    """Whether this process may have a mount of its own; some containers do not let it."""
    try:
        return subprocess.run([*_isolation(), "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def run_on_small_disk(module: str, folder: Path, size: str) -> subprocess.CompletedProcess[str]:
    """`python -m module FOLDER`, with FOLDER as the mount point of a file system of `size`."""
    script = f'mount -t tmpfs -o size={size} holdfast "$1" && shift && exec "$@"'
    inside = ["sh", "-c", script, "sh", str(folder), sys.executable, "-m", module, str(folder)]
    return subprocess.run([*_isolation(), *inside], capture_output=True, text=True, timeout=120, check=False)


def _isolation() -> list[str]:
    return ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
