"""A lean client of the lease wire on one keep-alive connection, and a plane on loopback for it to talk to."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, Self

from holdfast.common.express.limits import Limits
from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import ServeOptions, running
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings

IMPATIENT: Final = Limits(half_close_grace_s=0.1)
"""A client that sent half a request is given up at once: the tests send many of those."""


class WireAnswer(NamedTuple):
    """Status, headers with lower-case names, and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def members(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed


class Held(NamedTuple):
    """A lease as acquire answered it."""

    key: str
    lease_id: str
    txn_id: str
    token: int
    version: int

    @property
    def headers(self) -> dict[str, str]:
        return {"X-Lease-ID": self.lease_id, "X-Txn-ID": self.txn_id, "X-Fencing-Token": str(self.token)}


class WireClient:
    """One request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def close(self) -> None:
        self._writer.close()

    async def call(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> WireAnswer:
        lines = [f"{method} {target} HTTP/1.1", "Host: plane", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        return await self.send_raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def send_raw(self, request: bytes) -> WireAnswer:
        """Bytes as they are; the answer must tell its length."""
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = [line.partition(":") for line in head[1:] if line]
        told = {name.lower(): value.strip() for name, _, value in pairs}
        body = await self._reader.readexactly(int(told.get("content-length", "0")))
        return WireAnswer(int(head[0].split()[1]), told, body)

    async def post(
        self, path: str, members: Mapping[str, object], headers: Mapping[str, str] | None = None
    ) -> WireAnswer:
        return await self.call("POST", path, headers, json.dumps(members).encode())

    async def acquire(
        self, key: str, owner: str, *, ttl_s: int, wait_s: int = -1, txn_id: str = ""
    ) -> Held | None:
        """None: it has another holder."""
        asked = {"key": key, "owner": owner, "ttl_seconds": ttl_s, "block_seconds": wait_s, "txn_id": txn_id}
        answer = await self.post("/v1/acquire", asked)
        if answer.status == 409:
            return None
        assert answer.status == 200, answer
        told = answer.members()
        return Held(key, told["lease_id"], told["txn_id"], told["fencing_token"], told["version"])

    async def keepalive(self, held: Held, ttl_s: int) -> WireAnswer:
        asked = {"key": held.key, "lease_id": held.lease_id, "txn_id": held.txn_id, "ttl_seconds": ttl_s}
        return await self.post("/v1/keepalive", asked, {"X-Fencing-Token": str(held.token)})

    async def update(self, held: Held, document: object) -> WireAnswer:
        body = json.dumps(document).encode()
        return await self.call("POST", f"/v1/update?key={held.key}", held.headers, body)

    async def release(self, held: Held, *, rollback: bool = False) -> WireAnswer:
        asked = {"key": held.key, "lease_id": held.lease_id, "txn_id": held.txn_id, "rollback": rollback}
        return await self.post("/v1/release", asked, {"X-Fencing-Token": str(held.token)})

    async def read(self, key: str) -> object:
        """The committed document; None if there is none."""
        return _document(await self.call("POST", f"/v1/get?key={key}&public=1"))

    async def read_leased(self, held: Held) -> object:
        """What the holder sees."""
        return _document(await self.call("POST", f"/v1/get?key={held.key}", held.headers))


def _document(answer: WireAnswer) -> object:
    if answer.status == 204:
        return None
    assert answer.status == 200, answer
    document: object = json.loads(answer.body)
    return document


@asynccontextmanager
async def plane(store_url: str, *, is_express: bool = True) -> AsyncIterator[int]:
    """A plane in this event loop; the block gets its port."""
    app = create_app(GatewaySettings.isolated(store=store_url))
    options = ServeOptions(is_express=is_express, limits=IMPATIENT, drain_grace_s=0, shutdown_timeout_s=2)
    async with running(app, Listener("127.0.0.1:0"), options=options) as server:
        address = server.addresses[0]
        assert isinstance(address, tuple)
        yield address[1]
