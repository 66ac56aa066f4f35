"""A plane of five processes over one PostgreSQL: each can be killed at a named step and started again."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import Any, Final

import httpx
from fastapi import FastAPI

from holdfast.common import failpoint
from holdfast.common.listener import Listener
from holdfast.common.logging import configure_logging
from holdfast.common.role import SERVICES, Role
from holdfast.common.server import ServeOptions, serve
from holdfast.gateway.app import create_app as create_gateway
from holdfast.gateway.queue_role import create_app as create_queue
from holdfast.gateway.settings import GatewaySettings
from holdfast.leases.app import create_app as create_leases
from holdfast.leases.settings import LeasesSettings
from holdfast.queue.settings import QueueSettings
from holdfast.state.app import create_app as create_state
from holdfast.state.settings import StateSettings
from holdfast.txn.app import create_app as create_txn
from holdfast.txn.settings import TxnSettings

READY_S: Final = 30.0
HEAL_S: Final = 30.0
_POLL_S: Final = 0.05
_CREATORS: Final[dict[Role, Callable[[dict[str, Any]], FastAPI]]] = {
    Role.GATEWAY: lambda flags: create_gateway(GatewaySettings.isolated(**flags), Role.GATEWAY),
    Role.LEASES: lambda flags: create_leases(LeasesSettings.isolated(**flags)),
    Role.STATE: lambda flags: create_state(StateSettings.isolated(**flags)),
    Role.QUEUE: lambda flags: create_queue(QueueSettings.isolated(**flags)),
    Role.TXN: lambda flags: create_txn(TxnSettings.isolated(**flags)),
}


def run_role(role: Role, port: int, flags: dict[str, Any], failpoints: str) -> None:
    """The life of one process."""
    failpoint.arm(failpoints)
    configure_logging("error")
    options = ServeOptions(drain_grace_s=0, shutdown_timeout_s=2)
    serve(_CREATORS[role](flags), Listener(f"127.0.0.1:{port}"), options=options)


class SplitPlane:
    """Started in `running`; talk to it through `client`, which is the gateway."""

    def __init__(self, processes: ForkServerContext, store_url: str, **settings: object) -> None:
        self._context = processes
        self._ports = dict(zip(_CREATORS, _free_ports(len(_CREATORS)), strict=True))
        peers = {f"peer_{role}": f"http://127.0.0.1:{self._ports[role]}" for role in SERVICES}
        self._flags: dict[str, Any] = {
            "store": store_url,
            "internal_secret": "a secret for the tests alone",
            "qrf_disabled": True,
            "tc_fanout_attempts": 2,
            "txn_replay_interval_s": 1,
            **peers,
            **settings,
        }
        self._processes: dict[Role, BaseProcess] = {}
        self.client: httpx.AsyncClient

    def start(self, role: Role, failpoints: str = "") -> None:
        arguments = (role, self._ports[role], self._flags, failpoints)
        process = self._context.Process(target=run_role, args=arguments, name=role.value, daemon=True)
        process.start()
        self._processes[role] = process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._ports[Role.GATEWAY]}"

    def pid(self, role: Role) -> int:
        pid = self._processes[role].pid
        assert pid is not None
        return pid

    async def restart(self, role: Role, failpoints: str = "") -> None:
        """Kill it if it lives, and wait until it is back."""
        self.kill(role)
        self.start(role, failpoints)
        for other in (role, Role.GATEWAY):
            await self.ready(other)

    def kill(self, role: Role) -> None:
        process = self._processes[role]
        process.kill()
        process.join()

    async def died(self, role: Role) -> None:
        """Return when a process has killed itself."""
        await self.until(lambda: _now(not self._processes[role].is_alive()))

    async def ready(self, role: Role) -> None:
        await self.until(lambda: self._answers(role, "/readyz"))

    async def until(self, condition: Callable[[], Any], timeout_s: float = READY_S) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not await condition():
            assert time.monotonic() < deadline_s, "it did not come to pass in time"
            await asyncio.sleep(_POLL_S)

    @asynccontextmanager
    async def running(self, **failpoints: str) -> AsyncIterator["SplitPlane"]:
        try:
            for role in _CREATORS:
                self.start(role, failpoints.get(role, ""))
            async with httpx.AsyncClient(base_url=self.url, timeout=40) as self.client:
                for role in _CREATORS:
                    await self.ready(role)
                yield self
        finally:
            for process in self._processes.values():
                process.kill()
                process.join()

    async def _answers(self, role: Role, path: str) -> bool:
        assert self._processes[role].is_alive(), f"{role} has died"
        try:
            answer = await self.client.get(f"http://127.0.0.1:{self._ports[role]}{path}")
        except httpx.TransportError:
            return False
        return answer.status_code == 200


async def _now(value: bool) -> bool:
    return value


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
