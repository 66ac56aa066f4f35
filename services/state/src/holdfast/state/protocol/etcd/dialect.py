"""Errors as etcd's gateway tells them: a text, twice, and a number of gRPC."""

import math
from typing import Final

from pydantic import BaseModel
from pydantic_core import to_json

from holdfast.common.errors import BodyTooLarge, HoldfastError, MethodNotAllowed, PathNotFound
from holdfast.common.express.message import Answer, Header, render_lines
from holdfast.state.layer.kv.errors import KvRequestTooLarge, RevisionOutOfRange
from holdfast.state.protocol.etcd.wire.errors import UnknownError

PREFIXES: Final = ("/v3", "/v3beta", "/v3alpha")
"""The same API under each: clients choose by the version that they believe the server to have."""

CORS_HEADERS: Final[tuple[Header, ...]] = (
    (b"access-control-allow-headers", b"accept, content-type, authorization"),
    (b"access-control-allow-methods", b"POST, GET, OPTIONS, PUT, DELETE"),
    (b"access-control-allow-origin", b"*"),
)
ANSWER_HEADERS: Final[list[Header]] = [*CORS_HEADERS, (b"content-type", b"application/json")]
ANSWER_LINES: Final = render_lines(ANSWER_HEADERS)

UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
NOT_FOUND: Final = 5
PERMISSION_DENIED: Final = 7
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
ABORTED: Final = 10
OUT_OF_RANGE: Final = 11
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
UNAUTHENTICATED: Final = 16

_CODES: Final = {
    401: UNAUTHENTICATED,
    403: PERMISSION_DENIED,
    404: NOT_FOUND,
    405: UNIMPLEMENTED,
    408: DEADLINE_EXCEEDED,
    409: ABORTED,
    410: OUT_OF_RANGE,
    412: FAILED_PRECONDITION,
    429: RESOURCE_EXHAUSTED,
    500: INTERNAL,
    501: UNIMPLEMENTED,
    502: UNAVAILABLE,
    503: UNAVAILABLE,
    504: DEADLINE_EXCEEDED,
    507: RESOURCE_EXHAUSTED,
}
_CODES_OF_CLASSES: Final[tuple[tuple[type[HoldfastError], int], ...]] = (
    (RevisionOutOfRange, OUT_OF_RANGE),
    (UnknownError, UNKNOWN),
)
_STATUSES: Final = {410: 400, 502: 503, 507: 429}
"""Where clients of etcd know another one for the same trouble."""
_NO_SPACE: Final = "etcdserver: mvcc: database space exceeded"


class EtcdErrorBody(BaseModel):
    """`error` and `message` are the same text, which clients compare; `code` is gRPC's."""

    error: str
    message: str
    code: int


class EtcdDialect:
    """The superset of what the versions of etcd send: 3.4 has `error`, 3.6 has not."""

    prefixes: tuple[str, ...] = PREFIXES
    error_model: type[BaseModel] = EtcdErrorBody

    def answer(self, error: HoldfastError) -> Answer:
        status, code, text = _told(error)
        headers = list(ANSWER_HEADERS)
        if error.retry_after_s is not None and error.retry_after_s > 0:
            headers.append((b"retry-after", b"%d" % math.ceil(error.retry_after_s)))
        headers.extend((name.lower().encode(), value.encode()) for name, value in error.headers().items())
        return Answer(status, to_json({"error": text, "message": text, "code": code}), headers)


def _told(error: HoldfastError) -> tuple[int, int, str]:
    """Status, number and text of an error."""
    if isinstance(error, BodyTooLarge | KvRequestTooLarge):
        return 400, INVALID_ARGUMENT, KvRequestTooLarge.text
    if isinstance(error, PathNotFound):
        return 404, NOT_FOUND, "Not Found"
    if isinstance(error, MethodNotAllowed):
        return 405, UNIMPLEMENTED, "Method Not Allowed"
    code = next((code for kind, code in _CODES_OF_CLASSES if isinstance(error, kind)), None)
    if code is None:
        code = _CODES.get(error.status, INVALID_ARGUMENT if error.status < 500 else INTERNAL)
    text = _NO_SPACE if error.status == 507 else error.detail
    return _STATUSES.get(error.status, error.status), code, text


ETCD: Final = EtcdDialect()
