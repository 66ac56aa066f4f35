"""The calls of locks and signals: what is sent for each operation."""

from collections.abc import Mapping
from typing import Any, Final

from holdfast.client.session.lease import whole_seconds
from holdfast.client.wire.body import Body
from holdfast.client.wire.call import Call
from holdfast.client.wire.request import JSON_TYPE, json_bytes

_FOREVER_S: Final = 1_000_000_000


def acquire(
    *,
    key: str,
    limit: int,
    ttl_s: float,
    owner: str,
    block_seconds: int,
    correlation_id: str,
    timeout_s: float,
) -> Call:
    """`block_seconds`: -1 does not wait, 0 waits for ever. A waiting call takes as long as it waits, so only the rest is timed."""
    members = {
        "key": key,
        "limit": limit,
        "ttl_seconds": whole_seconds(ttl_s),
        "owner": owner,
        "wait_seconds": _wait_seconds(block_seconds),
    }
    return _waiting(_json_call("/v1/locks/acquire", members, correlation_id), block_seconds, timeout_s)


def renew(*, key: str, token: str, ttl_s: float, correlation_id: str, timeout_s: float) -> Call:
    members = {"key": key, "token": token, "ttl_seconds": whole_seconds(ttl_s)}
    call = _json_call("/v1/locks/renew", members, correlation_id)
    call.pool = "keepalive"
    call.timeout_s = timeout_s
    call.is_idempotent = True
    return call


def release(*, key: str, token: str, correlation_id: str) -> Call:
    return _json_call("/v1/locks/release", {"key": key, "token": token}, correlation_id)


def force(*, key: str, key_base64: str, fencing_token: int, correlation_id: str) -> Call:
    """Bound to what was seen, so that it may arrive twice. A key that is no text has a spelling in base64."""
    named = {"key_base64": key_base64} if key_base64 else {"key": key}
    members = {**named, "force": True, "fencing_token": fencing_token}
    call = _json_call("/v1/locks/release", members, correlation_id)
    call.is_idempotent = True
    return call


def describe(key: str, correlation_id: str) -> Call:
    headers = {"X-Correlation-Id": correlation_id}
    return Call("GET", "/v1/locks/describe", {"key": key}, headers, is_idempotent=True)


def listing(*, prefix: str, limit: int, cursor: str, correlation_id: str) -> Call:
    query = {"prefix": prefix, "limit": str(limit), "cursor": cursor}
    present = {name: value for name, value in query.items() if value}
    return Call("GET", "/v1/locks", present, {"X-Correlation-Id": correlation_id}, is_idempotent=True)


def channels(*, prefix: str, limit: int, correlation_id: str) -> Call:
    query = {"limit": str(limit)} | ({"prefix": prefix} if prefix else {})
    headers = {"X-Correlation-Id": correlation_id}
    return Call("GET", "/v1/signals/channels", query, headers, is_idempotent=True)


def signal(channel: str, payload: str, correlation_id: str) -> Call:
    return _json_call("/v1/signals", {"channel": channel, "payload": payload}, correlation_id)


def listen(pattern: str, group: str, correlation_id: str) -> Call:
    query = {"pattern": pattern} | ({"group": group} if group else {})
    call = Call("GET", "/v1/signals", query, {"X-Correlation-Id": correlation_id})
    call.pool = "stream"
    call.is_endless = True
    call.is_stream = True
    return call


def _wait_seconds(block_seconds: int) -> int:
    if block_seconds == 0:
        return _FOREVER_S
    return max(0, block_seconds)


def _waiting(call: Call, block_seconds: int, timeout_s: float) -> Call:
    call.pool = "call" if block_seconds < 0 else "wait"
    call.is_endless = block_seconds == 0
    call.timeout_s = timeout_s + max(0, block_seconds)
    return call


def _json_call(path: str, members: Mapping[str, Any], correlation_id: str) -> Call:
    headers = {"Content-Type": JSON_TYPE, "X-Correlation-Id": correlation_id}
    return Call("POST", path, {}, headers, Body(json_bytes(members)))
