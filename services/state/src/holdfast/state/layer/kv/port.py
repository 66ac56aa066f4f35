"""The key space as protocols use it, with or without the rules of queues over its keys."""

from collections.abc import Callable
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

    async def next(self) -> WatchBatch:
        """What comes next; WatchEnded if it was told to end."""
        ...

    def end(self) -> None: ...

    def close(self) -> None: ...


class KeySpace(Protocol):
    """What `KvService` does, and `KeyQueues` around it."""

    leases: KvLeases

    @property
    def watchers(self) -> int: ...

    @property
    def known_revision(self) -> int:
        """That of now, if it is at hand; else zero."""
        ...

    @property
    def last_revision(self) -> int:
        """The newest that this process has seen."""
        ...

    async def revision(self) -> int: ...

    async def put(self, request: PutRequest) -> PutResult: ...

    async def range(
        self, request: RangeRequest, *, on_read: Callable[[RangeResult], None] | None = None
    ) -> RangeResult:
        """`on_read` is called while nothing changes, with what may be kept until the store says that it has changed; for a
        request that has to be seen each time, not at all."""
        ...

    async def delete_range(self, request: DeleteRangeRequest) -> DeleteRangeResult: ...

    async def txn(self, request: TxnRequest) -> TxnResult: ...

    async def watch(self, request: WatchRequest) -> Watch: ...

    async def compact(self, revision: int, *, physical: bool = False) -> int: ...
