"""One process owns a store on disk; a second one is told who."""

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from holdfast.storage.errors import StoreLocked


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Hold the folder, made if it is missing, for this process. The lock goes with the process, however it ends."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "owner"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreLocked(
                f"the store {folder} is in use by {_holder(path)}; stop that process, or use another folder"
            ) from error
        me = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat("T", "seconds"),
        }
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(me).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _holder(path: Path) -> str:
    try:
        holder = json.loads(path.read_text())
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError):
        return "another process"
