"""Streams and ranges give what the whole object gives, or the same refusal, in little memory."""

import hashlib
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.storage.codec.compression import Compression
from holdfast.storage.codec.descriptor import unwrap
from holdfast.storage.codec.hf1 import Codec
from holdfast.storage.codec.keyring import Keyring
from holdfast.storage.codec.stream import RangeReader
from holdfast.storage.errors import DecryptionError

CONTEXT = "attachment:default/orders/picture"
LOG2 = 10
CHUNK = 1 << LOG2
STORED_CHUNK = CHUNK + 16
SIZES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK]
MEBIBYTE = 1 << 20

codec = Codec(Keyring(b"R" * 32))


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def seal_stream(plaintext: bytes, piece_bytes: int, by: Codec = codec) -> tuple[bytes, bytes]:
    writer = by.seal_stream(CONTEXT, chunk_log2=LOG2)
    body = b"".join([writer.add(piece) for piece in pieces(plaintext, piece_bytes)]) + writer.finish()
    return writer.descriptor, body


def open_stream(descriptor: bytes, body: bytes, piece_bytes: int, size_bytes_max: int = 1 << 20) -> bytes:
    reader = codec.open_stream(descriptor, CONTEXT, size_bytes_max=size_bytes_max)
    opened = [plain for piece in pieces(body, piece_bytes) for plain in reader.add(piece)]
    return b"".join([*opened, *reader.finish()])


def open_range(descriptor: bytes, body: bytes, start: int, end: int, piece_bytes: int = 500) -> bytes:
    reader = RangeReader(unwrap(codec.keyring, CONTEXT, descriptor), body[:24], stored_bytes=len(body))
    stored_start, stored_end = reader.seek(start, end)
    opened = [
        plain for piece in pieces(body[stored_start:stored_end], piece_bytes) for plain in reader.add(piece)
    ]
    return b"".join(opened)[: end - start]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("piece_bytes", [1, 700, CHUNK, STORED_CHUNK, 10 * CHUNK])
def test_streams_and_whole_objects_are_the_same(size: int, piece_bytes: int) -> None:
    plaintext = os.urandom(size)

    descriptor, body = seal_stream(plaintext, piece_bytes)
    whole = codec.seal(plaintext, CONTEXT, chunk_log2=LOG2)

    assert codec.open(descriptor, body, CONTEXT, size_bytes_max=size) == plaintext
    assert open_stream(descriptor, body, piece_bytes) == plaintext
    assert open_stream(*whole, piece_bytes) == plaintext
    assert len(body) == len(whole[1])


@pytest.mark.parametrize("compression", [Compression.SNAPPY, Compression.ZLIB])
@pytest.mark.parametrize("size", [0, 100, 65_536, 200_000])
def test_compressed_streams_survive(compression: Compression, size: int) -> None:
    plaintext = b"holdfast! "[: max(1, size)] * (size // 10)

    descriptor, body = seal_stream(plaintext, 7000, Codec(codec.keyring, compression=compression))

    assert open_stream(descriptor, body, 3000) == plaintext
    assert size < 1000 or len(body) < size // 4


@pytest.mark.parametrize("compression", [Compression.SNAPPY, Compression.ZLIB])
def test_a_stream_that_does_not_shrink_is_stored_plain(compression: Compression) -> None:
    descriptor, body = seal_stream(os.urandom(200_000), 7000, Codec(codec.keyring, compression=compression))

    assert descriptor[5] == body[6] == Compression.NONE


@pytest.mark.parametrize("compression", list(Compression))
def test_a_stream_larger_than_its_record_says_is_refused(compression: Compression) -> None:
    sealed = seal_stream(b"a" * 200_000, 7000, Codec(codec.keyring, compression=compression))

    with pytest.raises(DecryptionError, match="larger than its record"):
        open_stream(*sealed, 7000, size_bytes_max=199_999)


@pytest.mark.parametrize("size", SIZES)
def test_a_stream_cut_at_any_chunk_border_is_refused(size: int) -> None:
    descriptor, body = seal_stream(os.urandom(size), 1000)

    for border in [0, 10, *range(24, len(body), STORED_CHUNK)]:
        with pytest.raises(DecryptionError):
            open_stream(descriptor, body[:border], 1000)


def test_a_flipped_bit_anywhere_in_a_stream_is_found_before_its_chunk_is_released() -> None:
    plaintext = os.urandom(2 * CHUNK + 1)
    descriptor, body = seal_stream(plaintext, 1000)

    for position in range(0, len(body), 7):
        altered = bytearray(body)
        altered[position] ^= 0x10
        released = bytearray()
        reader = codec.open_stream(descriptor, CONTEXT, size_bytes_max=len(plaintext))
        with pytest.raises(DecryptionError):
            for piece in pieces(bytes(altered), 400):
                for plain in reader.add(piece):
                    released += plain
            for plain in reader.finish():
                released += plain
        whole_chunks_before = max(0, position - 24) // STORED_CHUNK
        assert released == plaintext[: whole_chunks_before * CHUNK]


def test_bytes_after_the_last_chunk_of_a_stream_are_refused() -> None:
    descriptor, body = seal_stream(os.urandom(CHUNK), 1000)

    with pytest.raises(DecryptionError):
        open_stream(descriptor, body + b"\0", 1000)


@pytest.mark.parametrize("size", SIZES[1:])
def test_every_range_gives_its_bytes(size: int) -> None:
    plaintext = os.urandom(size)
    descriptor, body = seal_stream(plaintext, 1000)
    borders = sorted({0, 1, size - 1, size, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK})

    for start in borders:
        for end in borders:
            if start < end <= size:
                assert open_range(descriptor, body, start, end) == plaintext[start:end]


def test_a_range_touches_only_its_chunks() -> None:
    plaintext = os.urandom(3 * CHUNK)
    descriptor, body = seal_stream(plaintext, 1000)
    altered = bytearray(body)
    altered[24 + 5] ^= 1

    assert open_range(descriptor, bytes(altered), CHUNK, 2 * CHUNK) == plaintext[CHUNK : 2 * CHUNK]
    with pytest.raises(DecryptionError):
        open_range(descriptor, bytes(altered), CHUNK - 1, 2 * CHUNK)


def test_a_range_of_a_cut_body_is_refused_where_the_cut_shows() -> None:
    descriptor, body = seal_stream(os.urandom(3 * CHUNK), 1000)
    cut = body[: 24 + 2 * STORED_CHUNK]

    with pytest.raises(DecryptionError):
        open_range(descriptor, cut, CHUNK, 2 * CHUNK)


@pytest.mark.parametrize("compression", list(Compression))
def test_a_hundred_megabytes_pass_in_less_than_eight_mebibytes(
    tmp_path: Path, compression: Compression
) -> None:
    stored = tmp_path / "body"
    half_random = os.urandom(MEBIBYTE // 2) + bytes(MEBIBYTE // 2)
    before, after = hashlib.sha256(), hashlib.sha256()
    tracemalloc.start()
    try:
        base_bytes = tracemalloc.get_traced_memory()[0]
        writer = Codec(codec.keyring, compression=compression).seal_stream(CONTEXT)
        with stored.open("wb") as file:
            for _ in range(100):
                before.update(half_random)
                file.write(writer.add(half_random))
            file.write(writer.finish())
        reader = codec.open_stream(writer.descriptor, CONTEXT, size_bytes_max=100 * MEBIBYTE)
        with stored.open("rb") as file:
            while piece := file.read(MEBIBYTE):
                for plain in reader.add(piece):
                    after.update(plain)
            for plain in reader.finish():
                after.update(plain)
        peak_bytes = tracemalloc.get_traced_memory()[1] - base_bytes
    finally:
        tracemalloc.stop()

    assert after.digest() == before.digest()
    assert peak_bytes < 8 * MEBIBYTE
