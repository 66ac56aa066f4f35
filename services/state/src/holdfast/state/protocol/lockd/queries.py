"""HTTP in, service call, HTTP out: queries, and the flush of an index that is always current."""

from time import perf_counter

from pydantic import BaseModel, ConfigDict
from pydantic_core import to_json

from holdfast.common.errors import InvalidBody
from holdfast.common.express.message import Answer, AnyAnswer, Header, Request, StreamAnswer, json_answer
from holdfast.common.express.traits import ALL_METHODS, Admission, Begins, Duration, Group
from holdfast.common.fields import InvalidNamespace, namespace_of
from holdfast.common.ids import uuid7
from holdfast.common.settings import PlaneSettings
from holdfast.lql.errors import InvalidSelector
from holdfast.state.layer.errors import (
    IndexUnavailable,
    InvalidCursor,
    InvalidEngine,
    InvalidFields,
    InvalidMode,
    InvalidRefresh,
    InvalidReturn,
    QueryEngineUnavailable,
    QueryUnavailable,
)
from holdfast.state.layer.query.rows import counted, rows
from holdfast.state.layer.query.service import Page, QueryService
from holdfast.state.metrics import IndexMetrics
from holdfast.state.protocol.lockd.declarations import state_router
from holdfast.state.protocol.lockd.query_fields import read_query

QUERY_BYTES_MAX = 256 << 10
FLUSH_BYTES_MAX = 8 << 10
_WAIT = frozenset(("", "wait", "sync"))


class QueryBody(BaseModel):
    """Only for the documentation: the handler reads the body itself, because members may be spelled in any case."""

    namespace: str | None = None
    selector: dict[str, object] | None = None
    limit: int | None = None
    cursor: str | None = None
    fields: dict[str, object] | None = None


class QueryAnswer(BaseModel):
    namespace: str
    keys: list[str] | None = None
    cursor: str | None = None
    index_seq: int | None = None
    metadata: dict[str, str] | None = None


class FlushRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    namespace: str | None = None
    mode: str | None = None


class FlushAnswer(BaseModel):
    namespace: str
    mode: str
    accepted: bool
    flushed: bool
    pending: bool
    flush_id: str | None = None
    index_seq: int | None = None


class QueryRoutes:
    """The endpoints of search. `service` is set while the store is open."""

    service: QueryService

    def __init__(self, settings: PlaneSettings, metrics: IndexMetrics) -> None:
        self._metrics = metrics
        self._namespace_default = settings.namespace_default
        self.router = state_router("query")
        self._declare()

    def _declare(self) -> None:
        self.router.add(
            "/v1/query",
            self.query,
            methods=("POST", "GET"),
            request_model=QueryBody,
            response_model=QueryAnswer,
            errors=(
                *(InvalidBody, InvalidSelector, InvalidNamespace, InvalidFields, InvalidEngine),
                *(InvalidReturn, InvalidRefresh, QueryEngineUnavailable, InvalidCursor, QueryUnavailable),
            ),
            summary="The keys, or documents, of a namespace that match a selector, in the order of keys.",
            request_example={"selector": {"eq": {"field": "/status", "value": "open"}}, "limit": 50},
            query_parameters={
                "namespace": "The namespace.",
                "selector": "The selector as JSON, instead of that of the body.",
                "limit": "At most so many, up to 1000; 100 if left out.",
                "cursor": "Where the page before ended.",
                "return": "`keys`, or `documents`: one JSON object per line, with the document as `doc`.",
                "engine": "`auto`, `index` or `scan`.",
                "refresh": "`wait_for`, which changes nothing: a query always sees every commit.",
                "fields": "A JSON object, accepted and not used.",
            },
            response_headers={
                "X-Lockd-Query-Return": "`keys` or `documents`.",
                "X-Lockd-Query-Cursor": "For the next page, if there may be one.",
                "X-Lockd-Query-Index-Seq": "The revision of the index.",
                "X-Lockd-Query-Metadata": "What is to be said about the index, as a JSON object.",
            },
            body_limit_bytes=QUERY_BYTES_MAX,
            body_limit_error=InvalidBody,
            is_body_optional=True,
            is_parsed_by_handler=True,
            admission=Admission(Group.QUERY, Begins.ALWAYS),
            repeatable=ALL_METHODS,
            duration=Duration.LONG,
        )
        self._flush = self.router.add(
            "/v1/index/flush",
            self.flush,
            request_model=FlushRequest,
            response_model=FlushAnswer,
            errors=(InvalidBody, InvalidNamespace, InvalidMode, IndexUnavailable),
            summary="Nothing to do: the index is written by the commit that changes a document.",
            query_parameters={"namespace": "The namespace.", "mode": "`wait` or `async`."},
            body_limit_bytes=FLUSH_BYTES_MAX,
            body_limit_error=InvalidBody,
            is_body_optional=True,
        )

    async def query(self, request: Request, body: None) -> AnyAnswer:
        asked = read_query(request, self._namespace_default)
        request.operation = self._metrics.query, asked.namespace, perf_counter()
        page = await self.service.page(asked)
        if not page.query.returns_documents:
            return _keys(page)
        headers: list[Header] = [
            (b"content-type", b"application/x-ndjson"),
            (b"x-lockd-query-return", b"documents"),
            *_page_headers(page, page.metadata),
        ]
        trailers: dict[bytes, bytes] = {}
        chunks = counted(rows(self.service, page), lambda sent_bytes: _fill(trailers, page, sent_bytes))
        _fill(trailers, page, 0)
        return StreamAnswer(200, headers, None, chunks, trailers)

    async def flush(self, request: Request, body: FlushRequest | None) -> Answer:
        asked = body or FlushRequest()
        mode = ((request.query("mode") or "").strip() or (asked.mode or "").strip()).lower()
        named = (request.query("namespace") or "").strip() or asked.namespace
        namespace = namespace_of(named, self._namespace_default)
        if mode not in _WAIT and mode != "async":
            raise InvalidMode(f"mode {mode[:50]!r} is neither wait nor async")
        index_seq = await self.service.flush(namespace)
        if mode == "async":
            answer = FlushAnswer(
                namespace=namespace, mode=mode, accepted=True, flushed=False, pending=False, flush_id=uuid7()
            )
            return json_answer(answer, status=202)
        return json_answer(
            FlushAnswer(
                namespace=namespace,
                mode="wait",
                accepted=True,
                flushed=True,
                pending=False,
                index_seq=index_seq or None,
            )
        )


def _keys(page: Page) -> Answer:
    answer = {
        "namespace": page.query.namespace,
        "keys": [match.key for match in page.matches] or None,
        "cursor": page.cursor or None,
        "index_seq": page.index_seq or None,
        "metadata": page.metadata or None,
    }
    return json_answer(
        answer, headers=[(b"x-lockd-query-return", b"keys"), *_page_headers(page, page.metadata)]
    )


def _page_headers(page: Page, metadata: dict[str, str]) -> list[Header]:
    headers: list[Header] = []
    if page.cursor:
        headers.append((b"x-lockd-query-cursor", page.cursor.encode()))
    if page.index_seq:
        headers.append((b"x-lockd-query-index-seq", b"%d" % page.index_seq))
    if metadata:
        headers.append((b"x-lockd-query-metadata", to_json(metadata)))
    return headers


def _fill(trailers: dict[bytes, bytes], page: Page, sent_bytes: int) -> None:
    """What newer clients look for after the documents, and what it took to find them."""
    counters = {
        "query_candidates_seen": page.seen_count,
        "query_candidates_matched": len(page.matches),
        "query_bytes_captured": sent_bytes,
        "query_spill_count": 0,
        "query_spill_bytes": 0,
    }
    metadata = page.metadata | {name: str(count) for name, count in counters.items()}
    trailers.update(_page_headers(page, metadata))
