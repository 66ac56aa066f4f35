"""The HF1 body: a 24-byte header, then chunks of equal size, each sealed with its number and whether it is the last.

    header  `HFS1` · suite · chunk log2 · compression · zero · random salt (16)
    chunk i ciphertext ‖ tag, nonce = 7 zero bytes ‖ u32 i ‖ u8 last, authenticating the header

An empty object is one empty last chunk; every chunk but the last is full, and no last one is empty after others.
"""

import os
import struct
from typing import NamedTuple

from cryptography.exceptions import InvalidTag

from holdfast.storage.codec.descriptor import DataKey
from holdfast.storage.codec.keyring import hkdf_sha256
from holdfast.storage.codec.suite import NONCE_BYTES, TAG_BYTES, Cipher, cipher
from holdfast.storage.errors import DecryptionError

HEADER_BYTES = 24
SALT_BYTES = 16
CHUNK_LOG2_INLINE = 13
CHUNK_LOG2_BLOB = 16
CHUNK_LOG2_MIN, CHUNK_LOG2_MAX = 10, 20  # What a reader takes: a forged header must not cost memory.
CHUNKS_MAX = 1 << 32
MAGIC = b"HFS1"

_HEADER = struct.Struct(f">4sBBBB{SALT_BYTES}s")
_STREAM_INFO = b"holdfast/stream/v1"


class Body(NamedTuple):
    """One object's stream key and header: what it takes to seal or open any of its chunks."""

    header: bytes
    chunk_bytes: int
    cipher: Cipher

    @property
    def stored_chunk_bytes(self) -> int:
        return self.chunk_bytes + TAG_BYTES

    def seal_chunk(self, index: int, is_last: bool, plaintext: bytes | bytearray | memoryview) -> bytes:
        if index >= CHUNKS_MAX:
            raise ValueError("an object has at most 2^32 chunks")
        return self.cipher.encrypt(
            (index << 8 | is_last).to_bytes(NONCE_BYTES, "big"), plaintext, self.header
        )

    def open_chunk(self, index: int, is_last: bool, stored: bytes | bytearray | memoryview) -> bytes:
        if index >= CHUNKS_MAX or not self._fits(index, is_last, len(stored)):
            raise DecryptionError(f"chunk {index} is cut, or bytes follow the last one")
        try:
            nonce = (index << 8 | is_last).to_bytes(NONCE_BYTES, "big")
            return self.cipher.decrypt(nonce, stored, self.header)
        except InvalidTag:
            raise DecryptionError(f"chunk {index} was altered, cut, moved, or is not the last") from None

    def _fits(self, index: int, is_last: bool, stored_bytes: int) -> bool:
        if not is_last:
            return stored_bytes == self.stored_chunk_bytes
        least = TAG_BYTES if index == 0 else TAG_BYTES + 1
        return least <= stored_bytes <= self.stored_chunk_bytes


def new_body(data_key: DataKey, chunk_log2: int) -> Body:
    """A body to seal under a fresh data key."""
    salt = os.urandom(SALT_BYTES)
    header = _HEADER.pack(MAGIC, data_key.suite, chunk_log2, data_key.compression, 0, salt)
    return _body(data_key, header, chunk_log2, salt)


def stored_body(data_key: DataKey, header: bytes) -> Body:
    """A body to open, by its header. What the header claims is proven by the first chunk that opens."""
    if len(header) < HEADER_BYTES:
        raise DecryptionError("encrypted content is cut within its header")
    magic, suite, chunk_log2, compression, zero, salt = _HEADER.unpack(header)
    is_known = magic == MAGIC and not zero and CHUNK_LOG2_MIN <= chunk_log2 <= CHUNK_LOG2_MAX
    if not is_known or (suite, compression) != (data_key.suite, data_key.compression):
        raise DecryptionError("encrypted content does not begin with the header that its descriptor names")
    return _body(data_key, header, chunk_log2, salt)


def seal_body(data_key: DataKey, content: bytes, chunk_log2: int) -> bytes:
    """Header and chunks of content that is in memory as a whole."""
    body = new_body(data_key, chunk_log2)
    if len(content) <= body.chunk_bytes:
        return body.header + body.seal_chunk(0, True, content)
    view, size = memoryview(content), body.chunk_bytes
    last = (len(content) - 1) // size
    chunks = [body.seal_chunk(i, i == last, view[i * size : (i + 1) * size]) for i in range(last + 1)]
    return b"".join((body.header, *chunks))


def open_body(data_key: DataKey, stored: bytes) -> bytes:
    """The content of a whole body (still compressed if it was sealed so)."""
    body = stored_body(data_key, stored[:HEADER_BYTES])
    size = body.stored_chunk_bytes
    chunks_bytes = len(stored) - HEADER_BYTES
    if chunks_bytes <= size:
        return body.open_chunk(0, True, stored[HEADER_BYTES:])
    view = memoryview(stored)[HEADER_BYTES:]
    last = (chunks_bytes - 1) // size
    return b"".join(body.open_chunk(i, i == last, view[i * size : (i + 1) * size]) for i in range(last + 1))


def _body(data_key: DataKey, header: bytes, chunk_log2: int, salt: bytes) -> Body:
    key = hkdf_sha256(data_key.key, salt, _STREAM_INFO)
    return Body(header, 1 << chunk_log2, cipher(data_key.suite, key))
