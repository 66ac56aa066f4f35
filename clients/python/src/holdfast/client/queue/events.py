"""Changes of a queue out of an event stream, without I/O."""

import json
from typing import Final

from holdfast.client.errors import UnexpectedAnswer
from holdfast.client.queue.view import QueueChange
from holdfast.client.wire.call import Members

_EVENT_BYTES_MAX: Final = 1024 * 1024


class ChangeReader:
    """Feed it with bytes as they come, and take changes out; comments and other events are passed over."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[QueueChange]:
        self._buffer += data
        self._buffer = self._buffer.replace(b"\r\n", b"\n")  # Here, because a break may come in two pieces.
        changes: list[QueueChange] = []
        while (end := self._buffer.find(b"\n\n")) >= 0:
            block = bytes(self._buffer[:end])
            del self._buffer[: end + 2]
            change = _change_of(block)
            if change is not None:
                changes.append(change)
        if len(self._buffer) > _EVENT_BYTES_MAX:
            raise UnexpectedAnswer("an event stream with an event that is too large")
        return changes


def _change_of(block: bytes) -> QueueChange | None:
    name, data = "", b""
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value.decode("utf-8", "replace")
        elif field == b"data":
            data += value
    if name != "queue_watch":
        return None
    try:
        decoded = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UnexpectedAnswer("an event whose data is no JSON") from error
    if not isinstance(decoded, dict):
        raise UnexpectedAnswer("an event whose data is no JSON object")
    return QueueChange.read(Members(decoded))
