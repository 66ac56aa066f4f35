"""The documents of a page as lines of JSON, in pieces."""

from collections.abc import AsyncIterator

from holdfast.state.query_service import Page, QueryService

# Small rows go out together.
PIECE_BYTES = 32 << 10


async def rows(service: QueryService, page: Page) -> AsyncIterator[bytes]:
    """`{"ns":…,"key":…,"ver":…,"doc":…}` and a line feed for each one; clients rely on this order."""
    namespace = page.query.namespace
    pending = bytearray()
    async for key, document in service.documents(page):
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
