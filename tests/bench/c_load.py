"""The load in C (`load.c`): compiled when it is first needed, and the load in Python where no compiler is found.

What is compiled lies below the system's temporary folder, by the hash of its source; the tree stays as it is.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast.cli.bench.load import WARM_UP_S, LoadJob
from holdfast.cli.bench.measure import BenchError, python_load

SOURCE: Final = Path(__file__).with_name("load.c")
COMPILERS: Final = ("cc", "gcc", "clang")
FLAGS: Final = ("-O2", "-std=gnu11", "-Wall", "-Wextra")
KINDS: Final = ("lock", "transaction", "read", "attachment", "queue", "query")
LINES: Final = "lines"
"""Locks over TCP, which the load in Python does not know; nor does it know these."""
KEYS: Final = ("update", "put", "range")
"""An update under a lease that lasts, a put and a range of a key in etcd's way."""
LOOPBACK: Final = ("127.0.0.1", "localhost")
COMPILE_S_MAX: Final = 120


def command(job: LoadJob, *, warm_up_s: float = WARM_UP_S) -> Sequence[str]:
    """The program that does this job, and its arguments; for `drive`."""
    if find_compiler() is None or job.kind not in (*KINDS, *KEYS, LINES) or job.host not in LOOPBACK:
        return python_load(job)
    amounts = (
        "--clients",
        job.concurrency,
        "--seconds",
        job.seconds,
        "--keys",
        job.keys,
        "--warm-up",
        warm_up_s,
    )
    forms = (("--new-connections", not job.is_keep_alive), ("--fresh-keys", job.is_fresh_keys))
    return [
        str(program()),
        str(job.port),
        job.kind,
        *map(str, amounts),
        *(name for name, is_wanted in forms if is_wanted),
    ]


def name() -> str:
    """Which load it is, for a reader of the figures."""
    return "Python (no C compiler was found)" if find_compiler() is None else "C"


def find_compiler() -> str | None:
    """Only Linux has epoll."""
    found = (shutil.which(each) for each in COMPILERS) if sys.platform == "linux" else iter(())
    return next((path for path in found if path is not None), None)


@functools.cache
def program() -> Path:
    compiler = find_compiler()
    assert compiler is not None
    text = " ".join((compiler, *FLAGS)).encode() + SOURCE.read_bytes()
    path = _folder() / f"load-{hashlib.sha256(text).hexdigest()[:16]}"
    if not path.exists():
        _compile(compiler, path)
    return path


def _compile(compiler: str, path: Path) -> None:
    """Renamed when it is complete: other processes may compile the same."""
    half_made = path.with_name(f"{path.name}.{os.getpid()}")
    words = [compiler, *FLAGS, "-o", str(half_made), str(SOURCE)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=COMPILE_S_MAX, check=False)
    if done.returncode != 0:
        raise BenchError(f"{compiler} cannot compile {SOURCE.name}: {done.stderr[-1000:]}")
    half_made.replace(path)


def _folder() -> Path:
    """No other user may write there: what lies in it is run."""
    folder = Path(tempfile.gettempdir()) / f"holdfast-bench-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if folder.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise BenchError(f"{folder}: others can write there, so nothing in it is run; remove it")
    return folder
