"""The root keys of a store and what is derived from them: key ids, and one key-encryption key per class of objects.

Data keys are wrapped under random 96-bit nonces: rotate the root key before a class has seen 2^32 writes.
"""

from collections.abc import Sequence
from hashlib import sha256

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast.common.security.bundle import Bundle, InvalidBundle
from holdfast.storage.errors import DecryptionError

ROOT_KEY_BYTES = 32
KEY_ID_BYTES = 8
OLD_KEYS_MAX = 64

CLASSES = frozenset(("meta", "state", "attachment", "queue-meta", "queue-payload", "object"))

_INNER_PAD = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD = bytes(byte ^ 0x5C for byte in range(256))


def hkdf_sha256(key: bytes | bytearray, salt: bytes, info: bytes) -> bytes:
    """HKDF for exactly 32 bytes of output: one extract and one expand step. The salt has at most 64 bytes.

    Sealing a small value is mostly this derivation, and two plain hashes take half the time of OpenSSL's own HMAC.
    """
    return _hmac_sha256(_hmac_sha256(salt, key), info + b"\x01")


def _hmac_sha256(key: bytes, message: bytes | bytearray) -> bytes:
    block = key.ljust(64, b"\0")
    inner = sha256(block.translate(_INNER_PAD) + message).digest()
    return sha256(block.translate(_OUTER_PAD) + inner).digest()


def key_id(root_key: bytes) -> bytes:
    """What descriptors name a root key by. Not secret."""
    return sha256(b"holdfast root id v1" + root_key).digest()[:KEY_ID_BYTES]


def class_of(context: str) -> str:
    """The class of a context: what stands before its first colon; a context that names no known class is an object's."""
    name = context.partition(":")[0]
    return name if name in CLASSES else "object"


class Keyring:
    """The first root key writes, all of them read. Has no repr of its own, so keys stay out of logs."""

    __slots__ = ("_keks", "_roots", "current_id")

    def __init__(self, root_key: bytes, old_root_keys: Sequence[bytes] = ()) -> None:
        if any(len(key) != ROOT_KEY_BYTES for key in (root_key, *old_root_keys)):
            raise ValueError(f"a root key has {ROOT_KEY_BYTES} bytes")
        if len(old_root_keys) > OLD_KEYS_MAX:
            raise ValueError(f"at most {OLD_KEYS_MAX} old root keys; re-wrap the store and drop some")
        self.current_id = key_id(root_key)
        self._roots = {key_id(key): key for key in (*old_root_keys, root_key)}
        self._keks: dict[tuple[bytes, str], AESGCM] = {}

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> "Keyring":
        """The keys of a server bundle."""
        if bundle.root_key is None:
            raise InvalidBundle(
                bundle.path,
                "no KRYPT-SYSTEM-ROOT-KEY block, which storage encryption needs; make it anew from its CA",
            )
        return cls(bundle.root_key, bundle.old_root_keys)

    @property
    def key_ids(self) -> frozenset[bytes]:
        return frozenset(self._roots)

    def derived(self, purpose: bytes) -> bytes:
        """A secret of its own for a purpose, from the current root key; another one after a rotation."""
        return hkdf_sha256(self._roots[self.current_id], b"holdfast/derived/v1", purpose)

    def kek(self, root_id: bytes, key_class: str) -> AESGCM:
        """The key that wraps data keys of this class. DecryptionError names a root key that is not on the ring."""
        kek = self._keks.get((root_id, key_class))
        if kek is None:
            root = self._roots.get(root_id)
            if root is None:
                raise DecryptionError(
                    f"written under root key {root_id.hex()}, which the bundle does not hold; "
                    "put it into a HOLDFAST-OLD-ROOT-KEY block"
                )
            kek = AESGCM(hkdf_sha256(root, b"holdfast/kek/v1", key_class.encode()))
            self._keks[root_id, key_class] = kek  # Bounded: root keys times the six classes.
        return kek
