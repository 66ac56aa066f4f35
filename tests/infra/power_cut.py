"""A file system of its own that loses everything unsynced on command, as a power cut does. Needs root."""

import fcntl
import os
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN
_NO_LOG_FLUSH = 2
UNMOUNT_ATTEMPTS = 25


@contextmanager
def ext4(image: Path, folder: Path, *, create: bool) -> Iterator[None]:
    """Mount the image file at the folder for the length of the block."""
    folder.mkdir(exist_ok=True)
    if create:
        with image.open("wb") as file:
            file.truncate(256 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=True)
    try:
        yield
    finally:
        _unmount(folder)


def _unmount(folder: Path) -> None:
    """On a busy machine the last handle of a killed process goes a moment after the process."""
    for _ in range(UNMOUNT_ATTEMPTS - 1):
        if subprocess.run(["umount", str(folder)], capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.2)
    subprocess.run(["umount", str(folder)], check=True)


def cut_power(folder: Path) -> None:
    """From now on the file system answers EIO; what was not synced is gone at the next mount."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("i", _NO_LOG_FLUSH))
    finally:
        os.close(descriptor)
