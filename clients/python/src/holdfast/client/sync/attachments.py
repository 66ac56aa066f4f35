# Generated from aio/attachments.py by generate_sync.py: change that, then run `make sync-client`.
"""Attachments of one key: those that are committed, and those a session stages."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

from holdfast.client.errors import InvalidArgument
from holdfast.client.session.document import Attachment, PutResult
from holdfast.client.session.hold import Hold
from holdfast.client.session.reading import Reading
from holdfast.client.sync.stream import AttachmentStream
from holdfast.client.sync.transport import Transport
from holdfast.client.wire.body import SyncSource


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

    def list(self) -> "list[Attachment]":
        """All of them, by name."""
        with self._in_use():
            return self._transport.run(self._reading().list_attachments())

    @contextmanager
    def get(self, name: str = "", *, id: str = "") -> Iterator[AttachmentStream]:
        """`with attachments.get(name) as stream`: iterate over it, or `stream.save_to(path)`."""
        with self._in_use():
            answer = self._transport.run(self._reading().open_attachment(name=name, id=id))
            with AttachmentStream(answer) as stream:
                yield stream

    def read(self, name: str = "", *, id: str = "", bytes_max: int = 64 * 1024 * 1024) -> bytes:
        """The whole content in memory, if it is not larger than that."""
        with self.get(name, id=id) as stream:
            return stream.read(bytes_max)

    def save(self, target: Path | IO[bytes], name: str = "", *, id: str = "") -> Attachment:
        """Write the content to a file."""
        with self.get(name, id=id) as stream:
            stream.save_to(target)
            return stream.attachment


class Attachments(PublicAttachments):
    """What a session sees and stages; published when its lease is released."""

    def __init__(self, transport: Transport, hold: Hold) -> None:
        super().__init__(transport, hold.reading, hold.in_use)
        self._hold = hold

    def put(
        self,
        name: str,
        content: SyncSource,
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
            return self._transport.run(flow)

    def delete(self, name: str = "", *, id: str = "") -> bool:
        """Whether there was one to delete."""
        if not name and not id:
            raise InvalidArgument("name the attachment by its name or its id")
        with self._in_use():
            return self._transport.run(self._hold.delete_attachment(name=name, id=id))

    def delete_all(self) -> int:
        """How many there were."""
        with self._in_use():
            return self._transport.run(self._hold.delete_attachments())
