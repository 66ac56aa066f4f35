"""A small app with one express route of each kind, and a client that speaks raw bytes."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import ClassVar

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict

from holdfast.common.errors import HoldfastError
from holdfast.common.express.limits import Limits
from holdfast.common.express.message import Answer, Request, json_answer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.role import Role
from holdfast.common.serving.app import build_app
from holdfast.common.serving.listener import Listener
from holdfast.common.serving.server import PlaneServer, ServeOptions, running

BODY_LIMIT_BYTES = 200_000


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    key: str
    amount: int = 0


class Held(HoldfastError):
    """Somebody else holds it."""

    code: ClassVar[str] = "waiting"
    status: ClassVar[int] = 409

    def fields(self) -> dict[str, str | int]:
        return {"current_version": 3, "current_etag": ""}


@dataclass(slots=True)
class Sample:
    """What the handlers saw."""

    entered: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    certificates: list[bytes | None] = field(default_factory=list[bytes | None])

    async def echo(self, request: Request, body: Order) -> Answer:
        """Send the order back."""
        self.certificates.append(request.principal.certificate)
        return json_answer(body, headers=[(b"X-Key-Version", b"7")])

    async def find(self, request: Request, body: None) -> Answer:
        headers = [[name.decode(), value.decode("latin-1")] for name, value in request.headers]
        seen = {"key": request.query("key"), "method": request.method, "headers": headers}
        return json_answer(seen)

    async def raw(self, request: Request, body: None) -> Answer:
        return Answer(200, request.body, [(b"content-type", b"application/octet-stream")])

    async def nothing(self, request: Request, body: None) -> Answer:
        return Answer(204)

    async def unchanged(self, request: Request, body: None) -> Answer:
        return Answer(304, b"", [(b"etag", b"abc"), (b"x-key-version", b"7")])

    async def held(self, request: Request, body: None) -> Answer:
        raise Held("held by another owner", retry_after_s=6.2)

    async def broken(self, request: Request, body: None) -> Answer:
        raise RuntimeError("the secret of the house")

    async def split_header(self, request: Request, body: None) -> Answer:
        return Answer(200, b"", [(b"x-evil", b"a\r\nset-cookie: b")])

    async def wait(self, request: Request, body: None) -> Answer:
        self.entered.set()
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return Answer(200, b"at last")

    async def timed(self, request: Request, body: None) -> Answer:
        """Needs a current task from its first line on."""
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        return Answer(200, b"in time")

    def router(self) -> ExpressRouter:
        router = ExpressRouter(tags=("sample",), service=Role.STATE, affinity="key")
        router.add(
            "/v1/echo",
            self.echo,
            request_model=Order,
            response_model=Order,
            errors=(Held,),
            summary="Echo an order",
            request_example={"key": "orders/1", "amount": 2},
            request_headers={"X-Lease-ID": "The lease."},
            response_headers={"X-Key-Version": "The version."},
        )
        router.add("/v1/find", self.find, methods=("GET", "POST"), query_parameters={"key": "What to find."})
        router.add("/v1/raw", self.raw, body_limit_bytes=BODY_LIMIT_BYTES)
        router.add("/v1/small", self.raw, body_limit_bytes=10)
        router.add("/v1/nothing", self.nothing)
        router.add(
            "/v1/unchanged",
            self.unchanged,
            methods=("GET",),
            errors=(Held,),
            response_headers={"ETag": "Its tag."},
            bodiless_responses={304: "It is the same."},
        )
        router.add("/v1/held", self.held, errors=(Held,))
        router.add("/v1/broken", self.broken)
        router.add("/v1/split", self.split_header)
        router.add("/v1/wait", self.wait)
        router.add("/v1/timed", self.timed)
        return router

    def app(self) -> FastAPI:
        app = build_app("sample", express_routers=[self.router()])

        async def plain() -> dict[str, str]:
            return {"served": "plainly"}

        app.add_api_route("/plain", plain)
        return app


@asynccontextmanager
async def serving(
    sample: Sample, *, is_express: bool = True, limits: Limits | None = None
) -> AsyncIterator[tuple[PlaneServer, "Raw"]]:
    """The sample on a free loopback port."""
    options = ServeOptions(is_express=is_express, limits=limits or Limits(), drain_grace_s=0)
    async with running(sample.app(), Listener("127.0.0.1:0"), options=options) as server:
        address = server.addresses[0]
        assert isinstance(address, tuple)
        yield server, Raw(*address)


@dataclass(slots=True)
class Raw:
    """Opens connections to one address."""

    host: str
    port: int

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self.host, self.port)

    async def talk(self, *pieces: bytes) -> bytes:
        """Everything the server says to these bytes until it closes the connection."""
        reader, writer = await self.connect()
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            async with asyncio.timeout(20):
                return await reader.read()
        finally:
            writer.close()

    async def ask(self, request: bytes) -> bytes:
        """One answer to one request on a connection of its own."""
        reader, writer = await self.connect()
        try:
            writer.write(request)
            return await read_answer(reader)
        finally:
            writer.close()


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """One whole answer, by its content-length."""
    async with asyncio.timeout(20):
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        return head + (await reader.readexactly(int(length[1])) if length else b"")


def request(
    method: str, path: str, body: bytes = b"", *headers: str, version: str = "1.1", has_length: bool = True
) -> bytes:
    """The bytes of a request."""
    lines = [f"{method} {path} HTTP/{version}", "Host: test", *headers]
    if has_length and (body or method == "POST"):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def masked(answer: bytes) -> bytes:
    """The answer without the value of its date."""
    return re.sub(rb"\r\ndate: [^\r]*", b"\r\ndate: -", answer)
