"""HTTP in, a stream of messages out: what happens to the documents and leases of a namespace."""

import asyncio
import re
from collections.abc import AsyncGenerator
from typing import Final

from pydantic import BaseModel

from holdfast.common.errors import Draining
from holdfast.common.express.message import Request, StreamAnswer
from holdfast.common.express.router import ExpressRouter
from holdfast.common.express.traits import Duration
from holdfast.common.fields import NAME_BYTES_MAX, InvalidNamespace, namespace_of, parse_int64
from holdfast.common.logging import get_logger
from holdfast.common.role import Role
from holdfast.common.serving.drain import Drain, Waits
from holdfast.common.settings import PlaneSettings
from holdfast.state.layer.errors import InvalidAfter, InvalidFormat, InvalidPrefix
from holdfast.state.layer.watch.hub import EventHub
from holdfast.state.layer.watch.watcher import Change, KeyWatch
from holdfast.state.protocol.lockd.watch_messages import (
    NDJSON,
    SSE,
    Format,
    changes_message,
    compacted,
    created,
    stream_headers,
)
from holdfast.storage.errors import Compacted, FutureRevision, StorageError, StoreUnavailable

HEARTBEAT_S: Final = 15.0

_PREFIX: Final = re.compile(r"(?:[a-z0-9._-]+/)*[a-z0-9._-]*")
_FORMATS: Final = {"": SSE, SSE.name: SSE, NDJSON.name: NDJSON}

_log = get_logger("state.watch")


class WatchedEvent(BaseModel):
    """Only for the documentation, as is what follows: `version` and `etag` are those of documents, the rest of leases."""

    type: str
    key: str
    version: int | None = None
    etag: str | None = None
    owner: str | None = None
    fencing_token: int | None = None
    expires_at_unix: int | None = None


class WatchMessage(BaseModel):
    type: str
    revision: int
    store_revision: int | None = None
    namespace: str | None = None
    prefix: str | None = None
    events: list[WatchedEvent] | None = None


class WatchRoutes:
    """The endpoint of watches. `hub` is set while the store is open."""

    hub: EventHub

    def __init__(self, settings: PlaneSettings, drain: Drain, waits: Waits) -> None:
        self._namespace_default = settings.namespace_default
        self._drain = drain
        self._waits = waits
        self.router = ExpressRouter(tags=("watch",), service=Role.STATE)
        self.router.add(
            "/v1/watch",
            self.watch,
            methods=("GET",),
            response_content={
                "text/event-stream": {"type": "string"},
                "application/x-ndjson": WatchMessage.model_json_schema(),
            },
            errors=(
                *(InvalidNamespace, InvalidPrefix, InvalidAfter, InvalidFormat),
                *(Compacted, FutureRevision, StoreUnavailable),
            ),
            summary="What happens to documents and leases: put, delete, acquired, released, expired. Renewals are not told.",
            query_parameters={
                "namespace": "The namespace.",
                "prefix": "Keys that begin with this; every key if left out.",
                "after": "The revision of the last message that was read; if left out, from now on.",
                "format": "`sse` or `ndjson`, instead of Accept.",
            },
            request_headers={
                "Accept": "`application/x-ndjson` for lines of JSON; anything else is answered with server-sent events.",
                "Last-Event-ID": "As `after`, and wins over it: what reconnecting readers of server-sent events send.",
            },
            duration=Duration.ENDLESS,
        )

    async def watch(self, request: Request, body: None) -> StreamAnswer:
        """A message for each revision that changes what is watched, `created` first; every 15 seconds one that there was nothing."""
        namespace = namespace_of(request.query("namespace"), self._namespace_default)
        prefix = _prefix_of(request.query("prefix"))
        after = _after_of(request)
        format = _format_of(request)
        self._drain.refuse_new_work()
        messages = self._messages(namespace, prefix, after, format)
        return StreamAnswer(200, stream_headers(format), None, messages, is_endless=True)

    async def _messages(
        self, namespace: str, prefix: str, after: int | None, format: Format
    ) -> AsyncGenerator[bytes, None]:
        watch = await self.hub.watch(namespace, prefix, after)
        try:
            yield created(format, watch)
            while True:
                try:
                    changes = await self._waits.until_drain(_next(watch))
                except Draining:
                    yield format.progress(watch.revision)
                    return
                except Compacted as error:
                    yield compacted(format, error.oldest_revision)
                    return
                except StorageError as error:
                    _log.warn("state.watch.ended", reason=error.detail)
                    return  # The client comes back after what it has seen, and is told what is wrong if it still is.
                yield changes_message(format, changes) if changes else format.progress(watch.revision)
        finally:
            watch.close()


async def _next(watch: KeyWatch) -> list[Change]:
    """Nothing, when nothing happens for a while."""
    try:
        async with asyncio.timeout(HEARTBEAT_S):
            return await watch.next()
    except TimeoutError:
        return []


def _prefix_of(text: str | None) -> str:
    prefix = (text or "").strip().removeprefix("/").lower()
    if len(prefix) > NAME_BYTES_MAX or not _PREFIX.fullmatch(prefix):
        raise InvalidPrefix(
            f"prefix {prefix[:200]!r}: at most {NAME_BYTES_MAX} of a-z 0-9 . _ - in segments divided by single slashes"
        )
    return prefix


def _after_of(request: Request) -> int | None:
    text = request.header(b"last-event-id") or request.query("after")
    if not text:
        return None
    revision = parse_int64(text)
    if revision is None or revision < 0:
        raise InvalidAfter(f"{text[:50]!r} is no revision: send back the last one that a watch told")
    return revision


def _format_of(request: Request) -> Format:
    named = (request.query("format") or "").strip().lower()
    if named not in _FORMATS:
        raise InvalidFormat(f"format {named[:50]!r} is neither sse nor ndjson")
    if not named and NDJSON.content_type.decode() in (request.header(b"accept") or "").lower():
        return NDJSON
    return _FORMATS[named]
