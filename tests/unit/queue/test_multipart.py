"""Multipart bodies: what is in them comes out, however they are cut; what is broken is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.queue.protocol.lockd.multipart.reader import (
    AROUND_BYTES_MAX,
    HEAD_BYTES_MAX,
    PARTS_MAX,
    MultipartError,
    MultipartReader,
    PartBegin,
    PartEnd,
    plain_batch,
    plain_parts,
)

META_HEAD = b'Content-Disposition: form-data; name="meta"\r\nContent-Type: application/json'
PAYLOAD_HEAD = b'Content-Disposition: form-data; name="payload"\r\nContent-Type: text/plain'
META = b'{"queue":"orders"}\n'


def body_of(
    *parts: tuple[bytes, bytes], boundary: bytes = b"B", line_end: bytes = b"\r\n", end: bytes = b"--\r\n"
) -> bytes:
    """Parts of a head and a content each; heads are given with CRLF."""
    pieces: list[bytes] = []
    for head, content in parts:
        lines = head.replace(b"\r\n", line_end) + line_end if head else b""
        pieces += [b"--", boundary, line_end, lines, line_end, content, line_end]
    return b"".join([*pieces, b"--", boundary, end])


def named(name: str, content: bytes) -> tuple[bytes, bytes]:
    return f'content-disposition: form-data; name="{name}"'.encode(), content


def read(pieces: list[bytes], boundary: bytes = b"B") -> list[tuple[str, bytes]]:
    """Names and contents of all parts, as they come out of a body that comes in pieces."""
    reader = MultipartReader(boundary)
    parts: list[tuple[str, bytes]] = []
    is_open = False
    for piece in pieces:
        for event in reader.feed(piece):
            match event:
                case PartBegin(name):
                    assert not is_open
                    is_open = True
                    parts.append((name, b""))
                case PartEnd():
                    assert is_open
                    is_open = False
                case bytes():
                    assert is_open
                    assert event
                    parts[-1] = (parts[-1][0], parts[-1][1] + event)
    reader.finish()
    return parts


def in_pieces(body: bytes, size_bytes: int) -> list[bytes]:
    return [body[start : start + size_bytes] for start in range(0, len(body), size_bytes)]


@pytest.mark.parametrize("line_end", [b"\r\n", b"\n"])
@pytest.mark.parametrize("size_bytes", [1, 2, 3, 7, 64, 10_000])
def test_parts_come_out_however_the_body_is_cut(size_bytes: int, line_end: bytes) -> None:
    body = body_of((META_HEAD, META), (PAYLOAD_HEAD, b"\r\n--Bx\r\n-\r\n--\x00"), line_end=line_end)

    assert read(in_pieces(body, size_bytes)) == [("meta", META), ("payload", b"\r\n--Bx\r\n-\r\n--\x00")]


@given(
    content=st.binary(max_size=60)
    | st.lists(st.sampled_from([b"\r", b"\n", b"-", b"--", b"b", b"b ", b"\r\n--", b"b-", b"x"])).map(
        b"".join
    ),
    cuts=st.lists(st.integers(min_value=1, max_value=20), min_size=1, max_size=20),
    line_end=st.sampled_from([b"\r\n", b"\n"]),
)
def test_any_content_without_its_delimiter_comes_out_as_it_was(
    content: bytes, cuts: list[int], line_end: bytes
) -> None:
    if line_end + b"--b" in line_end + content:
        content = content.replace(b"--b", b"--c")
    body = b"preamble\n" + body_of(named("x", content), named("y", b""), boundary=b"b", line_end=line_end)
    pieces: list[bytes] = []
    for cut in cuts:
        pieces.append(body[:cut])
        body = body[cut:]

    assert read([*pieces, body], b"b") == [("x", content), ("y", b"")]


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        pytest.param(b"--B--", [], id="no part"),
        pytest.param(b"any\r\n--Bx\r\n--B y\r\n text\r\n--B--\r\n", [], id="preamble that looks like it"),
        pytest.param(b"--B \t\r\n\r\nx\r\n--B--", [("", b"x")], id="white space behind a boundary"),
        pytest.param(b"--B\r\n\r\n--B--", [("", b"")], id="delimiter right behind the head"),
        pytest.param(b"--B\r\n\r\n\r\n--B--", [("", b"")], id="empty content"),
        pytest.param(b"--B\r\n\r\n--Bx\r\n--B--", [("", b"--Bx")], id="content begins like a delimiter"),
        pytest.param(b"--B\r\n\r\na\n--B\n\r\n--B--", [("", b"a\n--B\n")], id="other line end"),
        pytest.param(b"--B\r\nA: 1\n\nx\r\n--B--", [("", b"x")], id="bare line feeds in the head"),
        pytest.param(b"--B\r\n\r\nx\r\n--B--and\r\n--B\r\n\r\ny", [("", b"x")], id="epilogue"),
    ],
)
@pytest.mark.parametrize("size_bytes", [1, 5, 1000])
def test_odd_but_right_framing_is_read(body: bytes, parts: list[tuple[str, bytes]], size_bytes: int) -> None:
    assert read(in_pieces(body, size_bytes)) == parts


@pytest.mark.parametrize(
    "boundary", [b"x", b"'()+_,-./:=? a", b"-" * 70, b"----WebKitFormBoundary7MA4YWxkTrZu0gW"]
)
def test_any_boundary_works(boundary: bytes) -> None:
    body = body_of((META_HEAD, META), (PAYLOAD_HEAD, b"hello"), boundary=boundary)

    assert read(in_pieces(body, 3), boundary) == [("meta", META), ("payload", b"hello")]
    assert plain_parts(body, boundary) == (META, b"hello")


WHOLE = body_of((META_HEAD, META), (PAYLOAD_HEAD, b"hello"))


@pytest.mark.parametrize("size_bytes", range(len(WHOLE) - 2))
def test_a_body_cut_off_anywhere_before_its_end_is_refused(size_bytes: int) -> None:
    cut = WHOLE[:size_bytes]

    with pytest.raises(MultipartError):
        read(in_pieces(cut, 16))
    assert plain_parts(cut, b"B") is None


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{}", id="no multipart"),
        pytest.param(b"--B\r\nno colon\r\n\r\nx\r\n--B--", id="header without a colon"),
        pytest.param(b"--B\r\n folded: 1\r\n\r\nx\r\n--B--", id="head begins with white space"),
        pytest.param(b"--B\r\nA b: 1\r\n\r\nx\r\n--B--", id="header name with a space"),
        pytest.param(b"--B\r\n\r\nx\r\n--B y\r\n--B--", id="text behind a boundary"),
        pytest.param(b"--B\r\n\r\nx\r\n--B\n\r\ny\r\n--B--", id="changing line ends"),
        pytest.param(b"--B\r\n\r\n\r\n--B" + b" " * 10_000 + b"\r\n\r\n\r\n--B--", id="much white space"),
        pytest.param(body_of(*[named("x", b"")] * (PARTS_MAX + 1)), id="too many parts"),
        pytest.param(body_of(*[named("x", b"")] * 10_000), id="ten thousand parts"),
        pytest.param(body_of((b"A: " + b"x" * HEAD_BYTES_MAX, b"")), id="huge header"),
        pytest.param(body_of((b"A: 1\r\n" * 10_000 + b"B: 1", b"")), id="many headers"),
        pytest.param(b"x" * (AROUND_BYTES_MAX + 100) + WHOLE, id="long preamble"),
        pytest.param(WHOLE + b"x" * (AROUND_BYTES_MAX + 1), id="long epilogue"),
    ],
)
@pytest.mark.parametrize("size_bytes", [997, 10_000_000])
def test_broken_framing_is_refused(body: bytes, size_bytes: int) -> None:
    with pytest.raises(MultipartError):
        read(in_pieces(body, size_bytes))
    assert plain_parts(body, b"B") is None


def test_a_content_is_given_out_as_it_comes_in() -> None:
    reader = MultipartReader(b"B")
    reader.feed(b"--B\r\n\r\n")

    given = [event for _ in range(100) for event in reader.feed(b"x" * 1000)]

    assert sum(len(event) for event in given) > 99_900


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(body_of((PAYLOAD_HEAD, b"hello"), (META_HEAD, META)), id="other order"),
        pytest.param(body_of((META_HEAD, META)), id="one part"),
        pytest.param(
            body_of((META_HEAD, META), (PAYLOAD_HEAD, b"a"), (PAYLOAD_HEAD, b"b")), id="three parts"
        ),
        pytest.param(body_of((META_HEAD, META), (PAYLOAD_HEAD, b"a"), line_end=b"\n"), id="line feeds"),
        pytest.param(body_of((META_HEAD, META), named("other", b"a")), id="other name"),
        pytest.param(b"preamble\r\n" + WHOLE, id="preamble"),
        pytest.param(WHOLE + b"epilogue", id="epilogue"),
    ],
)
def test_only_the_plainest_form_is_taken_in_one_go(body: bytes) -> None:
    assert plain_parts(body, b"B") is None
    assert read([body])


def test_a_plain_batch_is_taken_in_one_go() -> None:
    messages = [(META, b"%d" % number) for number in range(5)]
    parts = [part for meta, payload in messages for part in ((META_HEAD, meta), (PAYLOAD_HEAD, payload))]

    assert plain_batch(body_of(*parts), b"B") == messages
    assert plain_batch(body_of(*parts, end=b"--"), b"B") == messages
    assert plain_batch(body_of(), b"B") == []


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"--B", id="boundary alone"),
        pytest.param(body_of((META_HEAD, META)), id="no payload"),
        pytest.param(body_of((PAYLOAD_HEAD, b"a"), (META_HEAD, META)), id="other order"),
        pytest.param(body_of((META_HEAD, META), (META_HEAD, META)), id="two metas"),
        pytest.param(WHOLE[:-4], id="cut off"),
        pytest.param(WHOLE + b"x", id="epilogue"),
        pytest.param(b"x" + WHOLE, id="preamble"),
        pytest.param(WHOLE.replace(b"--B\r\n", b"--B \r\n"), id="white space"),
        pytest.param(WHOLE.replace(b"hello", b"\r\n--Bx"), id="looks like a boundary"),
        pytest.param(body_of((b"", META), (PAYLOAD_HEAD, b"")), id="no head"),
    ],
)
def test_any_other_batch_is_left_to_the_reader(body: bytes) -> None:
    assert plain_batch(body, b"B") is None


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_the_plainest_form_means_the_same_to_both(meta: bytes, payload: bytes) -> None:
    body = body_of((META_HEAD, meta), (PAYLOAD_HEAD, payload), boundary=b"-")

    taken = plain_parts(body, b"-")

    if taken is not None:
        assert read([body], b"-") == [("meta", taken[0]), ("payload", taken[1])]
    batch = plain_batch(body, b"-")
    if batch is not None:
        assert read([body], b"-") == [("meta", batch[0][0]), ("payload", batch[0][1])]
