"""The services of a split plane over one store, each with a server of its own, all in this process."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from fastapi import FastAPI

from holdfast.common.role import SERVICES, Role
from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import ServeOptions, running
from holdfast.leases.app import create_app as create_leases
from holdfast.leases.settings import LeasesSettings
from holdfast.queue.app import create_app as create_queue
from holdfast.queue.settings import QueueSettings
from holdfast.state.app import create_app as create_state
from holdfast.state.settings import StateSettings
from holdfast.txn.app import create_app as create_txn
from holdfast.txn.settings import TxnSettings
from tests.infra.gateway import SECRET
from tests.infra.program import free_ports

_CREATORS: Final[dict[Role, Callable[[dict[str, Any]], FastAPI]]] = {
    Role.LEASES: lambda flags: create_leases(LeasesSettings.isolated(**flags)),
    Role.STATE: lambda flags: create_state(StateSettings.isolated(**flags)),
    Role.QUEUE: lambda flags: create_queue(QueueSettings.isolated(**flags)),
    Role.TXN: lambda flags: create_txn(TxnSettings.isolated(**flags)),
}


@asynccontextmanager
async def split_services(
    store_url: str, *, is_clustered: bool = False, replicas: int = 1, **settings: object
) -> AsyncIterator[dict[str, Any]]:
    """Yields the settings that name them, once they have found each other."""
    places = [role for role in SERVICES for _ in range(replicas)]
    ports = free_ports(len(places))
    urls: dict[Role, list[str]] = {role: [] for role in SERVICES}
    for role, port in zip(places, ports, strict=True):
        urls[role].append(f"http://127.0.0.1:{port}")
    peers: dict[str, Any] = {f"peer_{role}": ",".join(found) for role, found in urls.items()}
    flags: dict[str, Any] = {"store": store_url, "internal_secret": SECRET, **peers, **settings}
    if is_clustered:
        flags["self_endpoint"] = peers["peer_txn"]
    apps = [_CREATORS[role](flags) for role in places]
    async with AsyncExitStack() as stack:
        for app, port in zip(apps, ports, strict=True):
            listener = Listener(f"127.0.0.1:{port}")
            await stack.enter_async_context(running(app, listener, options=ServeOptions(drain_grace_s=0)))
        for app in apps:
            for client in app.state.peers.clients.values():
                for peer in client.peers:
                    await peer.probe("/healthz")
        yield peers
