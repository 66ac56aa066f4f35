# Generated from aio/stream.py by generate_sync.py: change that, then run `make sync-client`.
"""Large answers, read piece by piece."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import httpx

from holdfast.client.session.document import Attachment
from holdfast.client.sync.concurrency import run_blocking
from holdfast.client.wire.body import CHUNK_BYTES
from holdfast.client.wire.call import Answer
from holdfast.client.wire.connection import check_size, mapped_errors


class Stream:
    """An open answer. Read it once, inside its `with`."""

    def __init__(self, answer: Answer) -> None:
        assert answer.endpoint is not None, "an answer knows its endpoint"
        self._response: httpx.Response | None = answer.response
        self._endpoint = answer.endpoint

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        """The content in pieces."""
        if self._response is None:
            return
        with mapped_errors(self._endpoint):
            yield from self._response.iter_raw(CHUNK_BYTES)

    def read(self, bytes_max: int) -> bytes:
        """All of it, if it is not larger than that."""
        content = bytearray()
        for chunk in self:
            content += chunk
            check_size(len(content), bytes_max)
        return bytes(content)

    def save_to(self, target: Path | IO[bytes]) -> int:
        """Write all of it to a file, and give its size."""
        return save(self, target)

    def close(self) -> None:
        """Hang up; what was not read is dropped."""
        if self._response is not None:
            self._response.close()


def save(chunks: Iterable[bytes], target: Path | IO[bytes]) -> int:
    """Write all chunks to a file, and give their size."""
    if isinstance(target, Path):
        file = run_blocking(target.open, "wb")
        try:
            return save(chunks, file)
        finally:
            run_blocking(file.close)
    size_bytes = 0
    for chunk in chunks:
        run_blocking(target.write, chunk)
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
