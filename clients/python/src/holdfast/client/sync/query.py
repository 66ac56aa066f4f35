# Generated from aio/query.py by generate_sync.py: change that, then run `make sync-client`.
"""Queries: keys or documents, page after page, as they are asked for."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from holdfast.client.query.rows import Row, RowReader
from holdfast.client.query.search import Position, QueryMode, Search, keys_of
from holdfast.client.query.trailers import Trailers, page_headers
from holdfast.client.sync.stream import Stream
from holdfast.client.sync.transport import Transport
from holdfast.client.wire.call import Answer
from holdfast.client.wire.connection import mapped_errors
from holdfast.client.wire.flow import Channel


class Pages:
    """The answers to one search, one after the other, from a cursor on."""

    def __init__(
        self, transport: Transport, channel: Channel, search: Search, *, cursor: str, all_pages: bool
    ) -> None:
        self.position = Position(search.mode, cursor)
        self._transport = transport
        self._channel = channel
        self._search = search
        self._all_pages = all_pages

    def __iter__(self) -> Iterator[Answer]:
        while not self.position.is_complete:
            yield self._transport.run(self._search.page(self._channel, self.position.cursor))
            if not self._all_pages:
                return


@dataclass(slots=True)
class Query:
    """What keys and documents have in common: how far they have come."""

    _pages: Pages

    @property
    def mode(self) -> QueryMode:
        """What is iterated over."""
        return self._pages.position.mode

    @property
    def cursor(self) -> str:
        """Where to go on, empty at the end. Of a page that was not read to its end, all of it comes again."""
        return self._pages.position.cursor

    @property
    def index_seq(self) -> int:
        """The state of the index that answered the last page; 0 if none did."""
        return self._pages.position.index_seq

    @property
    def metadata(self) -> dict[str, str]:
        """What the server said about the last page."""
        return self._pages.position.metadata


@dataclass(slots=True)
class KeyQuery(Query):
    """`for key in client.query(selector)`."""

    def __iter__(self) -> Iterator[str]:
        for answer in self._pages:
            self._pages.position.check_mode(answer)
            keys, members = keys_of(answer)
            yield from keys
            self._pages.position.turn_by_members(members)


@dataclass(slots=True)
class DocumentQuery(Query):
    """`for row in client.query(selector, documents=True)`. Left early, close it, or use it in its `with`."""

    _document_bytes_max: int
    _open: Stream | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; what was not read is dropped."""
        if self._open is not None:
            self._open.close()

    def __iter__(self) -> Iterator[Row]:
        for answer in self._pages:
            with Stream(answer) as self._open:
                self._pages.position.check_mode(answer)
                yield from self._rows(answer)

    def _rows(self, answer: Answer) -> Iterator[Row]:
        response, endpoint = answer.response, answer.endpoint
        assert response is not None, "a stream was asked for"
        assert endpoint is not None, "an answer knows its endpoint"
        reader = RowReader(self._document_bytes_max)
        with Trailers(response) as trailers:
            with mapped_errors(endpoint):
                for piece in response.iter_raw():
                    for row in reader.feed(piece):
                        yield row
            for row in reader.finish():
                yield row
        self._pages.position.turn_by_headers(page_headers(answer, trailers))
