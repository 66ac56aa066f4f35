"""A document on its way in: one JSON value, compacted, and compared with what was announced about it."""

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Final, NamedTuple

from holdfast.common.errors import InvalidBody
from holdfast.common.json_text import Compactor
from holdfast.state.layer.errors import ExpectedBytesMismatch, ExpectedSha256Mismatch
from holdfast.storage.intake import Content, Intake

_STEP_BYTES: Final = 256 << 10
"""Compacted in one go: as much as comes in at once. Each step costs some items that are read token by token."""


class ExpectedBody(NamedTuple):
    """What the body as sent should be; checked before anything is staged."""

    size_bytes: int | None
    sha256: str | None

    def check(self, body: bytes) -> None:
        """A body in memory."""
        counter = self.counter()
        counter.add(body)
        counter.check()

    def counter(self) -> "SentBody":
        return SentBody(self)


class SentBody:
    """A body as it is sent, compared with what was expected. Hashed only if the caller expects a hash."""

    def __init__(self, expected: ExpectedBody) -> None:
        self._expected = expected
        self._hash = None if expected.sha256 is None else sha256()
        self.size_bytes = 0

    def add(self, piece: bytes) -> None:
        self.size_bytes += len(piece)
        if self._hash is not None:
            self._hash.update(piece)

    def check(self) -> None:
        expected = self._expected
        if expected.size_bytes is not None and expected.size_bytes != self.size_bytes:
            raise ExpectedBytesMismatch(
                f"the body has {self.size_bytes} bytes, {expected.size_bytes} were expected"
            )
        if self._hash is not None and self._hash.hexdigest() != expected.sha256:
            raise ExpectedSha256Mismatch("the body does not have the expected SHA-256")


def above_limit(bytes_max: int) -> InvalidBody:
    """Not 413: the clients know this code."""
    return InvalidBody(f"the document is larger than {bytes_max} bytes")


async def take_document(
    intake: Intake, pieces: AsyncIterator[bytes], expected: ExpectedBody, bytes_max: int
) -> Content:
    """What was announced about the body is compared with the body as sent."""
    compactor = Compactor()
    sent = expected.counter()
    async with intake:
        async for piece in pieces:
            sent.add(piece)
            if sent.size_bytes > bytes_max:
                raise above_limit(bytes_max)
            for start in range(0, len(piece), _STEP_BYTES):
                await intake.write(compactor.feed(piece[start : start + _STEP_BYTES]))
        await intake.write(compactor.finish())
        sent.check()
        return await intake.finish()
