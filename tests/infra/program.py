"""Server programs run by the tests themselves: a private folder, a loopback port, and no root rights."""

import contextlib
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import IO

import psutil

from tests.infra.provision import Unavailable

STOP_TIMEOUT_S = 10
_UNPRIVILEGED_USER = "nobody"
_PORTS = range(10_000, 32_000)
_tried = itertools.count(random.SystemRandom().randrange(len(_PORTS)))  # Other tests run beside this process.


def free_port() -> int:
    """A loopback port without a listener now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Different ones, and not those of an earlier call, which may not be at rest yet. None that the system gives to
    outgoing connections: one of these may take it meanwhile."""
    found: list[int] = []
    while len(found) < count:
        port = _PORTS.start + next(_tried) % len(_PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
    return found


def server_user() -> str | None:
    """PostgreSQL refuses to run as root; then it runs as nobody."""
    return _UNPRIVILEGED_USER if os.geteuid() == 0 else None


def private_folder(prefix: str) -> Path:
    """A folder that only the server's user can enter."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    if (user := server_user()) is not None:
        shutil.chown(folder, user)
    return folder


def run(path: Path, *arguments: str) -> str:
    """Run a program to its end as the server's user; raises Unavailable with its last words."""
    try:
        done = subprocess.run(
            [path, *arguments],
            user=server_user(),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(str(error)) from error
    if done.returncode != 0:
        raise Unavailable(f"{path.name} failed: {done.stderr.strip()[-300:]}")
    return done.stdout


def start(path: Path, *arguments: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a server as the server's user."""
    return subprocess.Popen(
        [path, *arguments], user=server_user(), cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log
    )


def send(process: subprocess.Popen[bytes], signal_number: int) -> list[psutil.Process]:
    """A signal to the process and everything it started; returns those."""
    try:
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
    for member in family:
        try:
            member.send_signal(signal_number)
        except psutil.NoSuchProcess:
            continue
    return family


def kill9(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the process and everything it started: nothing gets to say goodbye."""
    family = send(process, signal.SIGKILL)
    psutil.wait_procs(family[1:], timeout=STOP_TIMEOUT_S)
    process.wait(STOP_TIMEOUT_S)


def end(process: subprocess.Popen[bytes], signal_number: int) -> None:
    """Ask a server to stop, and make it stop if it does not."""
    if process.poll() is not None:
        return
    process.send_signal(signal_number)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        kill9(process)
