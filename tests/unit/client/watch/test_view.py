"""What a watch tells, out of bytes that come in any pieces."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client import Compacted, UnexpectedAnswer, WatchEvent
from holdfast.client.watch import view
from holdfast.client.watch.view import MessageReader, WatchMessage

CREATED = {"type": "created", "revision": 4, "store_revision": 9, "namespace": "default", "prefix": "a"}
PUT = {"type": "put", "key": "a", "version": 3, "etag": "e"}
RELEASED = {"type": "released", "key": "a", "owner": "w", "fencing_token": 7}
LINES = [
    CREATED,
    {"type": "progress", "revision": 5},
    {
        "type": "events",
        "revision": 6,
        "events": [PUT, {"type": "later", "key": "a"}, RELEASED, {"type": "later"}],
    },
    {"type": "later", "revision": 7},
    {"type": "events", "revision": 8, "events": [{"type": "acquired", "key": "b", "expires_at_unix": 99}]},
]


def text_of(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@given(cuts=st.lists(st.integers(0, len(text_of(LINES)))))
def test_messages_come_out_however_the_bytes_are_cut(cuts: list[int]) -> None:
    text, reader = text_of(LINES), MessageReader()
    places = [0, *sorted(cuts), len(text)]

    found = [
        message for first, last in itertools.pairwise(places) for message in reader.feed(text[first:last])
    ]

    assert found == [
        WatchMessage(4),
        WatchMessage(5),
        WatchMessage(
            6,
            (
                WatchEvent("put", "a", "default", 6, is_last=False, version=3, etag="e"),
                WatchEvent("released", "a", "default", 6, is_last=True, owner="w", fencing_token=7),
            ),
        ),
        WatchMessage(8, (WatchEvent("acquired", "b", "default", 8, is_last=True, expires_at_unix=99),)),
    ]


def test_what_came_before_the_end_is_told_before_it() -> None:
    messages = MessageReader().feed(
        text_of([{"type": "progress", "revision": 5}, {"type": "compacted", "revision": 9}])
    )

    assert next(messages) == WatchMessage(5)
    with pytest.raises(Compacted) as caught:
        next(messages)
    assert (caught.value.code, caught.value.status, caught.value.compact_revision) == ("compacted", 410, 9)


@pytest.mark.parametrize(
    "line",
    [
        b"<html>",
        b"[]",
        b"[" * 100_000,
        b'{"type":"events","revision":1,"events":{}}',
        b'{"type":"events","revision":"1"}',
        b'{"type":"events","revision":1,"events":[{"type":"put"}]}',
    ],
)
def test_what_is_no_message_is_an_unexpected_answer(line: bytes) -> None:
    with pytest.raises(UnexpectedAnswer):
        list(MessageReader().feed(line + b"\n"))


def test_a_line_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "_LINE_BYTES_MAX", 1000)
    reader = MessageReader()

    with pytest.raises(UnexpectedAnswer):
        for _ in range(100):
            list(reader.feed(b"x" * 100))
