"""A plane in a process of its own, which a test may stop, kill and start again."""

import asyncio
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from holdfast.client.aio.client import AsyncClient
from holdfast.client.options import ClientOptions
from holdfast.client.sync.client import Client
from holdfast.client.testing.chaos import Chaos, ChaosProxy

_PROGRAM: Final = "from holdfast.cli.main import app; app(prog_name='holdfast')"
_READY: Final = "holdfast is ready at "
_LINE_BYTES_MAX: Final = 64 * 1024


class TestServer:
    """`with TestServer() as server` or `async with`: `server.url` is where it listens.

    `store` is kept over `restart`, if it is one that lasts: `disk` makes one in the server's own folder. With
    `chaos`, `url` leads through a proxy that misbehaves; `direct_url` does not. `flags` go to `holdfast serve`.
    """

    __test__ = False  # Its name is not meant for pytest.

    def __init__(
        self,
        *flags: str,
        store: str = "mem://",
        listen: Literal["tcp", "unix"] = "tcp",
        chaos: Chaos | None = None,
        options: ClientOptions | None = None,
        environ: Mapping[str, str] | None = None,
        start_timeout_s: float = 30.0,
        stop_timeout_s: float = 30.0,
    ) -> None:
        self.flags = flags
        self.store = store
        self.direct_url = ""
        self._listen = listen
        self._chaos = chaos
        self._options = options
        self._environ = dict(environ or {})
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._address = ""
        self._proxy: ChaosProxy | None = None
        self._stack = ExitStack()

    # Life

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-test-"))
        self._stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
        if self.store == "disk":
            self.store = f"disk://{self._folder}/store"
        try:
            self.start()
            if self._chaos is not None:
                self._proxy = self._stack.enter_context(ChaosProxy(self.direct_url, self._chaos))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()
        self._stack.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def start(self) -> None:
        """Start the process, and return when it says where it listens."""
        assert self._process is None, "the server runs already"
        assert self._folder is not None, "enter the server first"
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, "serve", *self._arguments()],
                cwd=self._folder,
                env={**_inherited(), "HOME": str(self._folder), **self._environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        line = self._first_line()
        if not line.startswith(_READY):
            self.abort()
            raise RuntimeError(f"the server did not start: {line.strip()}\n{self.log()[-2000:]}")
        self.direct_url = line.removeprefix(_READY).split()[0].rstrip(",")
        self._address = self.direct_url.partition("://")[2]

    def _arguments(self) -> list[str]:
        if self._listen == "unix":
            where = ["--listen-proto", "unix", "--listen", f"{self._folder}/plane.sock"]
        else:
            # The port of the first start is kept: clients find a restarted server where it was.
            where = ["--listen", self._address or "127.0.0.1:0"]
        return ["--store", self.store, *where, *self.flags]

    def _first_line(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline_s = time.monotonic() + self._start_timeout_s
        line = b""
        while not line.endswith(b"\n") and len(line) < _LINE_BYTES_MAX:
            is_readable, _, _ = select.select([descriptor], [], [], max(0.0, deadline_s - time.monotonic()))
            piece = os.read(descriptor, 4096) if is_readable else b""
            if not piece:
                break
            line += piece
        return line.decode("utf-8", "replace")

    def stop(self) -> int:
        """Drain and stop, as an operator would; gives the exit status."""
        return self._end(signal.SIGTERM)

    def abort(self) -> None:
        """Crash: no drain, no goodbye."""
        if self._process is not None:
            self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Crash, and start again on the same store and address."""
        self.abort()
        self.start()

    def _end(self, number: signal.Signals) -> int:
        process = self._process
        assert process is not None and process.stdout is not None, "the server does not run"
        self._process = None
        process.send_signal(number)
        try:
            return process.wait(self._stop_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
        finally:
            process.stdout.close()

    # Use

    @property
    def url(self) -> str:
        """Where clients connect: through the chaos proxy, if there is one."""
        return self.direct_url if self._proxy is None else self._proxy.url

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server does not run"
        return self._process.pid

    def client(self, *more_servers: str, options: ClientOptions | None = None) -> Client:
        """A client of this server (and others); closed by the caller."""
        return Client(self.url, *more_servers, options=options or self._options)

    def async_client(self, *more_servers: str, options: ClientOptions | None = None) -> AsyncClient:
        """The same for asyncio."""
        return AsyncClient(self.url, *more_servers, options=options or self._options)

    def log(self) -> str:
        """What the server has written so far."""
        assert self._folder is not None, "enter the server first"
        return (self._folder / "server.log").read_text("utf-8", "replace")


def _inherited() -> dict[str, str]:
    """Nothing of this process but how programs and modules are found: settings in the environment stay outside."""
    return {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
