"""Sealed objects open only unaltered, whole, in their own context and under a key on the ring."""

import hashlib
import math
import os

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from holdfast.storage.codec.body import HEADER_BYTES
from holdfast.storage.codec.compression import Compression
from holdfast.storage.codec.descriptor import DESCRIPTOR_BYTES, root_id_of
from holdfast.storage.codec.hf1 import Codec
from holdfast.storage.codec.keyring import Keyring, key_id
from holdfast.storage.codec.suite import TAG_BYTES, Suite
from holdfast.storage.errors import DecryptionError

ROOT, OLD_ROOT = b"R" * 32, b"O" * 32
CONTEXT = "state:default/orders"
LOG2 = 10
CHUNK = 1 << LOG2
SIZES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK]
STORED_CHUNK = CHUNK + TAG_BYTES
MAX = 1 << 20

codec = Codec(Keyring(ROOT))


def derive(key: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(hashes.SHA256(), 32, salt, info).derive(key)


def reference_open(root_key: bytes, context: str, descriptor: bytes, body: bytes) -> bytes:
    """HF1 a second time, straight from its tables and sharing nothing with the codec. Leaves content compressed."""
    assert len(descriptor) == 76
    assert descriptor[:4] == b"HFD1"
    assert descriptor[6:8] == bytes(2)
    assert descriptor[8:16] == hashlib.sha256(b"holdfast root id v1" + root_key).digest()[:8]
    kek = AESGCM(derive(root_key, b"holdfast/kek/v1", context.split(":", maxsplit=1)[0].encode()))
    bound_to = descriptor[:16] + hashlib.sha256(context.encode()).digest()
    data_key = kek.decrypt(descriptor[16:28], descriptor[28:], bound_to)

    header, chunks = body[:24], body[24:]
    assert header[:4] == b"HFS1"
    assert header[4] == descriptor[4]
    assert header[6] == descriptor[5]
    assert header[7] == 0
    aead = AESGCM if header[4] == 1 else ChaCha20Poly1305
    stream = aead(derive(data_key, header[8:24], b"holdfast/stream/v1"))
    size = (1 << header[5]) + 16
    content = b""
    for index, start in enumerate(range(0, len(chunks), size)):
        is_last = start + size >= len(chunks)
        nonce = bytes(7) + index.to_bytes(4, "big") + bytes([is_last])
        content += stream.decrypt(nonce, chunks[start : start + size], header)
    return content


def sealed(size: int) -> tuple[bytes, bytes, bytes]:
    plaintext = os.urandom(size)
    return plaintext, *codec.seal(plaintext, CONTEXT, chunk_log2=LOG2)


def open_object(descriptor: bytes, body: bytes, context: str = CONTEXT) -> bytes:
    return codec.open(descriptor, body, context, size_bytes_max=MAX)


@pytest.mark.parametrize("suite", list(Suite))
@pytest.mark.parametrize("size", SIZES)
def test_what_is_sealed_opens_here_and_by_the_book(size: int, suite: Suite) -> None:
    plaintext = os.urandom(size)

    descriptor, body = Codec(Keyring(ROOT), suite=suite).seal(plaintext, CONTEXT, chunk_log2=LOG2)

    assert reference_open(ROOT, CONTEXT, descriptor, body) == plaintext
    assert open_object(descriptor, body) == plaintext
    assert len(descriptor) == DESCRIPTOR_BYTES
    assert len(body) == HEADER_BYTES + size + TAG_BYTES * max(1, math.ceil(size / CHUNK))
    assert descriptor[4] == body[4] == suite


@pytest.mark.parametrize("size", SIZES)
def test_inline_values_are_descriptor_and_body_in_one(size: int) -> None:
    plaintext = os.urandom(size)

    stored = codec.seal_inline(plaintext, "meta:x")

    assert stored[DESCRIPTOR_BYTES + 5] == 13
    assert reference_open(ROOT, "meta:x", stored[:DESCRIPTOR_BYTES], stored[DESCRIPTOR_BYTES:]) == plaintext
    assert codec.open_inline(stored, "meta:x", size_bytes_max=MAX) == plaintext


def test_blobs_have_chunks_of_64_kib() -> None:
    assert codec.seal(b"", CONTEXT)[1][5] == 16


@pytest.mark.parametrize("size", [0, 1, CHUNK, 2 * CHUNK + 1])
def test_a_flipped_bit_anywhere_is_found(size: int) -> None:
    _, descriptor, body = sealed(size)
    stored = descriptor + body

    for position in range(len(stored)):
        altered = bytearray(stored)
        altered[position] ^= 1 << position % 8
        with pytest.raises(DecryptionError):
            codec.open_inline(bytes(altered), CONTEXT, size_bytes_max=MAX)


@pytest.mark.parametrize("size", SIZES)
def test_a_body_cut_at_any_chunk_border_is_refused(size: int) -> None:
    _, descriptor, body = sealed(size)

    for border in range(24, len(body), STORED_CHUNK):
        with pytest.raises(DecryptionError):
            open_object(descriptor, body[:border])


def test_a_body_cut_at_any_byte_is_refused() -> None:
    _, descriptor, body = sealed(CHUNK + 40)

    for length in range(len(body)):
        with pytest.raises(DecryptionError):
            open_object(descriptor, body[:length])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("more", [b"\0", bytes(16), bytes(STORED_CHUNK)])
def test_bytes_after_the_last_chunk_are_refused(size: int, more: bytes) -> None:
    _, descriptor, body = sealed(size)

    with pytest.raises(DecryptionError):
        open_object(descriptor, body + more)


def test_chunks_can_not_be_swapped_doubled_or_left_out() -> None:
    _, descriptor, body = sealed(3 * CHUNK)
    header = body[:24]
    first, second, third = (body[24 + i * STORED_CHUNK :][:STORED_CHUNK] for i in range(3))

    for chunks in (
        (second, first, third),
        (first, first, third),
        (first, third),
        (second, third),
        (first, second),
    ):
        with pytest.raises(DecryptionError):
            open_object(descriptor, header + b"".join(chunks))


def test_two_objects_can_not_be_swapped() -> None:
    one = codec.seal_inline(b"one", "meta:1")
    two = codec.seal_inline(b"two", "meta:2")

    with pytest.raises(DecryptionError, match="another object"):
        codec.open_inline(two, "meta:1", size_bytes_max=MAX)
    with pytest.raises(DecryptionError):
        codec.open_inline(one[:DESCRIPTOR_BYTES] + two[DESCRIPTOR_BYTES:], "meta:1", size_bytes_max=MAX)


@pytest.mark.parametrize(
    "context", ["state:default/other", "meta:default/orders", "state:default/orders ", ""]
)
def test_the_context_of_another_key_does_not_open(context: str) -> None:
    _, descriptor, body = sealed(10)

    with pytest.raises(DecryptionError):
        open_object(descriptor, body, context)


def test_a_rewrap_moves_the_descriptor_and_leaves_the_body() -> None:
    plaintext, descriptor, body = sealed(2 * CHUNK)

    moved = codec.rewrap(descriptor, CONTEXT, "queue-payload:elsewhere")

    assert open_object(moved, body, "queue-payload:elsewhere") == plaintext
    with pytest.raises(DecryptionError):
        open_object(moved, body)


def test_an_old_root_key_still_reads_and_a_rewrap_brings_the_new_one() -> None:
    stored = Codec(Keyring(OLD_ROOT)).seal_inline(b"old", CONTEXT)
    rotated = Codec(Keyring(ROOT, [OLD_ROOT]))

    rewrapped = rotated.rewrap_inline(stored, CONTEXT, CONTEXT)

    assert rotated.open_inline(stored, CONTEXT, size_bytes_max=MAX) == b"old"
    assert root_id_of(stored) == key_id(OLD_ROOT)
    assert root_id_of(rewrapped) == key_id(ROOT)
    assert codec.open_inline(rewrapped, CONTEXT, size_bytes_max=MAX) == b"old"


def test_a_dropped_root_key_is_named_by_its_id() -> None:
    stored = Codec(Keyring(OLD_ROOT)).seal_inline(b"old", CONTEXT)

    with pytest.raises(DecryptionError, match=key_id(OLD_ROOT).hex()):
        codec.open_inline(stored, CONTEXT, size_bytes_max=MAX)


@pytest.mark.parametrize("compression", [Compression.SNAPPY, Compression.ZLIB])
def test_compression_is_named_in_descriptor_and_header_and_undone(compression: Compression) -> None:
    plaintext = b"marker " * 5000

    stored = Codec(Keyring(ROOT), compression=compression).seal_inline(plaintext, CONTEXT)

    assert len(stored) < len(plaintext) // 5
    assert stored[5] == stored[DESCRIPTOR_BYTES + 6] == compression
    assert codec.open_inline(stored, CONTEXT, size_bytes_max=MAX) == plaintext


@pytest.mark.parametrize("compression", list(Compression))
def test_content_larger_than_allowed_is_refused(compression: Compression) -> None:
    stored = Codec(Keyring(ROOT), compression=compression).seal_inline(b"a" * 100_000, CONTEXT)

    with pytest.raises(DecryptionError, match="larger than 99999"):
        codec.open_inline(stored, CONTEXT, size_bytes_max=99_999)


def test_the_same_plaintext_never_gives_the_same_bytes() -> None:
    first, second = codec.seal(b"same", CONTEXT), codec.seal(b"same", CONTEXT)

    assert first[0][16:] != second[0][16:]
    assert first[1][8:] != second[1][8:]


def test_what_is_no_descriptor_is_refused() -> None:
    for junk in (b"", b"HFD1", bytes(76), os.urandom(200)):
        with pytest.raises(DecryptionError):
            codec.open_inline(junk, CONTEXT, size_bytes_max=MAX)
        with pytest.raises(DecryptionError):
            root_id_of(junk)
