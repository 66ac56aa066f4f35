"""Client: the Python SDK of the plane.

`Client` blocks, `AsyncClient` awaits; everything else has the same name in both. Each of the two is imported when it is
first named, so that a program pays for the one it uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from holdfast.client.errors import (
    AlreadyExists,
    ApiError,
    CasMismatch,
    ClientClosed,
    ClientError,
    Compacted,
    Forbidden,
    InvalidArgument,
    LeaseHeld,
    LeaseLost,
    NotFound,
    QueueEmpty,
    RequestRefused,
    ServerFailed,
    Throttled,
    TooLarge,
    TransportFailed,
    TransportTimedOut,
    TxnConflict,
    Unavailable,
    UnexpectedAnswer,
)
from holdfast.client.kv.operation import Compare, DeleteOp, GetOp, PutOp, TxnOp
from holdfast.client.kv.view import (
    KeyValue,
    KvDeleteResult,
    KvEvent,
    KvGetResult,
    KvLease,
    KvLeaseState,
    KvPutResult,
    KvTxnResult,
)
from holdfast.client.locks.claim import LockGrant
from holdfast.client.locks.view import ChannelListener, ChannelView, LockHolder, LockView, LockWaiter, Signal
from holdfast.client.options import ClientOptions
from holdfast.client.query.namespace import IndexFlush, NamespaceConfig
from holdfast.client.query.rows import Row
from holdfast.client.queue.batch import AckResult
from holdfast.client.queue.consumer import Consumer, ConsumerEvent, ConsumerFailed, RestartPolicy, Stop
from holdfast.client.queue.message import Enqueued, Message, Outgoing
from holdfast.client.queue.view import QueueChange, QueuePolicy, QueueStats, StoredMessage
from holdfast.client.session.document import (
    Attachment,
    Description,
    PutResult,
    RemoveResult,
    State,
    WriteResult,
)
from holdfast.client.session.lease import Lease
from holdfast.client.transaction import Participant, TxnView
from holdfast.client.watch.view import WatchEvent, WatchEventType

if TYPE_CHECKING:
    from holdfast.client.aio.client import AsyncClient
    from holdfast.client.aio.locks.lock import HeldLock as AsyncHeldLock
    from holdfast.client.aio.queue.delivery import Delivery as AsyncDelivery
    from holdfast.client.aio.queue.queue import Queue as AsyncQueue
    from holdfast.client.aio.session import Session as AsyncSession
    from holdfast.client.sync.client import Client
    from holdfast.client.sync.locks.lock import HeldLock
    from holdfast.client.sync.queue.delivery import Delivery
    from holdfast.client.sync.queue.queue import Queue
    from holdfast.client.sync.session import Session

__all__ = [
    "AckResult",
    "AlreadyExists",
    "ApiError",
    "AsyncClient",
    "AsyncDelivery",
    "AsyncHeldLock",
    "AsyncQueue",
    "AsyncSession",
    "Attachment",
    "CasMismatch",
    "ChannelListener",
    "ChannelView",
    "Client",
    "ClientClosed",
    "ClientError",
    "ClientOptions",
    "Compacted",
    "Compare",
    "Consumer",
    "ConsumerEvent",
    "ConsumerFailed",
    "DeleteOp",
    "Delivery",
    "Description",
    "Enqueued",
    "Forbidden",
    "GetOp",
    "HeldLock",
    "IndexFlush",
    "InvalidArgument",
    "KeyValue",
    "KvDeleteResult",
    "KvEvent",
    "KvGetResult",
    "KvLease",
    "KvLeaseState",
    "KvPutResult",
    "KvTxnResult",
    "Lease",
    "LeaseHeld",
    "LeaseLost",
    "LockGrant",
    "LockHolder",
    "LockView",
    "LockWaiter",
    "Message",
    "NamespaceConfig",
    "NotFound",
    "Outgoing",
    "Participant",
    "PutOp",
    "PutResult",
    "Queue",
    "QueueChange",
    "QueueEmpty",
    "QueuePolicy",
    "QueueStats",
    "RemoveResult",
    "RequestRefused",
    "RestartPolicy",
    "Row",
    "ServerFailed",
    "Session",
    "Signal",
    "State",
    "Stop",
    "StoredMessage",
    "Throttled",
    "TooLarge",
    "TransportFailed",
    "TransportTimedOut",
    "TxnConflict",
    "TxnOp",
    "TxnView",
    "Unavailable",
    "UnexpectedAnswer",
    "WatchEvent",
    "WatchEventType",
    "WriteResult",
]

_LATE: Final = {
    "AsyncClient": ("holdfast.client.aio.client", "AsyncClient"),
    "AsyncDelivery": ("holdfast.client.aio.queue.delivery", "Delivery"),
    "AsyncHeldLock": ("holdfast.client.aio.locks.lock", "HeldLock"),
    "AsyncQueue": ("holdfast.client.aio.queue.queue", "Queue"),
    "AsyncSession": ("holdfast.client.aio.session", "Session"),
    "Client": ("holdfast.client.sync.client", "Client"),
    "HeldLock": ("holdfast.client.sync.locks.lock", "HeldLock"),
    "Delivery": ("holdfast.client.sync.queue.delivery", "Delivery"),
    "Queue": ("holdfast.client.sync.queue.queue", "Queue"),
    "Session": ("holdfast.client.sync.session", "Session"),
}

if not TYPE_CHECKING:  # A type checker would take it for a module that has every name.

    def __getattr__(name: str) -> object:
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, attribute = _LATE[name]
        globals()[name] = found = getattr(import_module(module), attribute)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LATE})
