"""Rows of a query: one document per line, cut from the pieces in which they arrive."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from holdfast.client.errors import UnexpectedAnswer

_TEXT: Final = rb'("(?:[^"\\]|\\.)*+")'
_HEAD: Final = re.compile(
    rb"\s*+\{\s*+"
    rb'"ns"\s*+:\s*+' + _TEXT + rb"\s*+,\s*+"
    rb'"key"\s*+:\s*+' + _TEXT + rb"\s*+,\s*+"
    rb'(?:"ver"\s*+:\s*+([0-9]{1,19})\s*+,\s*+)?'
    rb'"doc"\s*+:\s*+',
    re.DOTALL,
)
_WHITE_SPACE: Final = b" \t\r"
_HEAD_BYTES_MAX: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Row:
    """One hit: the document as it was when the page was read."""

    namespace: str
    key: str
    version: int
    content: bytes
    """The document as it is stored, to the byte."""

    def json(self) -> Any:
        """The decoded document."""
        return json.loads(self.content)


class RowReader:
    """Holds what has arrived of one row, never more than a row and a piece."""

    def __init__(self, document_bytes_max: int) -> None:
        self._line_bytes_max = document_bytes_max + _HEAD_BYTES_MAX
        self._arrived = bytearray()
        self._searched = 0

    def feed(self, piece: bytes) -> Iterator[Row]:
        """The rows that this piece completes."""
        self._arrived += piece
        start = 0
        while (end := self._arrived.find(b"\n", max(start, self._searched))) >= 0:
            self._check_size(end - start)
            row = self._row(start, end)
            start = end + 1
            if row is not None:
                yield row
        # In place, so that what is left of a long row is not copied for every piece.
        del self._arrived[:start]
        self._searched = len(self._arrived)
        self._check_size(self._searched)

    def finish(self) -> Iterator[Row]:
        """The last row, if nothing ended its line."""
        row = self._row(0, len(self._arrived))
        self._arrived.clear()
        if row is not None:
            yield row

    def _check_size(self, line_bytes: int) -> None:
        if line_bytes > self._line_bytes_max:
            raise UnexpectedAnswer(
                f"a document is larger than {self._line_bytes_max - _HEAD_BYTES_MAX} bytes; "
                "ask for keys and read it as a stream"
            )

    def _row(self, start: int, end: int) -> Row | None:
        """A blank line is no row."""
        head = _HEAD.match(self._arrived, start, end)
        if head is None:
            if self._arrived[start:end].strip():
                raise UnexpectedAnswer("a row of a query that is none")
            return None
        stop = self._document_end(head.end(), end)
        version = 0 if head[3] is None else int(head[3])
        return Row(_decoded(head[1]), _decoded(head[2]), version, bytes(self._arrived[head.end() : stop]))

    def _document_end(self, start: int, end: int) -> int:
        """Where the document ends: before the brace that closes the row."""
        brace = self._skip_back(start, end)
        if brace <= start or self._arrived[brace - 1] != ord("}"):
            raise UnexpectedAnswer("a row of a query that is cut off")
        stop = self._skip_back(start, brace - 1)
        if stop == start:
            raise UnexpectedAnswer("a row of a query without its document")
        return stop

    def _skip_back(self, start: int, end: int) -> int:
        while end > start and self._arrived[end - 1] in _WHITE_SPACE:
            end -= 1
        return end


def _decoded(text: bytes) -> str:
    try:
        decoded: str = json.loads(text)
    except ValueError as error:
        raise UnexpectedAnswer("a row of a query whose names are no text") from error
    return decoded
