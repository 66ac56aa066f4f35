"""The key of a node, by which other nodes know that it lives."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.queue.layer.keys import names
from holdfast.state.layer.kv.operation import PutRequest, RangeRequest
from holdfast.state.layer.kv.service import KvService
from holdfast.storage.hosting.trouble import warn_unless_told

NODE_LEASE_S: Final = 10
NODE_RENEW_S: Final = 3.0

_log = get_logger("queue.keys.presence")


class NodeLease:
    """Other nodes take over the queues of this one when its key is gone."""

    def __init__(self, kv: KvService, node_id: int) -> None:
        self._kv = kv
        self._node_id = node_id
        self._key = names.node_key(node_id)
        self._lease_id = 0
        self._shown = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            if self._task is not None:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)

    async def show(self) -> None:
        """Be there, before anything is done with a queue."""
        if self._lease_id:
            return
        async with self._shown:
            if self._lease_id:
                return
            await self._begin()
            if self._task is None:
                self._task = asyncio.create_task(self._renew(), name="queue.keys.node")

    async def _begin(self) -> None:
        lease_id, _ = await self._kv.leases.grant(NODE_LEASE_S)
        await self._kv.put(PutRequest(self._key, b"%d" % self._node_id, lease_id))
        self._lease_id = lease_id

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(NODE_RENEW_S * random.uniform(0.8, 1.0))
            try:
                await self.renew()
            except HoldfastError as error:
                warn_unless_told(_log, "queue.node.renew.failed", error)

    async def renew(self) -> None:
        """Go on living, also after a client has deleted the key."""
        is_alive = await self._kv.leases.keep_alive(self._lease_id)
        if not is_alive or not (await self._kv.range(RangeRequest(self._key, count_only=True))).total:
            await self._begin()
