"""The key space as protocols use it, with or without the rules of queues over its keys."""

from typing import Protocol

from holdfast.state.layer.kv.lessor import KvLeases
from holdfast.state.layer.kv.operation import (
    DeleteRangeRequest,
    DeleteRangeResult,
    PutRequest,
    PutResult,
    RangeRequest,
    RangeResult,
    TxnRequest,
    TxnResult,
    WatchRequest,
)
from holdfast.state.layer.kv.watch import WatchBatch


class Watch(Protocol):
    """One watch; registered when it is handed out, until it is closed."""

    created_revision: int
    request: WatchRequest

    @property
    def told_revision(self) -> int:
        """Up to here everything was told that the request wants to hear of."""
        ...

    async def next(self) -> WatchBatch: ...

    def close(self) -> None: ...


class KeySpace(Protocol):
    """What `KvService` does, and `KeyQueues` around it."""

    leases: KvLeases

    @property
    def watchers(self) -> int: ...

    async def revision(self) -> int: ...

    async def put(self, request: PutRequest) -> PutResult: ...

    async def range(self, request: RangeRequest) -> RangeResult: ...

    async def delete_range(self, request: DeleteRangeRequest) -> DeleteRangeResult: ...

    async def txn(self, request: TxnRequest) -> TxnResult: ...

    async def watch(self, request: WatchRequest) -> Watch: ...

    async def compact(self, revision: int, *, physical: bool = False) -> int: ...
