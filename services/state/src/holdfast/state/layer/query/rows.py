"""The documents of a page as lines of JSON, in pieces."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from holdfast.state.layer.query.service import Page, QueryService

# Small rows go out together.
PIECE_BYTES = 32 << 10


async def rows(service: QueryService, page: Page) -> AsyncGenerator[bytes, None]:
    """`{"ns":…,"key":…,"ver":…,"doc":…}` and a line feed for each one; clients rely on this order."""
    namespace = page.query.namespace
    pending = bytearray()
    async with aclosing(service.documents(page)) as documents:
        async for key, document in documents:
            pending += b'{"ns":"%b","key":"%b","ver":%d,"doc":' % (
                namespace.encode(),
                key.encode(),
                document.version,
            )
            if document.content.HasField("blob"):
                yield bytes(pending)
                pending.clear()
                async for piece in service.content(namespace, key, document):
                    yield piece
            else:
                pending += document.content.inline
            pending += b"}\n"
            if len(pending) >= PIECE_BYTES:
                yield bytes(pending)
                pending.clear()
    if pending:
        yield bytes(pending)


async def counted(
    pieces: AsyncGenerator[bytes, None], on_end: Callable[[int], None]
) -> AsyncGenerator[bytes, None]:
    """The same pieces; at their end it is told how many bytes they had."""
    sent_bytes = 0
    async with aclosing(pieces):
        async for piece in pieces:
            sent_bytes += len(piece)
            yield piece
    on_end(sent_bytes)
