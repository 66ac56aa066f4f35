"""Calls to other nodes, with the HTTP clients opened at the first call: a node without a cluster rarely makes one."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from holdfast.common.settings import PlaneSettings
from holdfast.txn.cluster.peers import PeerAnswer, PeerPort, Role

OpenPeers = Callable[[PlaneSettings], AbstractAsyncContextManager[PeerPort]]


class LatePeers:
    """The `PeerPort` of a node whose clients `stack` closes."""

    def __init__(self, settings: PlaneSettings, stack: AsyncExitStack) -> None:
        self._settings = settings
        self._stack = stack
        self._opening = asyncio.Lock()
        self._peers: PeerPort | None = None

    async def call(
        self,
        endpoint: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        timeout_s: float,
        role: Role = Role.CLIENT,
        headers: Mapping[str, str] | None = None,
    ) -> PeerAnswer:
        peers = await self.opened()
        return await peers.call(endpoint, path, body, timeout_s=timeout_s, role=role, headers=headers)

    async def opened(self) -> PeerPort:
        """Raises InvalidBundle when a certificate that the calls show can't be read."""
        async with self._opening:
            if self._peers is None:
                open_peers = await asyncio.to_thread(_import_open_peers)
                self._peers = await self._stack.enter_async_context(open_peers(self._settings))
            return self._peers


def _import_open_peers() -> OpenPeers:
    # httpx, with its own command line, takes a tenth of the start of a process.
    from holdfast.txn.cluster.peers_http import open_peers

    return open_peers
