"""Client: the Python SDK of the plane.

`Client` blocks, `AsyncClient` awaits; everything else has the same name in both.
"""

from holdfast.client.aio.client import AsyncClient
from holdfast.client.aio.session import Session as AsyncSession
from holdfast.client.document import Attachment, Description, PutResult, RemoveResult, State, WriteResult
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
from holdfast.client.lease import Lease
from holdfast.client.namespace import IndexFlush, NamespaceConfig
from holdfast.client.options import ClientOptions
from holdfast.client.query_rows import Row
from holdfast.client.sync.client import Client
from holdfast.client.sync.session import Session

__all__ = [
    "AlreadyExists",
    "ApiError",
    "AsyncClient",
    "AsyncSession",
    "Attachment",
    "CasMismatch",
    "Client",
    "ClientClosed",
    "ClientError",
    "ClientOptions",
    "Description",
    "Forbidden",
    "IndexFlush",
    "InvalidArgument",
    "Lease",
    "LeaseHeld",
    "LeaseLost",
    "NamespaceConfig",
    "NotFound",
    "PutResult",
    "RemoveResult",
    "RequestRefused",
    "Row",
    "ServerFailed",
    "Session",
    "State",
    "Throttled",
    "TooLarge",
    "TransportFailed",
    "TransportTimedOut",
    "TxnConflict",
    "Unavailable",
    "UnexpectedAnswer",
    "WriteResult",
]
