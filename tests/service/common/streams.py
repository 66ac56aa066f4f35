"""A small app whose bodies and answers stream, and what its handlers saw."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain
from typing import ClassVar

from holdfast.common.errors import HoldfastError
from holdfast.common.express.message import Answer, Header, Request, StreamAnswer, json_answer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.role import Role
from tests.service.common.sample import Held, Sample

UPLOAD_LIMIT_BYTES = 300_000
TEXT: list[Header] = [(b"Content-Type", b"text/plain")]


class UploadTooLarge(HoldfastError):
    """More than this upload may have."""

    code: ClassVar[str] = "upload_too_large"
    status: ClassVar[int] = 422


@dataclass(slots=True)
class Streams(Sample):
    """Handlers that stream; `produced` counts chunks, `closed` is set when a producer is let go."""

    produced: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    got_piece: asyncio.Event = field(default_factory=asyncio.Event)
    piece_sizes: list[int] = field(default_factory=list[int])

    async def chunks(self, chunks: Iterable[bytes], end: Exception | None = None) -> AsyncIterator[bytes]:
        try:
            for chunk in chunks:
                self.produced += 1
                yield chunk
            if end is not None:
                raise end
        finally:
            self.closed.set()

    async def download(self, request: Request, body: None) -> StreamAnswer:
        """`count` chunks of `size` bytes; the size of all is announced unless it is to be `unknown`."""
        count, size = int(request.query("count") or 3), int(request.query("size") or 5)
        announced = None if request.query("unknown") else count * size + int(request.query("more") or 0)
        ends = {"held": Held("gone meanwhile"), "broken": RuntimeError("the secret of the house")}
        end = ends.get(request.query("end") or "")
        headers: list[Header] = [*TEXT, (b"X-Bad", b"a\r\nb")] if request.query("bad_header") else TEXT
        status = int(request.query("status") or 200)
        numbered = (b"%d" % (index % 10) * size for index in range(count))
        return StreamAnswer(status, headers, announced, self.chunks(chain([b""], numbered, [b""]), end))

    async def upload(self, request: Request, body: None) -> Answer:
        return json_answer({"whole": len(request.body), "sha256": sha256(request.body).hexdigest()})

    async def upload_stream(self, request: Request, pieces: AsyncIterator[bytes]) -> Answer:
        if request.query("refuse"):
            raise Held("held by another owner")
        seen, size_bytes = sha256(), 0
        try:
            async for piece in pieces:
                self.piece_sizes.append(len(piece))
                self.got_piece.set()
                seen.update(piece)
                size_bytes += len(piece)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return json_answer({"streamed": size_bytes, "sha256": seen.hexdigest()})

    async def copy(self, request: Request, pieces: AsyncIterator[bytes]) -> StreamAnswer:
        received = b"".join([piece async for piece in pieces])
        return StreamAnswer(200, TEXT, None, self.chunks([received]))

    def router(self) -> ExpressRouter:
        router = ExpressRouter(service=Role.STATE, affinity="key")
        router.add("/v1/echo", self.raw)
        router.add("/v1/download", self.download, methods=("GET", "HEAD"))
        router.add(
            "/v1/upload", self.upload, stream_handler=self.upload_stream, body_limit_bytes=UPLOAD_LIMIT_BYTES
        )
        router.add(
            "/v1/upload-narrow",
            self.upload,
            stream_handler=self.upload_stream,
            body_limit_bytes=UPLOAD_LIMIT_BYTES,
            body_limit_error=UploadTooLarge,
        )
        router.add(
            "/v1/upload-wide", self.upload, stream_handler=self.upload_stream, body_limit_bytes=1 << 40
        )
        router.add("/v1/copy", self.upload, stream_handler=self.copy)
        return router
