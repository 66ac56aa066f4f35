"""Public reads that are answered from memory: the answer was made when the document was read before, headers and all."""

from dataclasses import dataclass
from typing import Final

from holdfast.common.express.message import Answer, Header, RenderedAnswer, Request, render_lines
from holdfast.state.layer.document.published import PublishedCache
from holdfast.state.layer.document.staging import View
from holdfast.state.layer.records import DOCUMENTS
from holdfast.state.protocol.lockd.fields import is_named
from holdfast.txn.layer.port import Member

_CONTENT_TYPE: Final = b"content-type: application/json\r\n"


@dataclass(slots=True)
class Ready:
    """One document as it is answered. Shared by all readers, so nothing of it is changed."""

    etag: str
    lines: bytes
    answer: RenderedAnswer

    def to(self, request: Request) -> Answer:
        """The answer to this reader, who may have it."""
        if_none_match = request.peek(b"if-none-match")
        if if_none_match is not None and is_named(self.etag, if_none_match.decode("latin-1")):
            return RenderedAnswer(304, b"", self.lines)
        return self.answer


class ReadyAnswers:
    """Answers by the query of the public read that each was made for. A request without a lease that has the same query asks for
    the same: whether it is right, public, and of which document was found out the first time."""

    def __init__(self, cache: PublishedCache[Ready]) -> None:
        self._cache = cache

    def find(self, request: Request) -> Answer | None:
        """The answer, if it is kept and the request names no lease."""
        if request.peek(b"x-lease-id"):
            return None
        ready = self._cache.get(request.query_string)
        return None if ready is None else ready.to(request)

    def wants(self, request: Request) -> bool:
        """Whether the answer to a public read that was not found is worth keeping."""
        return self._cache.wants(request.query_string)

    def keep(
        self, request: Request, member: Member, view: View, version_headers: list[Header]
    ) -> Ready | None:
        """For a public read, while `view` is what is committed. None: it is no document of one record; others are streamed."""
        if view.content is None or view.content.HasField("blob") or not view.etag.isalnum():
            return None
        text, lines = view.content.inline, render_lines(version_headers)
        ready = Ready(view.etag, lines, RenderedAnswer(200, text, _CONTENT_TYPE + lines))
        self._cache.keep(DOCUMENTS.key(*member), request.query_string, ready, len(text))
        return ready
