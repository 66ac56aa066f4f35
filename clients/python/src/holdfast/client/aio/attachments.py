"""Attachments of one key: those that are committed, and those a session stages."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import IO

from holdfast.client.aio.stream import AttachmentStream
from holdfast.client.aio.transport import Transport
from holdfast.client.errors import InvalidArgument
from holdfast.client.session.document import Attachment, PutResult
from holdfast.client.session.hold import Hold
from holdfast.client.session.reading import Reading
from holdfast.client.wire.body import AsyncSource


class PublicAttachments:
    """Reads; `name` or `id` picks one, both must match if both are given."""

    def __init__(
        self,
        transport: Transport,
        reading: Callable[[], Reading],
        in_use: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._transport = transport
        self._reading = reading
        self._in_use = in_use

    async def list(self) -> "list[Attachment]":
        """All of them, by name."""
        with self._in_use():
            return await self._transport.run(self._reading().list_attachments())

    @asynccontextmanager
    async def get(self, name: str = "", *, id: str = "") -> AsyncIterator[AttachmentStream]:
        """`async with attachments.get(name) as stream`: iterate over it, or `stream.save_to(path)`."""
        with self._in_use():
            answer = await self._transport.run(self._reading().open_attachment(name=name, id=id))
            async with AttachmentStream(answer) as stream:
                yield stream

    async def read(self, name: str = "", *, id: str = "", bytes_max: int = 64 * 1024 * 1024) -> bytes:
        """The whole content in memory, if it is not larger than that."""
        async with self.get(name, id=id) as stream:
            return await stream.read(bytes_max)

    async def save(self, target: Path | IO[bytes], name: str = "", *, id: str = "") -> Attachment:
        """Write the content to a file."""
        async with self.get(name, id=id) as stream:
            await stream.save_to(target)
            return stream.attachment


class Attachments(PublicAttachments):
    """What a session sees and stages; published when its lease is released."""

    def __init__(self, transport: Transport, hold: Hold) -> None:
        super().__init__(transport, hold.reading, hold.in_use)
        self._hold = hold

    async def put(
        self,
        name: str,
        content: AsyncSource,
        *,
        content_type: str | None = None,
        max_bytes: int | None = None,
        prevent_overwrite: bool = False,
    ) -> PutResult:
        """Upload bytes, a file or a stream; a name that exists is replaced unless that is prevented."""
        if not name.strip():
            raise InvalidArgument("an attachment needs a name")
        flow = self._hold.put_attachment(
            name,
            content,
            content_type=content_type,
            max_bytes=max_bytes,
            prevent_overwrite=prevent_overwrite,
        )
        with self._in_use():
            return await self._transport.run(flow)

    async def delete(self, name: str = "", *, id: str = "") -> bool:
        """Whether there was one to delete."""
        if not name and not id:
            raise InvalidArgument("name the attachment by its name or its id")
        with self._in_use():
            return await self._transport.run(self._hold.delete_attachment(name=name, id=id))

    async def delete_all(self) -> int:
        """How many there were."""
        with self._in_use():
            return await self._transport.run(self._hold.delete_attachments())
