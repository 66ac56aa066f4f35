"""Keys are derived as the scheme says, named by their ids, and never shown."""

import hashlib

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common.security.bundle import Bundle, InvalidBundle
from holdfast.storage.codec.keyring import OLD_KEYS_MAX, Keyring, class_of, hkdf_sha256, key_id
from holdfast.storage.errors import DecryptionError

NEW, OLD = b"N" * 32, b"O" * 32


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=1, max_size=64), st.binary(max_size=80))
def test_the_derivation_is_hkdf(key: bytes, salt: bytes, info: bytes) -> None:
    expected = HKDF(hashes.SHA256(), 32, salt, info).derive(key)

    assert hkdf_sha256(bytearray(key), salt, info) == expected


def test_a_key_id_is_the_first_eight_bytes_of_a_tagged_hash() -> None:
    assert key_id(NEW) == hashlib.sha256(b"holdfast root id v1" + NEW).digest()[:8]


def test_a_wrapping_key_belongs_to_its_root_and_class() -> None:
    keyring = Keyring(NEW, [OLD])
    derived = HKDF(hashes.SHA256(), 32, b"holdfast/kek/v1", b"queue-meta").derive(OLD)

    sealed = AESGCM(derived).encrypt(bytes(12), b"data", None)

    assert keyring.kek(key_id(OLD), "queue-meta").decrypt(bytes(12), sealed, None) == b"data"
    assert keyring.kek(key_id(OLD), "queue-meta") is keyring.kek(key_id(OLD), "queue-meta")


def test_an_unknown_root_key_is_named_by_its_id_in_hex() -> None:
    with pytest.raises(DecryptionError, match=key_id(OLD).hex()):
        Keyring(NEW).kek(key_id(OLD), "meta")


def test_the_first_key_of_a_bundle_writes_and_the_others_read() -> None:
    keyring = Keyring.from_bundle(Bundle("server.pem", root_key=NEW, old_root_keys=(OLD,)))

    assert keyring.current_id == key_id(NEW)
    assert keyring.key_ids == {key_id(NEW), key_id(OLD)}


def test_a_bundle_without_a_root_key_is_refused_and_named() -> None:
    with pytest.raises(InvalidBundle, match=r"client.pem.*KRYPT-SYSTEM-ROOT-KEY"):
        Keyring.from_bundle(Bundle("client.pem"))


@pytest.mark.parametrize("keys", [(b"short", []), (NEW, [b"short"]), (NEW, [OLD] * (OLD_KEYS_MAX + 1))])
def test_keys_of_a_wrong_size_or_number_are_refused(keys: tuple[bytes, list[bytes]]) -> None:
    with pytest.raises(ValueError, match="root key"):
        Keyring(*keys)


def test_a_keyring_does_not_show_its_keys() -> None:
    assert "NNNN" not in repr(Keyring(NEW)) + str(Keyring(NEW))


@pytest.mark.parametrize(
    ("context", "key_class"),
    [
        ("state:ns/key", "state"),
        ("queue-payload:ns/q/a:b", "queue-payload"),
        ("", "object"),
        ("nothing known:x", "object"),
        ("meta", "meta"),
    ],
)
def test_the_class_stands_before_the_first_colon(context: str, key_class: str) -> None:
    assert class_of(context) == key_class
