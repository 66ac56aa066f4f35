"""Compression is a bounded stream, used only where it helps."""

import zlib
from collections.abc import Iterator

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.storage.codec.compression import (
    BLOCK_BYTES,
    Compression,
    compress,
    compressor,
    decompress,
    decompressor,
)
from holdfast.storage.errors import DecryptionError

METHODS = [Compression.SNAPPY, Compression.ZLIB]
SNAPPY_START = b"\xff\x06\x00\x00sNaPpY"


def repeated(piece: bytes, size: int) -> bytes:
    return (piece * (size // len(piece) + 1))[:size]


plaintexts = st.one_of(
    st.binary(max_size=300),
    st.builds(
        repeated,
        st.binary(min_size=1, max_size=9),
        st.sampled_from([0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES]),
    ),
)


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


@pytest.mark.parametrize("method", METHODS)
@given(plaintext=plaintexts, in_bytes=st.integers(1000, 100_000), out_bytes=st.integers(100, 100_000))
def test_a_stream_survives_however_it_is_cut(
    method: Compression, plaintext: bytes, in_bytes: int, out_bytes: int
) -> None:
    stream = compressor(method)

    packed = b"".join([stream.add(piece) for piece in pieces(plaintext, in_bytes)]) + stream.finish()

    reader = decompressor(method)
    blocks = [block for piece in pieces(packed, out_bytes) for block in reader.add(piece)]
    reader.finish()
    assert b"".join(blocks) == plaintext
    assert all(len(block) <= BLOCK_BYTES for block in blocks)


@given(plaintexts)
def test_the_streams_are_the_public_formats(plaintext: bytes) -> None:
    snappy, deflate = compressor(Compression.SNAPPY), compressor(Compression.ZLIB)

    assert bytes(cramjam.snappy.decompress(snappy.add(plaintext) + snappy.finish())) == plaintext
    assert zlib.decompress(deflate.add(plaintext) + deflate.finish()) == plaintext


@pytest.mark.parametrize("method", METHODS)
def test_what_is_small_or_does_not_shrink_stays_plain(method: Compression) -> None:
    noise = zlib.compress(bytes(i * i % 251 for i in range(5000)), 9)

    assert compress(b"a" * 100, method) == (b"a" * 100, Compression.NONE)
    assert compress(noise, method) == (noise, Compression.NONE)
    packed, chosen = compress(b"a" * 1000, method)
    assert chosen == method
    assert decompress(packed, method, 1000) == b"a" * 1000


@pytest.mark.parametrize("method", METHODS)
def test_a_bomb_is_stopped_at_the_limit(method: Compression) -> None:
    packed, _ = compress(bytes(10 << 20), method)

    with pytest.raises(DecryptionError, match="larger than 1000000"):
        decompress(packed, method, 1_000_000)


@pytest.mark.parametrize("method", METHODS)
def test_a_stream_that_ends_too_early_is_refused(method: Compression) -> None:
    packed, _ = compress(b"abc" * 1000, method)

    for length in range(len(packed)):
        try:
            plaintext = decompress(packed[:length], method, 3000)
        except DecryptionError:
            continue
        # Snappy has no end mark: a cut between frames can't be told here. The AEAD above tells it.
        assert method == Compression.SNAPPY
        assert plaintext == b""


@pytest.mark.parametrize(
    "packed",
    [
        b"\x00\x05\x00\x00aaaaa",
        SNAPPY_START + b"\x00\x05\x00\x00aaaaa",
        SNAPPY_START + b"\x02\x01\x00\x00a",
        SNAPPY_START + b"\x01\x02\x00\x00aa",
        SNAPPY_START + b"\x00\xff\xff\xff",
    ],
)
def test_broken_snappy_frames_are_refused(packed: bytes) -> None:
    with pytest.raises(DecryptionError):
        decompress(packed, Compression.SNAPPY, 1000)


def test_broken_zlib_streams_are_refused() -> None:
    whole = zlib.compress(b"abc" * 100)

    with pytest.raises(DecryptionError, match="damaged"):
        decompress(b"no zlib", Compression.ZLIB, 1000)
    with pytest.raises(DecryptionError, match="follow"):
        decompress(whole + b"more", Compression.ZLIB, 1000)


@given(st.sampled_from(METHODS), st.binary(max_size=200))
def test_random_bytes_are_refused_or_decompressed_and_nothing_else(
    method: Compression, packed: bytes
) -> None:
    for start in (b"", SNAPPY_START, b"x\x01"):
        try:
            plaintext = decompress(start + packed, method, 1000)
        except DecryptionError:
            continue
        assert len(plaintext) <= 1000
