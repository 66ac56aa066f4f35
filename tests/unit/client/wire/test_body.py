"""Bodies: what is sent, how long it is, and whether it can be sent again."""

import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.client.errors import InvalidArgument
from holdfast.client.wire.body import Body


@pytest.mark.parametrize("source", [b"abc", bytearray(b"abc"), memoryview(b"abc"), "abc"])
def test_what_is_in_memory_is_sent_as_often_as_needed(source: bytes | str) -> None:
    body = Body(source)

    sent = [b"".join(body.chunks()) for _ in range(2)]

    assert sent == [b"abc", b"abc"]
    assert (body.size_bytes(), body.can_be_sent) == (3, True)


def test_an_open_file_is_sent_from_where_it_stood(tmp_path: Path) -> None:
    file = io.BytesIO(b"0123456789")
    file.seek(4)
    body = Body(file)

    sent = [b"".join(body.chunks()) for _ in range(2)]

    assert sent == [b"456789", b"456789"]
    assert body.size_bytes() == 6


async def test_a_path_is_opened_for_each_attempt(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(b"x" * 200_000)
    body = Body(path)

    first = b"".join(body.chunks())
    second = b"".join([chunk async for chunk in body.async_chunks()])

    assert first == second == path.read_bytes()
    assert body.size_bytes() == 200_000


def test_an_iterator_is_sent_once() -> None:
    body = Body(iter([b"a", b"b"]))

    can_before, sent = body.can_be_sent, b"".join(body.chunks())

    assert (can_before, sent, body.can_be_sent, body.size_bytes()) == (True, b"ab", False, None)


async def test_an_asynchronous_stream_needs_an_asynchronous_client() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    with pytest.raises(InvalidArgument, match="AsyncClient"):
        list(Body(pieces()).chunks())
    assert [chunk async for chunk in Body(pieces()).async_chunks()] == [b"a", b"b"]


def test_a_stream_of_something_else_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="int, not bytes"):
        list(Body([1, 2]).chunks())  # type: ignore[list-item]  # That is the point.


def test_a_missing_file_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="can't be read"):
        Body(tmp_path / "absent").size_bytes()
