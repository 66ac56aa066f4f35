"""A plane of five processes over one PostgreSQL: each can be killed at a named step and started again."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from typing import Any, Final

import httpx
from fastapi import FastAPI

from holdfast.common import failpoint
from holdfast.common.logging import configure_logging
from holdfast.common.role import SERVICES, Role
from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import ServeOptions, serve
from holdfast.gateway.app import create_app as create_gateway
from holdfast.gateway.settings import GatewaySettings
from holdfast.leases.app import create_app as create_leases
from holdfast.leases.settings import LeasesSettings
from holdfast.queue.app import create_app as create_queue
from holdfast.queue.settings import QueueSettings
from holdfast.state.app import create_app as create_state
from holdfast.state.settings import StateSettings
from holdfast.txn.app import create_app as create_txn
from holdfast.txn.settings import TxnSettings
from tests.infra.program import free_ports

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


def run_armed_role(role: Role, port: int, flags: dict[str, Any], failpoints: str, is_armed: Event) -> None:
    """Its failpoints are armed by a signal: none may be met by what it does to begin."""

    def arm(*_: object) -> None:
        failpoint.arm(failpoints)
        is_armed.set()

    signal.signal(signal.SIGUSR1, arm)
    run_role(role, port, flags)


def run_role(role: Role, port: int, flags: dict[str, Any]) -> None:
    """The life of one process."""
    configure_logging("error")
    options = ServeOptions(drain_grace_s=0, shutdown_timeout_s=2)
    serve(_CREATORS[role](flags), Listener(f"127.0.0.1:{port}"), options=options)


async def until(condition: Callable[[], Any], timeout_s: float = READY_S) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not await condition():
        assert time.monotonic() < deadline_s, "it did not come to pass in time"
        await asyncio.sleep(_POLL_S)


class SplitPlane:
    """Started in `running`; talk to it through `client`, which is the gateway. Roles of `twins` run twice."""

    def __init__(
        self, processes: ForkServerContext, store_url: str, *, twins: Sequence[Role] = (), **settings: object
    ) -> None:
        self._context = processes
        self._places = [(role, 0) for role in _CREATORS] + [(role, 1) for role in twins]
        self._ports = dict(zip(self._places, free_ports(len(self._places)), strict=True))
        urls: dict[Role, list[str]] = {role: [] for role in SERVICES}
        for role, number in self._places:
            if role in urls:
                urls[role].append(self.url_of(role, number))
        peers = {f"peer_{role}": ",".join(found) for role, found in urls.items()}
        self._flags: dict[str, Any] = {
            "store": store_url,
            "internal_secret": "a secret for the tests alone",
            "qrf_disabled": True,
            "tc_fanout_attempts": 2,
            "txn_replay_interval_s": 1,
            "tcp_node_ttl_s": 3600,  # What announces a node of locks must meet no failpoint, and not be counted.
            **peers,
            **settings,
        }
        self._processes: dict[tuple[Role, int], BaseProcess] = {}
        self._armed: dict[tuple[Role, int], Event] = {}
        self.client: httpx.AsyncClient

    def start(self, role: Role, failpoints: str = "", number: int = 0) -> None:
        is_armed = self._armed[role, number] = self._context.Event()
        arguments = (role, self._ports[role, number], self._flags, failpoints, is_armed)
        process = self._context.Process(target=run_armed_role, args=arguments, name=role.value, daemon=True)
        process.start()
        self._processes[role, number] = process

    @property
    def url(self) -> str:
        return self.url_of(Role.GATEWAY)

    def url_of(self, role: Role, number: int = 0) -> str:
        """Of one process, past the gateway."""
        return f"http://127.0.0.1:{self._ports[role, number]}"

    def port(self, role: Role = Role.GATEWAY) -> int:
        return self._ports[role, 0]

    def pid(self, role: Role, number: int = 0) -> int:
        pid = self._processes[role, number].pid
        assert pid is not None
        return pid

    async def restart(self, role: Role, failpoints: str = "", number: int = 0) -> None:
        """Kill it if it lives, and wait until it is back.

        No call that the gateway still repeats for an earlier test may meet the failpoints of this one.
        """
        if failpoints:
            await self.until(self._has_finished, HEAL_S)
        self.kill(role, number)
        self.start(role, failpoints, number)
        await self.ready(role, number)
        await self.ready(Role.GATEWAY)
        if failpoints:
            os.kill(self.pid(role, number), signal.SIGUSR1)
            assert await asyncio.to_thread(self._armed[role, number].wait, READY_S)

    def kill(self, role: Role, number: int = 0) -> None:
        process = self._processes[role, number]
        process.kill()
        process.join()

    def is_alive(self, role: Role, number: int = 0) -> bool:
        return self._processes[role, number].is_alive()

    async def died(self, role: Role) -> None:
        """Return when a process has killed itself."""
        await self.until(lambda: _now(not self.is_alive(role)))

    async def ready(self, role: Role, number: int = 0) -> None:
        await self.until(lambda: self._answers(role, number, "/readyz"))

    async def until(self, condition: Callable[[], Any], timeout_s: float = READY_S) -> None:
        await until(condition, timeout_s)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["SplitPlane"]:
        try:
            for role, number in self._places:
                self.start(role, number=number)
            async with httpx.AsyncClient(base_url=self.url, timeout=40) as self.client:
                for role, number in self._places:
                    await self.ready(role, number)
                yield self
        finally:
            for process in self._processes.values():
                process.kill()
                process.join()

    async def _has_finished(self) -> bool:
        """Whether the gateway repeats and gives back nothing any more."""
        page = (await self.client.get("/metrics")).text
        return "holdfast_gateway_unfinished 0" in page.splitlines()

    async def _answers(self, role: Role, number: int, path: str) -> bool:
        assert self.is_alive(role, number), f"{role} has died"
        try:
            answer = await self.client.get(f"{self.url_of(role, number)}{path}")
        except httpx.TransportError:
            return False
        return answer.status_code == 200


async def _now(value: bool) -> bool:
    return value
