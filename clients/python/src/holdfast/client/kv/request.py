"""The calls of the key space: what is sent for each operation."""

from collections.abc import Mapping
from typing import Any

from holdfast.client.wire.body import Body
from holdfast.client.wire.call import Call
from holdfast.client.wire.request import JSON_TYPE, json_bytes


def look(path: str, members: Mapping[str, Any], correlation_id: str) -> Call:
    """May arrive twice."""
    call = _call(path, members, correlation_id)
    call.is_idempotent = True
    return call


def change(path: str, members: Mapping[str, Any], correlation_id: str) -> Call:
    """Sent once: the second of two equal transactions may take the other branch, and would tell of that one alone."""
    call = _call(path, members, correlation_id)
    call.is_sent_once = True
    return call


def keep_alive(lease_id: str, correlation_id: str) -> Call:
    call = look("/v3/lease/keepalive", {"ID": lease_id}, correlation_id)
    call.pool = "keepalive"
    return call


def watch(members: Mapping[str, Any], correlation_id: str) -> Call:
    call = look("/v3/watch", {"create_request": members}, correlation_id)
    call.pool = "stream"
    call.is_endless = True
    call.is_stream = True
    return call


def _call(path: str, members: Mapping[str, Any], correlation_id: str) -> Call:
    headers = {"Content-Type": JSON_TYPE, "X-Correlation-Id": correlation_id}
    return Call("POST", path, {}, headers, Body(json_bytes(members)))
