"""Connections of the blocking client, by the kind of call; httpx itself lets calls beyond the bound wait for their turn."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import httpx

from holdfast.client.wire.call import Call, Pool
from holdfast.client.wire.connection import ServerConnection


class Pools:
    """The client for each call; none of the four kinds can starve another."""

    def __init__(
        self, connection: ServerConnection, open_client: Callable[[httpx.Limits], httpx.Client]
    ) -> None:
        self._clients: dict[Pool, httpx.Client] = {
            "call": open_client(connection.limits("call")),
            "wait": open_client(connection.limits("wait")),
            "keepalive": open_client(connection.limits("keepalive")),
            "stream": open_client(connection.limits("stream")),
        }

    def client(self, call: Call, timeout_s: float | None) -> AbstractContextManager[httpx.Client]:
        """The request itself carries how long it waits for its turn."""
        return nullcontext(self._clients[call.pool])

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
