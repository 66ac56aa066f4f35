"""Bundles are read by block type and by which key fits which certificate, whatever their order."""

import base64
import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.common.security.bundle import InvalidBundle, parse_bundle, read_bundle, read_denylist

Key = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
ROOT, OLD = b"R" * 32, b"O" * 32


def name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def certificate(
    common_name: str, key: Key, issuer_key: ed25519.Ed25519PrivateKey, *, is_ca: bool | None
) -> bytes:
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(common_name))
        .issuer_name(name("ca"))
        .public_key(key.public_key())
        .serial_number(77)
        .not_valid_before(NOW)
        .not_valid_after(NOW + datetime.timedelta(days=1))
    )
    if is_ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    return builder.sign(issuer_key, None).public_bytes(Encoding.PEM)


def private(key: Key, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    return key.private_bytes(Encoding.PEM, form, NoEncryption())


def block(kind: str, payload: bytes, *headers: str) -> bytes:
    head = "".join(f"{header}\n" for header in headers) + ("\n" if headers else "")
    body = base64.encodebytes(payload).decode()
    return f"-----BEGIN {kind}-----\n{head}{body}-----END {kind}-----\n".encode()


CA_KEY = ed25519.Ed25519PrivateKey.generate()
LEAF_KEY = ed25519.Ed25519PrivateKey.generate()
CA = certificate("ca", CA_KEY, CA_KEY, is_ca=True)
LEAF = certificate("leaf", LEAF_KEY, CA_KEY, is_ca=None)
CHAIN = certificate("chain", ed25519.Ed25519PrivateKey.generate(), CA_KEY, is_ca=False)
ROOT_BLOCK = block("KRYPT-SYSTEM-ROOT-KEY", ROOT, "Key-Length: 32")
OLD_BLOCK = block("HOLDFAST-OLD-ROOT-KEY", OLD, "Key-Length: 32")
DESCRIPTOR_BLOCK = block("KRYPT-DESCRIPTOR", b"d" * 79, "Name: lockd/metadata", "Version: 2")
DENYLIST_BLOCK = block("LOCKD DENYLIST", b"1f\n34f2adac4d6b456c")
SERVER = CA + LEAF + private(LEAF_KEY) + DENYLIST_BLOCK + ROOT_BLOCK + DESCRIPTOR_BLOCK


def test_a_server_bundle_gives_all_its_parts(tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    path.write_bytes(SERVER + OLD_BLOCK)

    bundle = read_bundle(path).require_server()

    assert [ca.subject for ca in bundle.ca_certificates] == [name("ca")]
    assert bundle.leaf is not None
    assert bundle.leaf.subject == name("leaf")
    assert bundle.root_key == ROOT
    assert bundle.old_root_keys == (OLD,)
    assert bundle.denied_serials == {0x1F, 0x34F2ADAC4D6B456C}


def test_the_order_of_blocks_and_unknown_blocks_do_not_matter() -> None:
    unknown = block("SOMETHING ELSE", b"?") + b"stray text\n"

    bundle = parse_bundle(
        ROOT_BLOCK + private(CA_KEY) + unknown + LEAF + private(LEAF_KEY) + CHAIN + DESCRIPTOR_BLOCK + CA, "x"
    )

    assert bundle.private_key is not None
    assert bundle.private_key.public_key() == LEAF_KEY.public_key()
    assert bundle.ca_private_key is not None
    assert bundle.ca_private_key.public_key() == CA_KEY.public_key()
    assert [link.subject for link in bundle.chain] == [name("chain")]


@pytest.mark.parametrize(
    ("key", "form"),
    [
        (rsa.generate_private_key(65537, 2048), PrivateFormat.TraditionalOpenSSL),
        (ec.generate_private_key(ec.SECP256R1()), PrivateFormat.TraditionalOpenSSL),
        (ec.generate_private_key(ec.SECP256R1()), PrivateFormat.PKCS8),
    ],
    ids=["RSA PRIVATE KEY", "EC PRIVATE KEY", "PRIVATE KEY"],
)
def test_every_kind_of_private_key_is_read(key: Key, form: PrivateFormat) -> None:
    bundle = parse_bundle(CA + certificate("leaf", key, CA_KEY, is_ca=False) + private(key, form), "x")

    assert bundle.require_client().private_key is not None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (ROOT_BLOCK, "no certificates; what has a root key alone serves with --disable-mtls"),
        (CA + private(LEAF_KEY) + ROOT_BLOCK + DESCRIPTOR_BLOCK, "no leaf certificate"),
        (CA + LEAF + private(CA_KEY) + ROOT_BLOCK + DESCRIPTOR_BLOCK, "no private key that matches"),
        (CA + LEAF + private(LEAF_KEY) + DESCRIPTOR_BLOCK, "no KRYPT-SYSTEM-ROOT-KEY"),
        (CA + LEAF + private(LEAF_KEY) + ROOT_BLOCK, "no KRYPT-DESCRIPTOR"),
    ],
)
def test_a_server_bundle_that_lacks_a_part_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(InvalidBundle, match=f"server.pem: {problem}"):
        parse_bundle(content, "server.pem").require_server()


def test_a_client_bundle_needs_a_ca_certificate() -> None:
    with pytest.raises(InvalidBundle, match=r"client.pem: no CA certificate"):
        parse_bundle(LEAF + private(LEAF_KEY), "client.pem").require_client()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (block("KRYPT-SYSTEM-ROOT-KEY", b"short", "Key-Length: 32"), "has 5 bytes, not 32"),
        (block("HOLDFAST-OLD-ROOT-KEY", b"short", "Key-Length: 32"), "has 5 bytes, not 32"),
        (block("KRYPT-DESCRIPTOR", b"short"), "has 5 bytes, not 79"),
        (ROOT_BLOCK.replace(b"UlJS", b"!!!!"), "no base64"),
        (block("CERTIFICATE", b"no certificate"), "CERTIFICATE block can't be read"),
        (block("PRIVATE KEY", b"no key"), "PRIVATE KEY block can't be read"),
        (block("LOCKD DENYLIST", b"not hex"), "'not hex', which is no serial"),
        (b"-----BEGIN CERTIFICATE-----\nabc\n", "has no end"),
    ],
)
def test_a_broken_block_is_refused_and_the_file_named(content: bytes, problem: str) -> None:
    with pytest.raises(InvalidBundle, match=f"b.pem: .*{problem}"):
        parse_bundle(content, "b.pem")


def test_an_encrypted_private_key_is_refused() -> None:
    locked = LEAF_KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pw"))

    with pytest.raises(InvalidBundle, match="can't be read"):
        parse_bundle(locked.replace(b"ENCRYPTED ", b""), "b.pem")


def test_the_word_client_in_a_denylist_is_no_serial() -> None:
    bundle = parse_bundle(block("LOCKD DENYLIST", b"1f\nclient\n"), "b.pem")

    assert bundle.denied_serials == {0x1F}


def test_a_denylist_file_has_one_serial_per_line(tmp_path: Path) -> None:
    path = tmp_path / "server.denylist"
    path.write_text("# revoked in May\n1f\n\n  34F2adac \n1f\n")

    assert read_denylist(path) == {0x1F, 0x34F2ADAC}


def test_a_denylist_file_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "server.denylist"
    path.write_text("1f\nnobody\n")

    with pytest.raises(InvalidBundle, match=r"server.denylist: .*'nobody'"):
        read_denylist(path)
    with pytest.raises(InvalidBundle, match=r"gone: can't be read"):
        read_denylist(tmp_path / "gone")


def test_a_missing_file_and_a_huge_file_are_refused(tmp_path: Path) -> None:
    huge = tmp_path / "huge.pem"
    huge.write_bytes(b"\n" * (2 << 20))

    with pytest.raises(InvalidBundle, match=r"gone.pem: can't be read"):
        read_bundle(tmp_path / "gone.pem")
    with pytest.raises(InvalidBundle, match=r"huge.pem: is larger"):
        read_bundle(huge)


def test_secrets_are_in_neither_repr_nor_error() -> None:
    shown = repr(parse_bundle(SERVER + OLD_BLOCK, "server.pem"))

    assert "RRRR" not in shown
    assert "OOOO" not in shown
    assert "private" not in shown
    with pytest.raises(InvalidBundle) as caught:
        parse_bundle(
            ROOT_BLOCK.replace(b"UlJS\n", b"UlJS*\n").replace(b"Ujs", b"*"), "b.pem"
        ).require_server()
    assert "UlJS" not in str(caught.value)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, len(SERVER) - 1), st.integers(0, 255))
def test_a_damaged_bundle_is_read_or_refused_and_nothing_else(position: int, byte: int) -> None:
    damaged = bytearray(SERVER)
    damaged[position] = byte

    try:
        parse_bundle(bytes(damaged), "b.pem")
    except InvalidBundle as refused:
        assert "b.pem" in refused.detail
