"""The guard of the unit tests refuses every process and every connection, and lets socketpairs and threads be."""

import asyncio
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from tests.unit.conftest import Guard


def listen() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))


def connect() -> None:
    with socket.socket() as caller:
        caller.connect(("127.0.0.1", 9))


def run_in_a_loop() -> None:
    asyncio.run(_exec())


async def _exec() -> None:
    await asyncio.create_subprocess_exec(sys.executable, "-c", "")


REFUSED: dict[str, Callable[[], object]] = {
    "program": lambda: subprocess.run([sys.executable, "-c", ""], check=True),
    "program in a loop": run_in_a_loop,
    "shell": lambda: os.system("true"),
    "fork": os.fork,
    "posix_spawn": lambda: os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {}),
    "multiprocessing fork": lambda: multiprocessing.get_context("fork").Process(target=listen).start(),
    "multiprocessing spawn": lambda: multiprocessing.get_context("spawn").Process(target=listen).start(),
    "listener": listen,
    "connection": connect,
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_process_or_a_connection_is_refused(name: str, no_process_and_no_connection: Guard) -> None:
    with pytest.raises(AssertionError, match="a unit test does without"):
        REFUSED[name]()

    assert no_process_and_no_connection.refused
    no_process_and_no_connection.refused.clear()


@pytest.mark.parametrize("server", ["postgres_server", "redis_server"])
def test_a_server_is_refused(request: pytest.FixtureRequest, server: str) -> None:
    with pytest.raises(pytest.fail.Exception, match="a unit test does without"):
        request.getfixturevalue(server)


def test_threads_and_socketpairs_are_not() -> None:
    near, far = socket.socketpair()
    sender = threading.Thread(target=near.sendall, args=(b"x",))
    sender.start()

    assert far.recv(1) == b"x"

    sender.join()
    near.close()
    far.close()
