"""The HF1 descriptor: 76 bytes that carry an object's data key, wrapped for exactly one context.

    0  `HFD1` · suite · compression · 2 zero bytes · root key id (8)
    16 wrap nonce (12)
    28 AES-256-GCM under KEK(class) of the data key (48), authenticating bytes 0..15 and sha256(context)

An object moves to another context by a new descriptor alone; its body stays untouched.
"""

import os
import struct
from hashlib import sha256
from typing import NamedTuple

from cryptography.exceptions import InvalidTag

from holdfast.storage.codec.compression import Compression
from holdfast.storage.codec.keyring import KEY_ID_BYTES, Keyring, class_of
from holdfast.storage.codec.suite import NONCE_BYTES, Suite
from holdfast.storage.errors import DecryptionError

DESCRIPTOR_BYTES = 76
DATA_KEY_BYTES = 32
MAGIC = b"HFD1"

_PREFIX = struct.Struct(f">4sBBH{KEY_ID_BYTES}s")
_NONCE_END = _PREFIX.size + NONCE_BYTES
_WIPED = bytes(DATA_KEY_BYTES)
_SUITES = {int(suite): suite for suite in Suite}
_COMPRESSIONS = {int(compression): compression for compression in Compression}


class DataKey(NamedTuple):
    """An object's own key and how it is used."""

    suite: Suite
    compression: Compression
    key: bytearray

    def wipe(self) -> None:
        """Overwrite the key; the code that made or unwrapped it does so once the stream key is derived."""
        self.key[:] = _WIPED


def new_data_key(suite: Suite, compression: Compression) -> DataKey:
    """A fresh random key: every write of an object has its own."""
    return DataKey(suite, compression, bytearray(os.urandom(DATA_KEY_BYTES)))


def wrap(keyring: Keyring, context: str, data_key: DataKey) -> bytes:
    """The descriptor of an object, under the ring's current root key."""
    prefix = _PREFIX.pack(MAGIC, data_key.suite, data_key.compression, 0, keyring.current_id)
    nonce = os.urandom(NONCE_BYTES)
    kek = keyring.kek(keyring.current_id, class_of(context))
    return prefix + nonce + kek.encrypt(nonce, data_key.key, prefix + _digest(context))


def unwrap(keyring: Keyring, context: str, descriptor: bytes) -> DataKey:
    """DecryptionError if it was altered, belongs to another context, or its root key is not on the ring."""
    if len(descriptor) != DESCRIPTOR_BYTES:
        raise DecryptionError(f"a descriptor has {DESCRIPTOR_BYTES} bytes, not {len(descriptor)}")
    prefix = descriptor[: _PREFIX.size]
    magic, suite, compression, zero, root_id = _PREFIX.unpack(prefix)
    if magic != MAGIC or suite not in _SUITES or compression not in _COMPRESSIONS or zero:
        raise DecryptionError("no HF1 descriptor, or one of a later version")
    kek = keyring.kek(root_id, class_of(context))
    key = bytearray(DATA_KEY_BYTES)
    try:
        kek.decrypt_into(
            descriptor[_PREFIX.size : _NONCE_END], descriptor[_NONCE_END:], prefix + _digest(context), key
        )
    except InvalidTag:
        raise DecryptionError("descriptor was altered or belongs to another object") from None
    return DataKey(_SUITES[suite], _COMPRESSIONS[compression], key)


def rewrap(keyring: Keyring, descriptor: bytes, old_context: str, new_context: str) -> bytes:
    """The same object for another context, or for the ring's current root key, or both."""
    data_key = unwrap(keyring, old_context, descriptor)
    try:
        return wrap(keyring, new_context, data_key)
    finally:
        data_key.wipe()


def is_compressed(descriptor: bytes) -> bool:
    """What it claims; proven when it is unwrapped."""
    return descriptor[5] != Compression.NONE


def root_id_of(descriptor: bytes) -> bytes:
    """Which root key a descriptor needs: a walk that re-wraps skips those that have the current one already."""
    if len(descriptor) < DESCRIPTOR_BYTES or not descriptor.startswith(MAGIC):
        raise DecryptionError("no HF1 descriptor, or one of a later version")
    return descriptor[_PREFIX.size - KEY_ID_BYTES : _PREFIX.size]


def _digest(context: str) -> bytes:
    return sha256(context.encode()).digest()
