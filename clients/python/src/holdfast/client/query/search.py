"""A query: what is asked for page by page, and what the pages tell about themselves. It does no I/O."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from holdfast.client.errors import InvalidArgument, Throttled, UnexpectedAnswer
from holdfast.client.wire import request
from holdfast.client.wire.call import Answer, Members, integer_of
from holdfast.client.wire.flow import Channel, Flow, pause
from holdfast.client.wire.retry import QUERY_BACKOFF, RETRIES_DEFAULT

QueryMode = Literal["keys", "documents"]
SelectorInput = str | Mapping[str, Any]
"""Selector text, or the JSON form as a mapping."""

CURSOR_HEADER: Final = "x-lockd-query-cursor"
_INDEX_SEQ_HEADER: Final = "x-lockd-query-index-seq"
_METADATA_HEADER: Final = "x-lockd-query-metadata"
_NDJSON_TYPE: Final = "application/x-ndjson"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is asked for; a cursor says from where on."""

    namespace: str
    selector: Mapping[str, Any]
    mode: QueryMode
    limit: int = 0
    """Hits on a page; 0: the server's own."""
    fields: Mapping[str, Any] | None = None
    engine: str = ""
    refresh: str = ""
    correlation_id: str = ""

    @classmethod
    def of(
        cls, selector: SelectorInput, *, namespace: str, documents: bool, limit: int | None, **rest: Any
    ) -> "Search":
        if limit is not None and limit < 1:
            raise InvalidArgument("limit is the number of hits on a page: at least 1")
        mode: QueryMode = "documents" if documents else "keys"
        members = selector_members(selector)
        return cls(namespace=namespace, selector=members, mode=mode, limit=limit or 0, **rest)

    def page(self, channel: Channel, cursor: str) -> Flow[Answer]:
        """The answer of one page, open to be read if it has documents. A busy server is asked again."""
        call = request.query(
            namespace=self.namespace,
            selector=self.selector,
            documents=self.mode == "documents",
            limit=self.limit,
            cursor=cursor,
            fields=self.fields,
            engine=self.engine,
            refresh=self.refresh,
            correlation_id=self.correlation_id,
        )
        for attempt in range(RETRIES_DEFAULT):
            answer = yield from channel.send(call)
            if answer.status != 429:
                return answer.expect(200)
            delay_s = QUERY_BACKOFF.delay_s(attempt, channel.chance, _retry_after_s(answer))
            yield from pause(delay_s)
        answer = yield from channel.send(call)
        return answer.expect(200)


@dataclass(slots=True)
class Position:
    """How far a query has come, and what the server said about its last page."""

    mode: QueryMode
    cursor: str = ""
    """Where the next page starts; while a page is being read, where that one started."""
    index_seq: int = 0
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    is_complete: bool = False
    """Everything was given out."""

    def check_mode(self, answer: Answer) -> None:
        """A page of another kind than asked for can't be given out."""
        if mode_of(answer) != self.mode:
            raise UnexpectedAnswer(f"the server did not answer with {self.mode}")

    def turn(self, cursor: str, index_seq: int, metadata: dict[str, str]) -> None:
        """A page is done: the next one starts there."""
        if cursor and cursor == self.cursor:
            raise UnexpectedAnswer("the server gave the same cursor twice: this would never end")
        self.cursor, self.index_seq, self.metadata = cursor, index_seq, metadata
        self.is_complete = not cursor

    def turn_by_members(self, members: Members) -> None:
        """The same, by the body of a page of keys."""
        metadata = _texts(members.inner("metadata").raw)
        self.turn(members.text("cursor"), members.number("index_seq"), metadata)

    def turn_by_headers(self, headers: Mapping[str, str]) -> None:
        """The same, by the headers and trailers of a page of documents."""
        metadata = _decoded_metadata(headers.get(_METADATA_HEADER, ""))
        index_seq = integer_of(headers.get(_INDEX_SEQ_HEADER)) or 0
        self.turn(headers.get(CURSOR_HEADER, ""), index_seq, metadata)


def keys_of(answer: Answer) -> tuple[list[str], Members]:
    """The keys of a page, and the body that they stood in."""
    members = answer.members()
    keys = members.raw.get("keys") or []
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise UnexpectedAnswer("an answer with a broken member 'keys'")
    return keys, members


def mode_of(answer: Answer) -> QueryMode:
    """What an answer holds: it says so itself, else by its type."""
    word = answer.headers.get("x-lockd-query-return", "").strip().lower()
    if word in ("keys", "documents"):
        return "documents" if word == "documents" else "keys"
    is_rows = answer.headers.get("content-type", "").lower().startswith(_NDJSON_TYPE)
    return "documents" if is_rows else "keys"


def selector_members(selector: SelectorInput) -> Mapping[str, Any]:
    """The JSON form of a selector: the server reads no text."""
    if not isinstance(selector, str):
        return selector
    # A query by key alone does not pay for importing the language.
    from holdfast.lql.errors import LqlError
    from holdfast.lql.selector.json import selector_to_json
    from holdfast.lql.selector.text import parse_selector

    try:
        return selector_to_json(parse_selector(selector))
    except LqlError as error:
        raise InvalidArgument(f"{error.code} ({error.detail})") from error


def _retry_after_s(answer: Answer) -> float | None:
    problem = answer.error()
    return problem.retry_after_s if isinstance(problem, Throttled) else None


def _decoded_metadata(text: str) -> dict[str, str]:
    try:
        decoded = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise UnexpectedAnswer("an answer with broken query metadata") from error
    if not isinstance(decoded, dict):
        raise UnexpectedAnswer("an answer with broken query metadata")
    return _texts(decoded)


def _texts(members: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in members.items() if isinstance(value, str)}
