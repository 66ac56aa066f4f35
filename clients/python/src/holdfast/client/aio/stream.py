"""Large answers, read piece by piece."""

from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import httpx

from holdfast.client.aio.concurrency import run_blocking
from holdfast.client.session.document import Attachment
from holdfast.client.wire.body import CHUNK_BYTES
from holdfast.client.wire.call import Answer
from holdfast.client.wire.connection import check_size, mapped_errors


class Stream:
    """An open answer. Read it once, inside its `async with`."""

    def __init__(self, answer: Answer) -> None:
        assert answer.endpoint is not None, "an answer knows its endpoint"
        self._response: httpx.Response | None = answer.response
        self._endpoint = answer.endpoint

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The content in pieces."""
        if self._response is None:
            return
        with mapped_errors(self._endpoint):
            async for chunk in self._response.aiter_raw(CHUNK_BYTES):
                yield chunk

    async def read(self, bytes_max: int) -> bytes:
        """All of it, if it is not larger than that."""
        content = bytearray()
        async for chunk in self:
            content += chunk
            check_size(len(content), bytes_max)
        return bytes(content)

    async def save_to(self, target: Path | IO[bytes]) -> int:
        """Write all of it to a file, and give its size."""
        return await save(self, target)

    async def close(self) -> None:
        """Hang up; what was not read is dropped."""
        if self._response is not None:
            await self._response.aclose()


async def save(chunks: AsyncIterable[bytes], target: Path | IO[bytes]) -> int:
    """Write all chunks to a file, and give their size."""
    if isinstance(target, Path):
        file = await run_blocking(target.open, "wb")
        try:
            return await save(chunks, file)
        finally:
            await run_blocking(file.close)
    size_bytes = 0
    async for chunk in chunks:
        await run_blocking(target.write, chunk)
        size_bytes += len(chunk)
    return size_bytes


class DocumentStream(Stream):
    """A document; `exists` is false when there is none."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.exists = answer.status == 200
        self.version = answer.key_version or 0
        self.etag = answer.etag


class AttachmentStream(Stream):
    """The content of an attachment, and what it is."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.attachment = Attachment.from_headers(answer)
