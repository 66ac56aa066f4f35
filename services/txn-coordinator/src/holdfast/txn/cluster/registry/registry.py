"""The registry of resource managers: the same at every member, changed at all of them or not at all."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Final, TypeVar

from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.storage.errors import StorageError
from holdfast.txn.cluster.errors import RmReplicationFailed, RmUnavailable
from holdfast.txn.cluster.peers.port import PeerPort, PeerUnreachable, Role
from holdfast.txn.cluster.registry.records import Backend, RmTable

REPLICATE: Final = "X-Lockd-TC-Replicate"

_CALL_S: Final = 5.0
_REGISTER_EVERY_S: Final = 30.0
_REGISTER_POLL_S: Final = 1.0

_log = get_logger("tc.rm.replicator")

T = TypeVar("T")


class RegistryChange(StrEnum):
    REGISTER = "register"
    UNREGISTER = "unregister"

    @property
    def inverse(self) -> "RegistryChange":
        return RegistryChange.UNREGISTER if self is RegistryChange.REGISTER else RegistryChange.REGISTER


class RmRegistry:
    """`others` tells the members besides this node."""

    def __init__(
        self, table: RmTable, port: PeerPort, others: Callable[[], Sequence[str]], now_ms: Callable[[], int]
    ) -> None:
        self._table = table
        self._port = port
        self._others = others
        self._now_ms = now_ms
        self._told: set[str] = set()
        self._wake = asyncio.Event()

    def members_changed(self) -> None:
        """A member may be new, and does not know yet where decisions for this store are delivered to."""
        if set(self._others()) - self._told:
            self._wake.set()

    async def backends(self) -> list[Backend]:
        return await _stored(self._table.backends())

    async def endpoints(self, backend_hash: str) -> tuple[str, ...]:
        """Where a decision for this store is delivered to; nowhere if no resource manager is registered for it."""
        return await _stored(self._table.endpoints(backend_hash))

    async def change(
        self, change: RegistryChange, backend_hash: str, endpoint: str, *, is_replica: bool
    ) -> Backend:
        """Change the registry here and, unless this is a replica's call, at every other member."""
        others = [] if is_replica else list(self._others())
        await self._preflight(others)
        backend, is_changed = await self._apply(change, backend_hash, endpoint)
        failed, told = await self._replicate(change, backend_hash, endpoint, others)
        if failed:
            await self._undo(change, backend_hash, endpoint, is_changed=is_changed, told=told)
            raise RmReplicationFailed(f"not replicated, and undone: {'; '.join(failed)}")
        return backend

    async def keep_registered(self, backend_hash: str, endpoint: str) -> None:
        """Have this node's own resource manager known everywhere, for as long as this runs.

        Each member is told by itself: one that is down must not keep the others from knowing.
        """
        while True:
            self._wake.clear()
            is_complete = await self._register_own(backend_hash, endpoint)
            try:
                async with asyncio.timeout(_REGISTER_EVERY_S if is_complete else _REGISTER_POLL_S):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _register_own(self, backend_hash: str, endpoint: str) -> bool:
        others = list(self._others())
        try:
            await self._table.add(backend_hash, endpoint, self._now_ms())
        except HoldfastError as error:
            _log.warn("tc.rm.register.failed", error=error.code, detail=error.detail)
            return False
        failed, told = await self._replicate(RegistryChange.REGISTER, backend_hash, endpoint, others)
        self._told = set(told)
        if failed:
            _log.debug("tc.rm.register.incomplete", failed=failed)
        return not failed

    async def _preflight(self, others: Sequence[str]) -> None:
        """Find out whether all can be reached before anything is changed."""
        answers = await asyncio.gather(*(self._ask(other, "/v1/tc/leader", None) for other in others))
        failed = [problem for problem in answers if problem]
        if failed:
            raise RmReplicationFailed(f"nothing was changed: {'; '.join(failed)}")

    async def _apply(self, change: RegistryChange, backend_hash: str, endpoint: str) -> tuple[Backend, bool]:
        apply = self._table.add if change is RegistryChange.REGISTER else self._table.remove
        return await _stored(apply(backend_hash, endpoint, self._now_ms()))

    async def _replicate(
        self, change: RegistryChange, backend_hash: str, endpoint: str, others: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """What went wrong, and who was told."""
        body = {"backend_hash": backend_hash, "endpoint": endpoint}
        path = f"/v1/tc/rm/{change}"
        problems = await asyncio.gather(*(self._ask(other, path, body) for other in others))
        told = [other for other, problem in zip(others, problems, strict=True) if not problem]
        return [problem for problem in problems if problem], told

    async def _undo(
        self,
        change: RegistryChange,
        backend_hash: str,
        endpoint: str,
        *,
        is_changed: bool,
        told: Sequence[str],
    ) -> None:
        """What was so before the call stays so: a repetition that fails takes nothing away."""
        if not is_changed:
            return
        await self._apply(change.inverse, backend_hash, endpoint)
        failed, _ = await self._replicate(change.inverse, backend_hash, endpoint, told)
        if failed:
            _log.warn("tc.rm.undo.incomplete", backend_hash=backend_hash, endpoint=endpoint, failed=failed)

    async def _ask(self, other: str, path: str, body: dict[str, str] | None) -> str:
        """What is wrong with an answer; empty if nothing is."""
        role = Role.CLIENT if body is None else Role.SERVER
        headers = None if body is None else {REPLICATE: "1"}
        try:
            answer = await self._port.call(other, path, body, timeout_s=_CALL_S, role=role, headers=headers)
        except PeerUnreachable as error:
            return f"{other}: {error}"
        return "" if answer.is_ok else f"{other}: {answer.text('error') or answer.status}"


async def _stored(call: Awaitable[T]) -> T:
    try:
        return await call
    except StorageError as error:
        raise RmUnavailable(f"the registry can't be used: {error.detail}") from error
