"""Client: the Python SDK of the plane.

`Client` blocks, `AsyncClient` awaits; everything else has the same name in both.
"""

from holdfast.client.aio.client import AsyncClient
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
from holdfast.client.options import ClientOptions
from holdfast.client.sync.client import Client

__all__ = [
    "AlreadyExists",
    "ApiError",
    "AsyncClient",
    "Attachment",
    "CasMismatch",
    "Client",
    "ClientClosed",
    "ClientError",
    "ClientOptions",
    "Description",
    "Forbidden",
    "InvalidArgument",
    "Lease",
    "LeaseHeld",
    "LeaseLost",
    "NotFound",
    "PutResult",
    "RemoveResult",
    "RequestRefused",
    "ServerFailed",
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
