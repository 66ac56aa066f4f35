"""A watch over several connections: nothing is told twice, and nothing is left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client import Compacted, KvEvent, RequestRefused, Unavailable, UnexpectedAnswer
from holdfast.client.kv.watching import Watching
from tests.unit.client.kv.texts import b64, put, result


def fed(watching: Watching, *lines: bytes) -> list[tuple[str, bytes, int]]:
    return [shown(event) for batch in watching.feed(b"".join(lines)) for event in batch]


def shown(event: KvEvent) -> tuple[str, bytes, int]:
    return event.type, event.kv.key, event.kv.mod_revision


def test_what_is_wanted_is_asked_for() -> None:
    watching = Watching("a/", prefix=True, start_revision=7, prev_kv=True, on_progress=print)

    assert watching.members() == {
        "key": b64("a/"),
        "range_end": b64("a0"),
        "start_revision": "7",
        "prev_kv": True,
        "progress_notify": True,
    }
    assert Watching("a").members() == {"key": b64("a")}


@given(st.lists(st.integers(1, 60)))
def test_messages_may_come_in_pieces(sizes: list[int]) -> None:
    watching = Watching("a", prefix=True)
    deleted = {"type": "DELETE", "kv": {"key": b64("a2"), "mod_revision": "6"}}
    data = (
        result(4, created=True) + result(5, events=[put("a1", 5), put("a2", 5)]) + result(6, events=[deleted])
    )
    got: list[tuple[str, bytes, int]] = []
    for size in sizes:
        got += fed(watching, data[:size])
        data = data[size:]

    assert [*got, *fed(watching, data)] == [("PUT", b"a1", 5), ("PUT", b"a2", 5), ("DELETE", b"a2", 6)]


def test_it_goes_on_after_what_was_told() -> None:
    watching = Watching("a", prefix=True)

    fed(watching, result(4, created=True))
    assert watching.next_revision == 5  # Also if nothing happens before the connection breaks.
    fed(watching, result(9, events=[put("a1", 6), put("a2", 7)]))

    assert watching.next_revision == 8  # Not 10: what the server holds back is not told yet.
    assert watching.members()["start_revision"] == "8"


def test_a_message_that_was_cut_off_is_told_by_the_next_connection() -> None:
    watching = Watching("a")
    fed(watching, result(4, created=True), result(5, events=[put("a", 5)])[:20])

    watching.opened()

    assert not watching.is_created
    assert fed(watching, result(5, created=True), result(5, events=[put("a", 5)])) == [("PUT", b"a", 5)]


def test_a_start_in_the_future_stays_one() -> None:
    watching = Watching("a", start_revision=100)

    fed(watching, result(4, created=True))

    assert watching.next_revision == 100


def test_progress_is_told_and_moves_the_place_to_go_on() -> None:
    told: list[int] = []
    watching = Watching("a", on_progress=told.append)

    fed(watching, result(4, created=True), result(9), result(12, watch_id="-1"))

    assert told == [9]
    assert watching.next_revision == 10


def test_what_was_read_before_a_cancellation_is_told_first() -> None:
    watching = Watching("a", start_revision=3)
    fed(watching, result(4, created=True))

    batches = watching.feed(result(5, events=[put("a", 5)]) + result(0, canceled=True, compact_revision="18"))

    assert [shown(event) for event in next(batches)] == [("PUT", b"a", 5)]
    with pytest.raises(Compacted, match="it was 6, and the first one left is 18") as raised:
        next(batches)
    assert raised.value.compact_revision == 18


def test_a_watch_that_makes_no_sense_is_refused_for_good() -> None:
    line = result(4, watch_id="-1", created=True, canceled=True, cancel_reason="mvcc: watcher range is empty")

    with pytest.raises(RequestRefused, match="watcher range is empty"):
        fed(Watching("b", range_end="a"), line)


@pytest.mark.parametrize(
    "line",
    [
        result(0, canceled=True, cancel_reason="the store is away"),
        b'{"error":{"grpc_code":14,"http_code":503,"message":"the store is away"}}\n',
    ],
)
def test_a_server_that_ends_a_watch_may_be_asked_again(line: bytes) -> None:
    watching = Watching("a")
    fed(watching, result(4, created=True))

    with pytest.raises(Unavailable, match="the store is away"):
        fed(watching, line)


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b"[]\n",
        b'{"result":[]}\n',
        b'{"result":{"header":{"revision":"x"},"created":true}}\n',
        b'{"result":{"header":{"revision":1.5},"created":true}}\n',
        b'{"result":{"header":{"revision":"111111111111111111111"},"created":true}}\n',
        b'{"result":{"events":[{"type":"RENAME","kv":{}}]}}\n',
        b'{"result":{"events":[{"kv":{"key":"?"}}]}}\n',
        b'{"result":{"events":[{"kv":{"key":7}}]}}\n',
    ],
)
def test_a_message_that_the_protocol_does_not_know_is_not_taken_for_one(line: bytes) -> None:
    with pytest.raises(UnexpectedAnswer):
        fed(Watching("a"), line)
