"""The calls of the wire: what is sent for each operation."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.client.errors import InvalidArgument
from holdfast.client.session.lease import Lease, whole_seconds
from holdfast.client.wire.body import AsyncSource, Body
from holdfast.client.wire.call import Call

JSON_TYPE: Final = "application/json"


def acquire(
    *,
    namespace: str,
    key: str,
    owner: str,
    ttl_s: float,
    block_seconds: int,
    txn_id: str,
    if_not_exists: bool,
    correlation_id: str,
    timeout_s: float,
) -> Call:
    """A waiting acquire may take as long as it waits, so only the rest of the exchange is timed."""
    members: dict[str, object] = {
        "namespace": namespace,
        "key": key,
        "ttl_seconds": whole_seconds(ttl_s),
        "owner": owner,
        "block_seconds": block_seconds,
    }
    if txn_id:
        members["txn_id"] = txn_id
    if if_not_exists:
        members["if_not_exists"] = True
    call = _json_call("/v1/acquire", members, {"X-Correlation-Id": correlation_id})
    call.pool = "call" if block_seconds < 0 else "wait"
    call.is_endless = block_seconds == 0
    call.timeout_s = timeout_s + max(0, block_seconds)
    return call


def keepalive(lease: Lease, ttl_s: float, *, timeout_s: float) -> Call:
    members = {**_lease_members(lease), "ttl_seconds": whole_seconds(ttl_s), "txn_id": lease.txn_id}
    call = _json_call("/v1/keepalive", members, _lease_headers(lease, "X-Txn-ID", "X-Fencing-Token"))
    call.pool = "keepalive"
    call.timeout_s = timeout_s
    call.is_idempotent = True
    return call


def keepalive_batch(
    renewals: Sequence[tuple[Lease, float]], *, correlation_id: str, timeout_s: float
) -> Call:
    """Each lease with the time that is asked for it."""
    items = [
        {
            **_lease_members(lease),
            "ttl_seconds": whole_seconds(ttl_s),
            "txn_id": lease.txn_id,
            "fencing_token": lease.fencing_token,
        }
        for lease, ttl_s in renewals
    ]
    call = _json_call("/v1/keepalive/batch", {"renewals": items}, {"X-Correlation-Id": correlation_id})
    call.pool = "keepalive"
    call.timeout_s = timeout_s
    call.is_idempotent = True
    return call


def release(lease: Lease, *, rollback: bool, timeout_s: float) -> Call:
    members: dict[str, object] = {**_lease_members(lease), "txn_id": lease.txn_id}
    if rollback:
        members["rollback"] = True
    call = _json_call("/v1/release", members, _lease_headers(lease, "X-Fencing-Token"))
    call.timeout_s = timeout_s
    call.is_idempotent = True
    return call


def describe(namespace: str, key: str, headers: dict[str, str]) -> Call:
    return Call("GET", "/v1/describe", _key_query(namespace, key), headers, is_idempotent=True)


def get(namespace: str, key: str, headers: dict[str, str], *, is_public: bool) -> Call:
    query = _key_query(namespace, key) | ({"public": "1"} if is_public else {})
    return Call("POST", "/v1/get", query, headers, is_idempotent=True)


def update(lease: Lease, body: Body, conditions: Mapping[str, str]) -> Call:
    headers = {**lease.headers(), "Content-Type": JSON_TYPE, **conditions}
    return Call("POST", "/v1/update", _key_query(lease.namespace, lease.key), headers, body)


def mutate(lease: Lease, mutations: Sequence[str], conditions: Mapping[str, str]) -> Call:
    call = _json_call("/v1/mutate", {"mutations": list(mutations)}, {**lease.headers(), **conditions})
    call.query = _key_query(lease.namespace, lease.key)
    return call


def remove(lease: Lease, conditions: Mapping[str, str]) -> Call:
    query = _key_query(lease.namespace, lease.key)
    return Call("POST", "/v1/remove", query, {**lease.headers(), **conditions})


def metadata(lease: Lease, *, query_hidden: bool, conditions: Mapping[str, str]) -> Call:
    call = _json_call("/v1/metadata", {"query_hidden": query_hidden}, {**lease.headers(), **conditions})
    call.query = _key_query(lease.namespace, lease.key)
    return call


def put_attachment(
    lease: Lease,
    name: str,
    source: AsyncSource,
    *,
    content_type: str | None,
    max_bytes: int | None,
    prevent_overwrite: bool,
) -> Call:
    query = {**_key_query(lease.namespace, lease.key), "name": name}
    if content_type is not None:
        query["content_type"] = content_type
    if max_bytes is not None:
        query["max_bytes"] = str(max_bytes)
    if prevent_overwrite:
        query["prevent_overwrite"] = "1"
    # The type is in the query as well: a header can't carry every text.
    headers = {**lease.headers(), "Content-Type": "application/octet-stream"}
    if content_type is not None and content_type.isascii() and content_type.isprintable():
        headers["Content-Type"] = content_type
    return Call("POST", "/v1/attachments", query, headers, Body(source))


def list_attachments(namespace: str, key: str, headers: dict[str, str], *, is_public: bool) -> Call:
    query = _key_query(namespace, key) | ({"public": "1"} if is_public else {})
    return Call("GET", "/v1/attachments", query, headers, is_idempotent=True)


def get_attachment(
    namespace: str, key: str, headers: dict[str, str], *, name: str, id: str, is_public: bool
) -> Call:
    query = {**_key_query(namespace, key), **_selector(name, id)} | ({"public": "1"} if is_public else {})
    return Call("GET", "/v1/attachment", query, headers, is_stream=True, is_idempotent=True)


def delete_attachment(lease: Lease, *, name: str, id: str) -> Call:
    query = {**_key_query(lease.namespace, lease.key), **_selector(name, id)}
    return Call("DELETE", "/v1/attachment", query, lease.headers())


def delete_attachments(lease: Lease) -> Call:
    return Call("DELETE", "/v1/attachments", _key_query(lease.namespace, lease.key), lease.headers())


def query(
    *,
    namespace: str,
    selector: Mapping[str, Any],
    documents: bool,
    limit: int,
    cursor: str,
    fields: Mapping[str, Any] | None,
    engine: str,
    refresh: str,
    correlation_id: str,
) -> Call:
    """One page. Documents stay open to be read row by row."""
    members: dict[str, object] = {"namespace": namespace, "selector": selector}
    optional = {"limit": limit, "cursor": cursor, "fields": fields}
    members |= {name: value for name, value in optional.items() if value}
    parameters = {"namespace": namespace, "engine": engine, "refresh": refresh}
    if documents:
        members["return"] = parameters["return"] = "documents"
    call = _json_call("/v1/query", members, {"X-Correlation-Id": correlation_id})
    call.query = {name: value for name, value in parameters.items() if value}
    call.is_stream = documents
    call.is_idempotent = True
    return call


def flush_index(namespace: str, mode: str, correlation_id: str) -> Call:
    members = {"namespace": namespace, "mode": mode}
    call = _json_call("/v1/index/flush", members, {"X-Correlation-Id": correlation_id})
    call.query = {"namespace": namespace, "mode": mode}
    call.is_idempotent = True
    return call


def namespace_config(namespace: str, correlation_id: str) -> Call:
    headers = {"X-Correlation-Id": correlation_id}
    return Call("GET", "/v1/namespace", {"namespace": namespace}, headers, is_idempotent=True)


def set_namespace_config(
    namespace: str, engines: Mapping[str, str], *, if_match: str, correlation_id: str
) -> Call:
    headers = {"If-Match": if_match, "X-Correlation-Id": correlation_id}
    call = _json_call("/v1/namespace", {"namespace": namespace, "query": dict(engines)}, headers)
    call.query = {"namespace": namespace}
    return call


def json_bytes(value: Any) -> bytes:
    """Compact JSON, as the server stores it; what JSON does not know (NaN, sets) is refused."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"this value is no JSON: {error}") from error


def _json_call(path: str, members: Mapping[str, object], headers: Mapping[str, str]) -> Call:
    present = {name: value for name, value in headers.items() if value}
    return Call("POST", path, {}, {**present, "Content-Type": JSON_TYPE}, Body(json_bytes(members)))


def _lease_members(lease: Lease) -> dict[str, object]:
    return {"namespace": lease.namespace, "key": lease.key, "lease_id": lease.lease_id}


def _lease_headers(lease: Lease, *names: str) -> dict[str, str]:
    headers = lease.headers()
    return {name: headers[name] for name in (*names, "X-Correlation-Id") if name in headers}


def _key_query(namespace: str, key: str) -> dict[str, str]:
    return {"key": key, "namespace": namespace}


def _selector(name: str, id: str) -> dict[str, str]:
    return {word: value for word, value in (("name", name), ("id", id)) if value}
