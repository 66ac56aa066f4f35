"""HF1: objects sealed under their own data keys, as a whole, inline, or as streams.

A codec writes with the ring's current root key, the suite this machine is fastest with, and the compression it was
given where that helps; it reads what the descriptor names.
"""

from holdfast.storage.codec.body import CHUNK_LOG2_BLOB, CHUNK_LOG2_INLINE, open_body, seal_body
from holdfast.storage.codec.compression import Compression, compress, decompress
from holdfast.storage.codec.descriptor import (
    DESCRIPTOR_BYTES,
    new_data_key,
    rewrap,
    unwrap,
    wrap,
)
from holdfast.storage.codec.keyring import Keyring
from holdfast.storage.codec.stream import OpenReader, SealWriter
from holdfast.storage.codec.suite import Suite, preferred_suite
from holdfast.storage.errors import DecryptionError


class Codec:
    """Seals and opens objects with one ring of keys."""

    def __init__(
        self,
        keyring: Keyring,
        *,
        compression: Compression = Compression.NONE,
        suite: Suite | None = None,
    ) -> None:
        self.keyring = keyring
        self.compression = compression
        self.suite = preferred_suite() if suite is None else suite

    def seal(
        self, plaintext: bytes, context: str, *, chunk_log2: int = CHUNK_LOG2_BLOB
    ) -> tuple[bytes, bytes]:
        """Descriptor and body."""
        content, compression = compress(plaintext, self.compression)
        data_key = new_data_key(self.suite, compression)
        try:
            return wrap(self.keyring, context, data_key), seal_body(data_key, content, chunk_log2)
        finally:
            data_key.wipe()

    def open(self, descriptor: bytes, body: bytes, context: str, *, size_bytes_max: int) -> bytes:
        """The plaintext. DecryptionError if anything was altered, cut or moved, or it is larger than allowed."""
        data_key = unwrap(self.keyring, context, descriptor)
        try:
            content = open_body(data_key, body)
        finally:
            data_key.wipe()
        if data_key.compression:
            return decompress(content, data_key.compression, size_bytes_max)
        if len(content) > size_bytes_max:
            raise DecryptionError(f"decrypted content is larger than {size_bytes_max} bytes")
        return content

    def seal_inline(self, plaintext: bytes, context: str) -> bytes:
        """Descriptor ‖ body, for values that nothing else points to."""
        descriptor, body = self.seal(plaintext, context, chunk_log2=CHUNK_LOG2_INLINE)
        return descriptor + body

    def open_inline(self, stored: bytes, context: str, *, size_bytes_max: int) -> bytes:
        return self.open(
            stored[:DESCRIPTOR_BYTES], stored[DESCRIPTOR_BYTES:], context, size_bytes_max=size_bytes_max
        )

    def rewrap(self, descriptor: bytes, old_context: str, new_context: str) -> bytes:
        """A descriptor for another context, or for the current root key; the body stays as it is."""
        return rewrap(self.keyring, descriptor, old_context, new_context)

    def rewrap_inline(self, stored: bytes, old_context: str, new_context: str) -> bytes:
        descriptor = self.rewrap(stored[:DESCRIPTOR_BYTES], old_context, new_context)
        return descriptor + stored[DESCRIPTOR_BYTES:]

    def seal_stream(self, context: str, *, chunk_log2: int = CHUNK_LOG2_BLOB) -> SealWriter:
        return SealWriter(
            self.keyring, context, suite=self.suite, compression=self.compression, chunk_log2=chunk_log2
        )

    def open_stream(self, descriptor: bytes, context: str, *, size_bytes_max: int) -> OpenReader:
        return OpenReader(unwrap(self.keyring, context, descriptor), size_bytes_max=size_bytes_max)
