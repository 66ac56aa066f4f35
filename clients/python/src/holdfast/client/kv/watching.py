"""A watch over all of its connections: what is asked for at the next one, and what arrives in each."""

import json
from collections.abc import Callable, Iterator
from typing import Final

from holdfast.client.errors import ApiError, Compacted, RequestRefused, Unavailable, UnexpectedAnswer
from holdfast.client.kv.fields import Octets, present, read_int64, stream_error
from holdfast.client.kv.operation import span_members
from holdfast.client.kv.view import KvEvent, read_revision
from holdfast.client.wire.call import Members

_MESSAGE_BYTES_MAX: Final = 256 * 1024 * 1024


class Watching:
    """Feed it with bytes as they come, and take events out, those of one message together. A message is read when it is taken.

    After each message `next_revision` is the first one that was not told yet: the next connection begins there, so nothing
    is told twice and nothing is left out.
    """

    def __init__(
        self,
        key: Octets,
        *,
        range_end: Octets = b"",
        prefix: bool = False,
        from_key: bool = False,
        start_revision: int = 0,
        prev_kv: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        self.next_revision = start_revision
        self.is_created = False
        """The server knows this watch, by the connection that is open now."""
        self._wanted = {
            **span_members(key, range_end, prefix=prefix, from_key=from_key),
            **present({"prev_kv": prev_kv, "progress_notify": on_progress is not None}),
        }
        self._on_progress = on_progress
        self._buffer = bytearray()

    def members(self) -> dict[str, object]:
        return {**self._wanted, **present({"start_revision": self.next_revision})}

    def opened(self) -> None:
        """A new connection: what was left of a message of the last one comes again."""
        self.is_created = False
        self._buffer.clear()

    def feed(self, data: bytes) -> Iterator[list[KvEvent]]:
        seen = len(self._buffer)
        self._buffer += data
        while (end := self._buffer.find(b"\n", seen)) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            seen = 0
            if line.strip():
                yield self._read(line)
        if len(self._buffer) > _MESSAGE_BYTES_MAX:
            raise UnexpectedAnswer("a watch with a message that is too large")

    def _read(self, line: bytes) -> list[KvEvent]:
        message = _message_of(line)
        events = [KvEvent.read(one) for one in message.items("events")]
        revision = read_revision(message)
        if message.boolean("created"):
            self._created(revision, message)
        elif message.boolean("canceled"):
            raise self._canceled(message)
        elif events:
            self.next_revision = max(self.next_revision, events[-1].kv.mod_revision + 1)
        elif revision and read_int64(message, "watch_id") >= 0:
            self.next_revision = max(self.next_revision, revision + 1)
            if self._on_progress is not None:
                self._on_progress(revision)
        return events

    def _created(self, revision: int, message: Members) -> None:
        if message.boolean("canceled"):  # It makes no sense, and would make none at the next attempt.
            raise RequestRefused(message.text("cancel_reason") or "the watch was refused", status=400)
        self.is_created = True
        if not self.next_revision:
            self.next_revision = revision + 1

    def _canceled(self, message: Members) -> ApiError:
        if compact_revision := read_int64(message, "compact_revision"):
            problem = Compacted(
                "etcdserver: mvcc: required revision has been compacted",
                f"it was {self.next_revision}, and the first one left is {compact_revision}",
                status=400,
            )
            problem.compact_revision = compact_revision
            return problem
        return Unavailable(message.text("cancel_reason") or "the watch was ended by the server", status=503)


def _message_of(line: bytes) -> Members:
    try:
        decoded = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UnexpectedAnswer("a watch with a line that is no JSON") from error
    if not isinstance(decoded, dict):
        raise UnexpectedAnswer("a watch with a line that is no JSON object")
    if isinstance(decoded.get("error"), dict):
        raise stream_error(Members(decoded["error"]))
    return Members(decoded).inner("result")
