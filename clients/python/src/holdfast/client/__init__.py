"""Client: the Python SDK of the plane.

`Client` blocks, `AsyncClient` awaits; everything else has the same name in both.
"""

from holdfast.client.aio.client import AsyncClient
from holdfast.client.aio.queue.delivery import Delivery as AsyncDelivery
from holdfast.client.aio.queue.queue import Queue as AsyncQueue
from holdfast.client.aio.session import Session as AsyncSession
from holdfast.client.errors import (
    AlreadyExists,
    ApiError,
    CasMismatch,
    ClientClosed,
    ClientError,
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
from holdfast.client.sync.client import Client
from holdfast.client.sync.queue.delivery import Delivery
from holdfast.client.sync.queue.queue import Queue
from holdfast.client.sync.session import Session
from holdfast.client.transaction import Participant, TxnView

__all__ = [
    "AckResult",
    "AlreadyExists",
    "ApiError",
    "AsyncClient",
    "AsyncDelivery",
    "AsyncQueue",
    "AsyncSession",
    "Attachment",
    "CasMismatch",
    "Client",
    "ClientClosed",
    "ClientError",
    "ClientOptions",
    "Consumer",
    "ConsumerEvent",
    "ConsumerFailed",
    "Delivery",
    "Description",
    "Enqueued",
    "Forbidden",
    "IndexFlush",
    "InvalidArgument",
    "Lease",
    "LeaseHeld",
    "LeaseLost",
    "Message",
    "NamespaceConfig",
    "NotFound",
    "Outgoing",
    "Participant",
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
    "State",
    "Stop",
    "StoredMessage",
    "Throttled",
    "TooLarge",
    "TransportFailed",
    "TransportTimedOut",
    "TxnConflict",
    "TxnView",
    "Unavailable",
    "UnexpectedAnswer",
    "WriteResult",
]
