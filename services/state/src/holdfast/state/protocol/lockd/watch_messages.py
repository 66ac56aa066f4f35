"""The messages of a watch on the wire: one for each revision, as a server-sent event or as a line of JSON.

A message ends with the revision to resume after, never in the middle of one: `id:` of an event, `revision` of a line.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from pydantic_core import to_json

from holdfast.common.clock import unix_s
from holdfast.common.express.message import Header
from holdfast.state.layer.watch.event import EventType, KeyEvent
from holdfast.state.layer.watch.watcher import Change, KeyWatch

CREATED: Final = "created"
EVENTS: Final = "events"
PROGRESS: Final = "progress"
COMPACTED: Final = "compacted"


class Format(Protocol):
    """How messages are written down."""

    @property
    def name(self) -> str: ...

    @property
    def content_type(self) -> bytes: ...

    def message(self, type: str, revision: int, data: bytes) -> bytes:
        """`data` is the whole message as JSON."""
        ...

    def progress(self, revision: int) -> bytes:
        """Nothing has happened up to here. It is also the sign of life."""
        ...


class ServerSentEvents:
    """For browsers and the like, which come back with the id of the last event by themselves."""

    name = "sse"
    content_type = b"text/event-stream"

    def message(self, type: str, revision: int, data: bytes) -> bytes:
        if (
            type == COMPACTED
        ):  # Its revision is where to go on only for a reader that has looked at everything again.
            return b"event: compacted\ndata: %b\n\n" % data
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (revision, type.encode(), data)

    def progress(self, revision: int) -> bytes:
        """An event without data is dispatched to nobody, but its id is kept."""
        return b": alive\nid: %d\n\n" % revision


class JsonLines:
    """For programs: a line for each message."""

    name = "ndjson"
    content_type = b"application/x-ndjson"

    def message(self, type: str, revision: int, data: bytes) -> bytes:
        return data + b"\n"

    def progress(self, revision: int) -> bytes:
        return b'{"type":"progress","revision":%d}\n' % revision


SSE: Final[Format] = ServerSentEvents()
NDJSON: Final[Format] = JsonLines()


def stream_headers(format: Format) -> list[Header]:
    return [
        (b"content-type", format.content_type),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    ]


def created(format: Format, watch: KeyWatch) -> bytes:
    """`revision` is what the watch begins after, `store_revision` where the store was then."""
    members = {
        "type": CREATED,
        "revision": watch.revision,
        "store_revision": watch.created_revision,
        "namespace": watch.namespace,
        "prefix": watch.prefix,
    }
    return format.message(CREATED, watch.revision, to_json(members))


def compacted(format: Format, oldest_revision: int) -> bytes:
    members = {"type": COMPACTED, "revision": oldest_revision}
    return format.message(COMPACTED, oldest_revision, to_json(members))


def changes_message(format: Format, changes: Sequence[Change]) -> bytes:
    """A message for each."""
    return b"".join([_rendered(format, change) for change in changes])


def _rendered(format: Format, change: Change) -> bytes:
    rendered = change.forms.get(format.name)
    if rendered is None:
        members = {
            "type": EVENTS,
            "revision": change.revision,
            "events": [_told(one) for one in change.events],
        }
        rendered = format.message(EVENTS, change.revision, to_json(members))
        change.forms[format.name] = rendered
    return rendered


def _told(event: KeyEvent) -> dict[str, object]:
    told: dict[str, object] = {"type": event.type.value, "key": event.key}
    if event.type is EventType.PUT:
        return {**told, "version": event.version, "etag": event.etag}
    if event.type is EventType.DELETE:
        return {**told, "version": event.version}
    told |= {"owner": event.owner, "fencing_token": event.fencing_token}
    if event.type is EventType.ACQUIRED:
        told["expires_at_unix"] = unix_s(event.expires_at_ms)
    return told
