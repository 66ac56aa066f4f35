"""What ends a command whose `holdfast lock` was killed, so that no command works on a key that is no longer held.

SIGKILL can't be caught, so two others watch: the kernel of Linux, which kills a child as soon as its parent is gone, and a
guard, a small process that kills the whole group of the command, and so what the command started. The guard runs before the
command does, and the command's process tells it its group before it becomes the command: nothing can start in between.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

_PR_SET_PDEATHSIG: Final = 1
_DONE: Final = b"."

# Standard input is a pipe whose other end only the lock has: first comes the group, then a word if all is well, or the
# end without one when the lock was killed.
_GUARD: Final = """
import os, signal
group, told = b"", b"-"
while told and not group.endswith(b"\\n"):
    told = os.read(0, 1)
    group += told
if group and not os.read(0, 1):
    try:
        os.killpg(int(group), signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


def prepared(guard: "Guard | None") -> Callable[[], None] | None:
    """To be called in a child between fork and exec; None where there is nothing to do.

    The main thread must start the child: for the kernel the thread that forked is the parent.
    """
    parent = os.getpid()
    prctl = _prctl()  # Loaded before the fork, not after it.

    def prepare() -> None:
        if guard is not None:
            guard.watch(os.getpid())
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(128 + signal.SIGKILL)  # It was gone before the kernel was asked.

    return None if guard is None and prctl is None else prepare


def _prctl() -> Callable[..., Any] | None:
    return ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None


class Guard:
    """Kills the process group that it watches when this process is gone, unless it was dismissed before."""

    def __init__(self) -> None:
        end, self._ours = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _GUARD],
                stdin=end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,  # A signal to our own group must not reach it.
            )
        except OSError:
            os.close(self._ours)
            raise
        finally:
            os.close(end)

    def watch(self, group: int) -> None:
        os.write(self._ours, b"%d\n" % group)

    def dismiss(self) -> None:
        """The command has ended, and what it left behind may go on. Does not wait for the guard to see it."""
        with suppress(OSError):  # A guard that is gone kills no process.
            os.write(self._ours, _DONE)
        os.close(self._ours)
