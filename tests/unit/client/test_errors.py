"""Error answers become typed errors that carry everything the answer said."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from holdfast.client import errors
from holdfast.client.errors import api_error


@pytest.mark.parametrize(
    ("status", "code", "family"),
    [
        (400, "invalid_key", errors.RequestRefused),
        (405, "method_not_allowed", errors.RequestRefused),
        (403, "lease_required", errors.LeaseLost),
        (403, "lease_expired", errors.LeaseLost),
        (403, "fencing_mismatch", errors.LeaseLost),
        (403, "namespace_forbidden", errors.Forbidden),
        (404, "attachment_not_found", errors.NotFound),
        (409, "waiting", errors.LeaseHeld),
        (409, "already_exists", errors.AlreadyExists),
        (409, "version_conflict", errors.CasMismatch),
        (409, "etag_mismatch", errors.CasMismatch),
        (409, "txn_mismatch", errors.TxnConflict),
        (413, "attachment_too_large", errors.TooLarge),
        (429, "throttled", errors.Throttled),
        (500, "internal_error", errors.ServerFailed),
        (502, "", errors.ServerFailed),
        (503, "node_passive", errors.Unavailable),
        (400, "etcdserver: mvcc: required revision has been compacted", errors.Compacted),
        (400, "etcdserver: mvcc: required revision is a future revision", errors.RequestRefused),
        (404, "etcdserver: requested lease not found", errors.NotFound),
        (412, "etcdserver: lease already exists", errors.AlreadyExists),
    ],
)
def test_each_code_has_its_family(status: int, code: str, family: type[errors.ApiError]) -> None:
    error = api_error(status, {}, json.dumps({"error": code}).encode())

    assert type(error) is family
    assert (error.code, error.status) == (code, status)


def test_an_error_carries_what_the_answer_said() -> None:
    body = json.dumps(
        {"error": "etag_mismatch", "detail": "differs", "current_version": 3, "current_etag": "abc"}
    ).encode()

    error = api_error(409, {"x-correlation-id": "job-1", "x-lockd-qrf-state": " Engaged "}, body)

    assert (error.current_version, error.current_etag) == (3, "abc")
    assert (error.correlation_id, error.qrf_state) == ("job-1", "engaged")
    assert str(error) == "etag_mismatch (differs)"


def test_an_error_of_an_etcd_without_the_older_member_has_its_text() -> None:
    body = json.dumps({"code": 5, "message": "etcdserver: requested lease not found"}).encode()

    error = api_error(404, {}, body)

    assert (type(error), str(error)) == (errors.NotFound, "etcdserver: requested lease not found")


@pytest.mark.parametrize(
    ("header", "expected"),
    [("7", 7.0), ("0.5", 0.5), ("nonsense", 9.0), ("", 9.0), ("-1", 9.0), ("inf", 9.0)],
)
def test_retry_after_is_the_header_or_else_the_body(header: str, expected: float) -> None:
    error = api_error(429, {"retry-after": header}, b'{"error":"throttled","retry_after_seconds":9}')

    assert error.retry_after_s == expected


def test_retry_after_may_be_a_date() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=3600), usegmt=True)

    error = api_error(503, {"retry-after": soon}, b"")

    assert error.retry_after_s is not None
    assert 3500 < error.retry_after_s <= 3600


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"error":5,"detail":[]}', b"[" * 100_000])
def test_an_answer_without_an_envelope_is_told_by_its_status(body: bytes) -> None:
    error = api_error(502, {}, body)

    assert str(error) == "status 502"
