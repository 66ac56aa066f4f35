"""Clients of a split plane that hang up when they like, and a gateway that can be held still meanwhile."""

import asyncio
import json
import os
import signal
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from holdfast.common.role import Role
from tests.system.split.plane import SplitPlane
from tests.wire.lockd.queue_wire import MULTIPART, Delivered, deliveries, message_body

LONG_S = 600
"""A time that nothing in these tests waits out."""
SOON_S = 20


class RawClient:
    """One request by hand; its connection ends at the very moment that the test says."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._connection.setblocking(False)

    async def read_until(self, mark: bytes) -> bytes:
        seen = b""
        while mark not in seen:
            piece = await asyncio.get_running_loop().sock_recv(self._connection, 1 << 16)
            assert piece, f"it ended after {seen!r}"
            seen += piece
        return seen

    def hang_up(self, *, by_reset: bool) -> None:
        if by_reset:
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection.close()


def send(plane: SplitPlane, path: str, body: Mapping[str, object], *headers: str) -> RawClient:
    connection = socket.create_connection(("127.0.0.1", plane.port()))
    text = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: h", f"Content-Length: {len(text)}", *headers]
    connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + text)
    return RawClient(connection)


@asynccontextmanager
async def held_still(plane: SplitPlane, role: Role = Role.GATEWAY) -> AsyncIterator[None]:
    """The process does nothing in the block; its connections stay open."""
    os.kill(plane.pid(role), signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(plane.pid(role), signal.SIGCONT)


async def ask(
    plane: SplitPlane, path: str, body: Mapping[str, object], *, to: Role = Role.GATEWAY
) -> httpx.Response:
    return await plane.client.post(plane.url_of(to) + path, json=body)


async def acquire(plane: SplitPlane, key: str, *, to: Role = Role.GATEWAY, **more: object) -> dict[str, Any]:
    params = {"key": key, "owner": "worker", "ttl_seconds": LONG_S, "block_seconds": SOON_S, **more}
    answer = await ask(plane, "/v1/acquire", params, to=to)
    assert answer.status_code == 200, answer.text
    lease: dict[str, Any] = answer.json()
    return lease


def release_of(lease: dict[str, Any]) -> tuple[dict[str, object], str]:
    """Body and header of its release."""
    body = {name: lease[name] for name in ("key", "lease_id", "txn_id")}
    return body, f"X-Fencing-Token: {lease['fencing_token']}"


async def release(plane: SplitPlane, lease: dict[str, Any], *, to: Role = Role.GATEWAY) -> httpx.Response:
    body, header = release_of(lease)
    name, _, value = header.partition(": ")
    return await plane.client.post(plane.url_of(to) + "/v1/release", json=body, headers={name: value})


async def owner_of(plane: SplitPlane, key: str) -> str | None:
    """Of the key, as the leases themselves say."""
    answer = await plane.client.get(plane.url_of(Role.LEASES) + "/v1/describe", params={"key": key})
    owner: str | None = answer.json().get("owner")
    return owner


async def has_waiter(plane: SplitPlane) -> bool:
    metrics = (await plane.client.get(plane.url_of(Role.LEASES) + "/metrics")).text
    return "holdfast_lease_waiters 1" in metrics


async def stats(plane: SplitPlane, queue: str) -> dict[str, Any]:
    told: dict[str, Any] = (await ask(plane, "/v1/queue/stats", {"queue": queue}, to=Role.QUEUE)).json()
    return told


async def enqueue(plane: SplitPlane, queue: str, payload: bytes = b"work", *, to: Role = Role.QUEUE) -> str:
    body = message_body(payload, queue=queue)
    answer = await plane.client.post(plane.url_of(to) + "/v1/queue/enqueue", content=body, headers=MULTIPART)
    assert answer.status_code == 200, answer.text
    message_id: str = answer.json()["message_id"]
    return message_id


async def dequeue(plane: SplitPlane, queue: str, path: str = "/v1/queue/dequeue") -> Delivered:
    times = {"wait_seconds": SOON_S, "visibility_timeout_seconds": LONG_S}
    answer = await ask(plane, path, {"queue": queue, "owner": "worker", **times})
    assert answer.status_code == 200, answer.text
    (delivered,) = deliveries(answer.headers["content-type"], answer.content)
    return delivered
