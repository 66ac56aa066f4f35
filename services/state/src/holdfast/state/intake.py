"""A document on its way in: one JSON value, compacted, and compared with what was announced about it."""

from collections.abc import AsyncIterator

from holdfast.common.errors import InvalidBody
from holdfast.common.json_text import Compactor
from holdfast.state.fields import ExpectedBody
from holdfast.storage.intake import PIECE_BYTES, Content, Intake


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
            for start in range(0, len(piece), PIECE_BYTES):
                await intake.write(compactor.feed(piece[start : start + PIECE_BYTES]))
        await intake.write(compactor.finish())
        sent.check()
        return await intake.finish()
