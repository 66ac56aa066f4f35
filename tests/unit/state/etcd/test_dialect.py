"""Errors as etcd's gateway tells them: text, number of gRPC, and status."""

import pytest
from pydantic_core import from_json

from holdfast.common.errors import (
    BodyTooLarge,
    HoldfastError,
    InvalidBody,
    MethodNotAllowed,
    PathNotFound,
    PermissionMissing,
    RequestTimeout,
    ShutdownDraining,
    error_classes,
)
from holdfast.common.upstream.errors import UpstreamTimeout, UpstreamUnavailable
from holdfast.common.wire_errors import internal_error
from holdfast.state.layer.kv import errors as kv
from holdfast.state.protocol.etcd.dialect import ETCD
from holdfast.state.protocol.etcd.wire import errors as wire
from holdfast.storage.errors import StoreFull, StoreUnavailable

NO_SPACE = "etcdserver: mvcc: database space exceeded"
TABLE: list[tuple[HoldfastError, int, int, str]] = [
    (kv.KeyMissing(), 400, 3, "etcdserver: key is not provided"),
    (kv.ValueGiven(), 400, 3, "etcdserver: value is provided"),
    (kv.LeaseGiven(), 400, 3, "etcdserver: lease is provided"),
    (kv.KeyNotFound(), 400, 3, "etcdserver: key not found"),
    (kv.DuplicateKey(), 400, 3, "etcdserver: duplicate key given in txn request"),
    (kv.TooManyOperations(), 400, 3, "etcdserver: too many operations in txn request"),
    (kv.KvRequestTooLarge("of 3 bytes"), 400, 3, "etcdserver: request is too large"),
    (BodyTooLarge("of 3 bytes"), 400, 3, "etcdserver: request is too large"),
    (kv.KvInvalid("illegal base64 data at input byte 0"), 400, 3, "illegal base64 data at input byte 0"),
    (InvalidBody("what"), 400, 3, "what"),
    (kv.RevisionInFuture(), 400, 11, "etcdserver: mvcc: required revision is a future revision"),
    (kv.RevisionCompacted(), 400, 11, "etcdserver: mvcc: required revision has been compacted"),
    (kv.LeaseTtlTooLarge(), 400, 11, "etcdserver: too large lease TTL"),
    (kv.KvLeaseNotFound(), 404, 5, "etcdserver: requested lease not found"),
    (kv.KvLeaseExists(), 412, 9, "etcdserver: lease already exists"),
    (kv.AuthenticationOff(), 412, 9, "etcdserver: authentication is not enabled"),
    (kv.QueueNotEmpty(), 412, 9, "queue is not empty"),
    (kv.KvForbidden(), 403, 7, "etcdserver: permission denied"),
    (PermissionMissing("no"), 403, 7, "no"),
    (wire.WrongTypeInStream("json: no"), 500, 2, "json: no"),
    (wire.NoLeader(), 500, 2, "election: no leader"),
    (wire.NotLeader(), 500, 2, "election: not leader"),
    (internal_error(), 500, 13, "internal server error"),
    (PathNotFound("nothing"), 404, 5, "Not Found"),
    (MethodNotAllowed("not this"), 405, 12, "Method Not Allowed"),
    (RequestTimeout("slow"), 408, 4, "slow"),
    (StoreFull("full"), 429, 8, NO_SPACE),
    (StoreUnavailable("gone"), 503, 14, "gone"),
    (ShutdownDraining("stops"), 503, 14, "stops"),
    (UpstreamUnavailable("gone"), 503, 14, "gone"),
    (UpstreamTimeout("slow"), 504, 4, "slow"),
]


@pytest.mark.parametrize(
    ("error", "status", "code", "text"), TABLE, ids=[type(row[0]).__name__ for row in TABLE]
)
def test_an_error_has_its_text_twice_and_its_numbers(
    error: HoldfastError, status: int, code: int, text: str
) -> None:
    answer = ETCD.answer(error)

    assert answer.status == status
    assert answer.body == (b'{"error":"%b","message":"%b","code":%d}' % (text.encode(), text.encode(), code))


def test_headers_of_an_answer_are_kept() -> None:
    headers = dict(ETCD.answer(ShutdownDraining("stops", retry_after_s=1.2)).headers)

    assert headers[b"retry-after"] == b"2"
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"access-control-allow-origin"] == b"*"


@pytest.mark.parametrize("status", sorted({kind.status for kind in error_classes()}))
def test_every_status_of_the_plane_has_a_number(status: int) -> None:
    kind = type("Refused", (HoldfastError,), {"__doc__": "Nothing.", "code": "refused", "status": status})
    answer = ETCD.answer(kind("what happened"))

    assert 400 <= answer.status < 600
    assert from_json(answer.body)["code"] in range(1, 17)
