"""Many messages from a file, a line each, batch by batch."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import IO, Final

from holdfast.cli.files import STANDARD
from holdfast.cli.output import failure
from holdfast.cli.progress import progress
from holdfast.cli.streams import standard_input
from holdfast.client import ClientError, Outgoing, Queue

_BATCH: Final = 500


def enqueue_lines(queue: Queue, file: str, like: Outgoing, txn_id: str = "") -> dict[str, object]:
    """How many were sent, and the ids of the first and the last. Empty lines are passed over."""
    sent = 0
    first = last = ""
    with progress("enqueue") as advance:
        lines = _lines(file)
        while batch := list(islice(lines, _BATCH)):
            try:
                messages = [replace(like, payload=line) for line in batch]
                enqueued = queue.enqueue_many(messages, txn_id=txn_id)
            except ClientError as error:
                raise failure(f"{sent} messages were sent, then: {error}") from None
            first = first or enqueued[0].message_id
            last = enqueued[-1].message_id
            sent += len(enqueued)
            advance(len(batch), sum(map(len, batch)))
    return {"enqueued": sent, "first_message_id": first, "last_message_id": last}


def _lines(file: str) -> Iterator[bytes]:
    if file == STANDARD:
        yield from _stripped(standard_input())
        return
    try:
        with Path(file).open("rb") as opened:
            yield from _stripped(opened)
    except OSError as error:
        raise failure(f"{file}: {error.strerror}") from None


def _stripped(opened: IO[bytes]) -> Iterator[bytes]:
    for line in opened:
        content = line.rstrip(b"\r\n")
        if content:
            yield content
