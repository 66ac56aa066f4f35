"""Multipart in both directions: framing on the way out, deliveries in any cut on the way in."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client.errors import InvalidArgument, UnexpectedAnswer
from holdfast.client.queue.delivery_reader import Arrival, DeliveryReader, Event, PayloadEnd
from holdfast.client.queue.multipart import (
    MultipartReader,
    PartData,
    PartEnd,
    PartStart,
    StreamEnd,
    boundary_of,
    framed,
    framed_batch,
)
from tests.infra.deliveries import BOUNDARY, END, MESSAGE_ID, parts


def events(reader: DeliveryReader) -> list[Event]:
    found: list[Event] = []
    while (event := reader.next_event()) is not None:
        found.append(event)
        if isinstance(event, StreamEnd):
            break
    return found


def read(data: bytes, *, piece_bytes: int) -> list[tuple[str, bytes]]:
    """Message ids and payloads, fed in pieces of this size."""
    reader = DeliveryReader(BOUNDARY.encode())
    found: list[tuple[str, bytes]] = []
    for start in range(0, len(data), piece_bytes):
        reader.feed(data[start : start + piece_bytes])
        for event in events(reader):
            if isinstance(event, Arrival):
                found.append((event.message.message_id, b""))
            elif isinstance(event, PartData):
                found[-1] = (found[-1][0], found[-1][1] + event.content)
    return found


@pytest.mark.parametrize("piece_bytes", [1, 2, 7, 61, 1000, 100_000])
def test_deliveries_are_read_however_they_are_cut(piece_bytes: int) -> None:
    payloads = [b"msg0", b"", b"\r\n--" + BOUNDARY.encode()[:20], b"ends in a break\r\n--"]

    found = read(b"\r\n".join(parts(payload) for payload in payloads) + END, piece_bytes=piece_bytes)

    assert [payload for _, payload in found] == payloads


def test_a_payload_is_complete_before_its_delimiter_is_there() -> None:
    """A live stream sends the delimiter together with the next message only."""
    reader = DeliveryReader(BOUNDARY.encode())

    reader.feed(parts(b"late"))

    arrival, data, end = events(reader)
    assert isinstance(arrival, Arrival)
    assert arrival.message.message_id == MESSAGE_ID
    assert (data, end) == (PartData(b"late"), PayloadEnd())


def test_a_delimiter_that_comes_early_is_read_too() -> None:
    reader = DeliveryReader(BOUNDARY.encode())
    reader.feed(parts(b"one") + b"\r\n--" + BOUNDARY.encode())
    before = events(reader)

    reader.feed(parts(b"two").removeprefix(b"--" + BOUNDARY.encode()))

    assert len(before) == 3
    assert [type(event) for event in events(reader)] == [Arrival, PartData, PayloadEnd]


def test_a_payload_without_a_length_ends_at_its_delimiter() -> None:
    whole = re.sub(rb"Content-Length: \d+\r\n", b"", parts(b"a\r\n-b")) + END

    assert read(whole, piece_bytes=3) == [(MESSAGE_ID, b"a\r\n-b")]


def test_what_follows_the_closing_delimiter_is_ignored() -> None:
    reader = DeliveryReader(BOUNDARY.encode())

    reader.feed(parts() + END + b'{"error":"internal_error"}')

    assert events(reader)[-1] == StreamEnd()
    assert reader.next_event() == StreamEnd()


@pytest.mark.parametrize(
    "data",
    [
        b"no delimiter at all" * 10,
        f"--{BOUNDARY}xx\r\n\r\n".encode(),
        f"--{BOUNDARY}\r\nX: {'x' * 20_000}".encode(),
        parts() + b"bytes beyond the length",
        parts().replace(b'name="meta"', b'name="payload"', 1),
        parts().replace(b'{"message"', b"{broken", 1),
        parts().replace(b'{"message":{', b'{"message":[{', 1),
        parts(message_id=""),
        parts(fencing_token="one"),
    ],
)
def test_a_stream_that_is_no_stream_of_deliveries_is_refused(data: bytes) -> None:
    reader = DeliveryReader(BOUNDARY.encode())

    reader.feed(data)

    with pytest.raises(UnexpectedAnswer):
        events(reader)


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/related; boundary=abc", b"abc"),
        ('Multipart/Mixed; charset=x; boundary="a b"', b"a b"),
        ("multipart/related;boundary=a;x=y", b"a"),
    ],
)
def test_the_boundary_is_found(content_type: str, boundary: bytes) -> None:
    assert boundary_of(content_type) == boundary


@pytest.mark.parametrize("content_type", ["", "application/json; boundary=a", "multipart/related"])
def test_an_answer_without_a_boundary_is_refused(content_type: str) -> None:
    with pytest.raises(UnexpectedAnswer):
        boundary_of(content_type)


def parse_header_lines(body: bytes, content_type: str) -> list[tuple[str, bytes]]:
    reader = MultipartReader(boundary_of(content_type))
    reader.feed(body)
    found: list[tuple[str, bytes]] = []
    while not isinstance(event := reader.next_event(), StreamEnd):
        if isinstance(event, PartStart):
            found.append((event.name, b""))
        elif isinstance(event, PartData):
            found[-1] = (found[-1][0], found[-1][1] + event.content)
        else:
            assert isinstance(event, PartEnd)
    return found


@given(st.binary(max_size=300))
def test_what_is_framed_is_read_back(payload: bytes) -> None:
    body, content_type = framed(b'{"queue":"q"}', payload, content_type="text/plain")

    whole = b"".join(body.chunks())

    assert parse_header_lines(whole, content_type) == [("meta", b'{"queue":"q"}\n'), ("payload", payload)]
    assert body.size_bytes() == len(whole)


def test_a_stream_is_framed_as_it_comes() -> None:
    body, content_type = framed(b"{}", iter([b"one ", b"two"]), content_type="text/plain")

    pieces = list(body.chunks())

    assert body.size_bytes() is None
    assert pieces[1:3] == [b"one ", b"two"]
    assert parse_header_lines(b"".join(pieces), content_type)[1] == ("payload", b"one two")


def test_a_batch_is_meta_and_payload_in_turns() -> None:
    body, content_type = framed_batch([(b"{}", b"one"), (b'{"a":1}', b"")])

    found = parse_header_lines(b"".join(body.chunks()), content_type)

    assert found == [("meta", b"{}\n"), ("payload", b"one"), ("meta", b'{"a":1}\n'), ("payload", b"")]


@pytest.mark.parametrize("content_type", ["text/plain\r\nX-Evil: 1", "text/plän"])
def test_a_content_type_can_not_break_its_header(content_type: str) -> None:
    with pytest.raises(InvalidArgument):
        framed(b"{}", b"", content_type=content_type)
