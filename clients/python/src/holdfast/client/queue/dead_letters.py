"""Dead letters as flows: page by page, and moved or removed batch by batch."""

from collections.abc import Callable, Sequence
from typing import Final, Literal

from holdfast.client.errors import InvalidArgument
from holdfast.client.queue.calls import QueueCalls
from holdfast.client.queue.view import StoredMessage
from holdfast.client.wire.flow import Flow

_BATCH_MAX: Final = 1000
_PAGE: Final = 500

OnProgress = Callable[[int], object]
"""Told after each batch how many messages it had."""


def page(calls: QueueCalls, after: str, limit: int | None) -> Flow[tuple[list[StoredMessage], str]]:
    """Some dead letters in order of their ids, and where to go on; nowhere if that is empty."""
    members = yield from calls.about("dlq/list", after=after, limit=min(limit or _PAGE, _PAGE))
    found = [StoredMessage.read(item) for item in members.items("messages")]
    return found, members.text("next_after")


def change(
    calls: QueueCalls,
    operation: Literal["redrive", "purge"],
    message_ids: Sequence[str] | None,
    limit: int | None,
    on_progress: OnProgress,
) -> Flow[int]:
    """How many were moved or removed: those named, or the oldest `limit`, or (None, None) all."""
    if isinstance(message_ids, str):
        raise InvalidArgument("message_ids is a list of ids, not one text")
    if message_ids is not None:
        return (yield from _change_named(calls, operation, message_ids, on_progress))
    total = 0
    while limit is None or total < limit:
        asked = _BATCH_MAX if limit is None else min(_BATCH_MAX, limit - total)
        count = yield from _change_once(calls, operation, on_progress, limit=asked)
        total += count
        if count < asked:
            break
    return total


def _change_named(
    calls: QueueCalls, operation: str, message_ids: Sequence[str], on_progress: OnProgress
) -> Flow[int]:
    total = 0
    for start in range(0, len(message_ids), _BATCH_MAX):
        named = list(message_ids[start : start + _BATCH_MAX])
        total += yield from _change_once(calls, operation, on_progress, message_ids=named)
    return total


def _change_once(calls: QueueCalls, operation: str, on_progress: OnProgress, **choice: object) -> Flow[int]:
    members = yield from calls.about(f"dlq/{operation}", is_idempotent=False, **choice)
    count = members.number("redriven" if operation == "redrive" else "purged")
    on_progress(count)
    return count
