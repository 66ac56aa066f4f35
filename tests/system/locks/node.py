"""A plane in a process of its own with the listener for locks, and clients of that."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import Any, Final

from holdfast.common.logging import configure_logging
from holdfast.common.serving.process import listeners_of
from holdfast.common.serving.server import ServeOptions, serve
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from tests.wire.dflockd.conftest import Client

READY_S: Final = 60.0
_POLL_S: Final = 0.02


def run_locks(flags: dict[str, Any]) -> None:
    """The life of one process."""
    configure_logging("error")
    settings = GatewaySettings.isolated(**{"qrf_disabled": True, **flags})
    app = create_app(settings)
    options = ServeOptions(drain_grace_s=0, shutdown_timeout_s=2)
    serve(app, *listeners_of(app, settings), options=options)


class LockNode:
    """One process; `flags` name its ports."""

    def __init__(self, processes: ForkServerContext, flags: dict[str, Any]) -> None:
        self._context = processes
        self._flags = flags
        self.process: BaseProcess | None = None

    def start(self) -> None:
        self.process = self._context.Process(target=run_locks, args=(self._flags,), daemon=True)
        self.process.start()

    def kill(self) -> None:
        """As kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.join()

    def signal(self, number: int) -> None:
        assert self.process is not None
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    async def connect(self) -> Client:
        host, _, port = self._flags["tcp_listen"].rpartition(":")
        return Client(*await asyncio.open_connection(host, int(port)))

    async def ready(self) -> None:
        """Return when it answers."""
        deadline_s = time.monotonic() + READY_S
        while True:
            try:
                client = await self.connect()
            except OSError:
                assert self.process is not None
                assert self.process.is_alive(), "it has died"
                assert time.monotonic() < deadline_s, "it does not answer"
                await asyncio.sleep(_POLL_S)
                continue
            assert await client.ask("ping") == "ok"
            client.close()
            return


@asynccontextmanager
async def lock_node(processes: ForkServerContext, **flags: Any) -> AsyncIterator[LockNode]:
    node = LockNode(processes, flags)
    node.start()
    try:
        await node.ready()
        yield node
    finally:
        node.kill()
