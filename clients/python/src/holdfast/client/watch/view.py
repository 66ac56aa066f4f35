"""What a watch tells, read out of lines of JSON as they come."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

from holdfast.client.errors import Compacted, UnexpectedAnswer
from holdfast.client.wire.call import Members

WatchEventType = Literal["put", "delete", "acquired", "released", "expired"]
"""A document was published or is gone; a lease began, was released, or ended because its time was over."""

_TYPES: Final = frozenset(get_args(WatchEventType))
_LINE_BYTES_MAX: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One thing that happened to a key. Several may happen at one revision: go on after it once the last one is dealt with."""

    type: WatchEventType
    key: str
    namespace: str
    revision: int
    is_last: bool
    """Of its revision."""
    version: int = 0
    """Of a document; 0 of one that is gone for good, so that versions begin anew."""
    etag: str = ""
    owner: str = ""
    fencing_token: int = 0
    expires_at_unix: int = 0
    """Of a lease that was acquired, before any renewal."""


@dataclass(frozen=True, slots=True)
class WatchMessage:
    """All that one revision tells; without events it only says how far the watch is."""

    revision: int
    events: tuple[WatchEvent, ...] = ()


class MessageReader:
    """Feed it with the bytes of one answer as they come, and take messages out. Those of a type that it does not know are
    passed over."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._namespace = ""

    def feed(self, data: bytes) -> Iterator[WatchMessage]:
        """Raises Compacted where the watch cannot go on."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._buffer += line
            whole = bytes(self._buffer)
            self._buffer.clear()
            if whole and (message := self._message(whole)) is not None:
                yield message
        self._buffer += rest
        if len(self._buffer) > _LINE_BYTES_MAX:
            raise UnexpectedAnswer("a watch with a line that is too large")

    def _message(self, line: bytes) -> WatchMessage | None:
        members = _members(line)
        revision = members.number("revision")
        match members.text("type"):
            case "created":
                self._namespace = members.text("namespace")
                return WatchMessage(revision)
            case "progress":
                return WatchMessage(revision)
            case "events":
                known = [one for one in members.items("events") if one.raw.get("type") in _TYPES]
                events = [
                    self._event(one, revision, is_last=number == len(known))
                    for number, one in enumerate(known, start=1)
                ]
                return WatchMessage(revision, tuple(events))
            case "compacted":
                problem = Compacted("compacted", f"what came before revision {revision} is gone", status=410)
                problem.compact_revision = revision
                raise problem
            case _:
                return None

    def _event(self, members: Members, revision: int, *, is_last: bool) -> WatchEvent:
        return WatchEvent(
            type=cast(WatchEventType, members.text("type")),
            key=members.text("key", is_required=True),
            namespace=self._namespace,
            revision=revision,
            is_last=is_last,
            version=members.number("version"),
            etag=members.text("etag"),
            owner=members.text("owner"),
            fencing_token=members.number("fencing_token"),
            expires_at_unix=members.number("expires_at_unix"),
        )


def _members(line: bytes) -> Members:
    try:
        decoded = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UnexpectedAnswer("a watch with a line that is no JSON") from error
    if not isinstance(decoded, dict):
        raise UnexpectedAnswer("a watch with a line that is no JSON object")
    return Members(decoded)
