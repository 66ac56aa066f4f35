"""PEM bundles: certificates, private key, root keys and denylist of one server or client, read from one file.

The order of blocks is not relied on. A certificate with basicConstraints CA=true is a CA, any other a leaf: the
first leaf is the bundle's own, the rest its chain. Of several private keys the one that matches the leaf is taken.
Unknown blocks are ignored.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.common.errors import HoldfastError

if TYPE_CHECKING:  # Slow to import: a process without TLS and encryption does without.
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes

BUNDLE_BYTES_MAX = 1 << 20
ROOT_KEY_BYTES = 32
DESCRIPTOR_BYTES = 79

_PRIVATE_KEYS = frozenset(("PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"))
_ROOT_KEY = "KRYPT-SYSTEM-ROOT-KEY"
_OLD_ROOT_KEY = "HOLDFAST-OLD-ROOT-KEY"
_DESCRIPTOR = "KRYPT-DESCRIPTOR"
_DENYLIST = "LOCKD DENYLIST"

_BEGIN = re.compile(r"-----BEGIN ([A-Z0-9][A-Z0-9 -]{0,62}[A-Z0-9])-----[ \t]*")
_SERIAL = re.compile(r"[0-9a-f]{1,64}")


class InvalidBundle(HoldfastError):
    """A bundle file lacks a part or holds a broken one; the detail names the file and the part."""

    code, status = "invalid_bundle", 500

    def __init__(self, path: str | Path, problem: str) -> None:
        super().__init__(f"bundle {path}: {problem}")
        self.path = str(path)


@dataclass(frozen=True, slots=True)
class Bundle:
    """What one bundle file holds. Secrets stay out of its repr."""

    path: str
    ca_certificates: "tuple[x509.Certificate, ...]" = ()
    leaf: "x509.Certificate | None" = None
    chain: "tuple[x509.Certificate, ...]" = ()
    private_key: "PrivateKeyTypes | None" = field(default=None, repr=False)
    ca_private_key: "PrivateKeyTypes | None" = field(default=None, repr=False)
    root_key: bytes | None = field(default=None, repr=False)
    old_root_keys: tuple[bytes, ...] = field(default=(), repr=False)
    descriptor: bytes | None = None
    denied_serials: frozenset[int] = frozenset()

    def require_server(self) -> "Bundle":
        """This bundle, if a server can start with it."""
        if self.leaf is None and not self.ca_certificates:
            raise InvalidBundle(
                self.path, "no certificates; what has a root key alone serves with --disable-mtls"
            )
        self._require_leaf_and_key()
        if self.root_key is None:
            raise InvalidBundle(self.path, f"no {_ROOT_KEY} block; make the bundle anew from its CA")
        if self.descriptor is None:
            raise InvalidBundle(self.path, f"no {_DESCRIPTOR} block; make the bundle anew from its CA")
        return self

    def require_client(self) -> "Bundle":
        """This bundle, if a client can connect with it."""
        self._require_leaf_and_key()
        if not self.ca_certificates:
            raise InvalidBundle(self.path, "no CA certificate")
        return self

    def _require_leaf_and_key(self) -> None:
        if self.leaf is None:
            raise InvalidBundle(self.path, "no leaf certificate")
        if self.private_key is None:
            raise InvalidBundle(self.path, "no private key that matches the leaf certificate")


def read_bundle(path: str | Path) -> Bundle:
    """The bundle in a file. What must be in it is asked with `require_server` or `require_client`."""
    return parse_bundle(_read(path), path)


def read_denylist(path: str | Path) -> frozenset[int]:
    """The serials of a denylist file: one per line, blank lines and lines that begin with # skipped."""
    lines = _read(path).decode("latin-1").splitlines()
    words = [line.strip() for line in lines]
    return frozenset(_serials([word for word in words if not word.startswith("#")], path))


def parse_bundle(content: bytes, path: str | Path) -> Bundle:
    """The bundle in `content`; `path` is named in errors."""
    certificates: list[x509.Certificate] = []
    private_keys: list[PrivateKeyTypes] = []
    root_keys: list[bytes] = []
    old_root_keys: list[bytes] = []
    descriptors: list[bytes] = []
    denied: set[int] = set()
    for block in _blocks(content, path):
        if block.kind == "CERTIFICATE":
            certificates.append(_certificate(block, path))
        elif block.kind in _PRIVATE_KEYS:
            private_keys.append(_private_key(block, path))
        elif block.kind == _ROOT_KEY:
            root_keys.append(_sized(block, ROOT_KEY_BYTES, path))
        elif block.kind == _OLD_ROOT_KEY:
            old_root_keys.append(_sized(block, ROOT_KEY_BYTES, path))
        elif block.kind == _DESCRIPTOR:
            descriptors.append(_sized(block, DESCRIPTOR_BYTES, path))
        elif block.kind == _DENYLIST:
            denied |= _serials(_payload(block, path).decode("latin-1").split("\n"), path)
    authorities = tuple(certificate for certificate in certificates if _is_ca(certificate))
    leaves = [certificate for certificate in certificates if not _is_ca(certificate)]
    return Bundle(
        path=str(path),
        ca_certificates=authorities,
        leaf=leaves[0] if leaves else None,
        chain=tuple(leaves[1:]),
        private_key=_matching(private_keys, leaves),
        ca_private_key=_matching(private_keys, authorities),
        root_key=root_keys[0] if root_keys else None,
        old_root_keys=tuple(old_root_keys),
        descriptor=descriptors[0] if descriptors else None,
        denied_serials=frozenset(denied),
    )


def _read(path: str | Path) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(BUNDLE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidBundle(path, f"can't be read: {error.strerror}") from error
    if len(content) > BUNDLE_BYTES_MAX:
        raise InvalidBundle(path, f"is larger than {BUNDLE_BYTES_MAX} bytes")
    return content


class _Block(NamedTuple):
    kind: str
    pem: bytes
    body: str


def _blocks(content: bytes, path: str | Path) -> Iterator[_Block]:
    """Every PEM block; text between blocks is ignored, as is what a broken line between them may say."""
    lines = iter(content.decode("latin-1").splitlines())
    for line in lines:
        begin = _BEGIN.fullmatch(line)
        if begin is None:
            continue
        kind, inner = begin[1], list[str]()
        for inner_line in lines:
            if inner_line.rstrip() == f"-----END {kind}-----":
                break
            inner.append(inner_line)
        else:
            raise InvalidBundle(path, f"the {kind} block has no end")
        pem = "\n".join((begin[0], *inner, f"-----END {kind}-----\n"))
        yield _Block(kind, pem.encode("latin-1"), "".join(line for line in inner if ":" not in line))


def _payload(block: _Block, path: str | Path) -> bytes:
    """The decoded body. Headers (`Name: value`) are told by their colon, which base64 does not have."""
    try:
        return base64.b64decode("".join(block.body.split()), validate=True)
    except (binascii.Error, ValueError):
        # The cause may quote what could not be decoded, and that may be a key.
        raise InvalidBundle(path, f"the {block.kind} block is no base64") from None


def _sized(block: _Block, size_bytes: int, path: str | Path) -> bytes:
    payload = _payload(block, path)
    if len(payload) != size_bytes:
        raise InvalidBundle(path, f"the {block.kind} block has {len(payload)} bytes, not {size_bytes}")
    return payload


def _certificate(block: _Block, path: str | Path) -> "x509.Certificate":
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        certificate = x509.load_pem_x509_certificate(block.pem)
        _public_bytes(certificate.public_key())
        _is_ca(certificate)  # Key and extensions are parsed late: what is broken in them must show here.
    except (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension) as error:
        raise InvalidBundle(path, f"a CERTIFICATE block can't be read: {error}") from error
    return certificate


def _private_key(block: _Block, path: str | Path) -> "PrivateKeyTypes":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(block.pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidBundle(
            path, f"a {block.kind} block can't be read (encrypted keys are not taken)"
        ) from None


def _serials(words: list[str], path: str | Path) -> set[int]:
    serials = {word.strip().lower() for word in words if word.strip()}
    # lockd's own revoke command stores the word "client" as if it were a serial.
    serials.discard("client")
    for serial in serials:
        if not _SERIAL.fullmatch(serial):
            raise InvalidBundle(path, f"the denylist holds {serial[:40]!r}, which is no serial")
    return {int(serial, 16) for serial in serials}


def _is_ca(certificate: "x509.Certificate") -> bool:
    from cryptography import x509

    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _matching(
    private_keys: "list[PrivateKeyTypes]", certificates: "Sequence[x509.Certificate]"
) -> "PrivateKeyTypes | None":
    """The key whose public half the first certificate holds."""
    if not certificates:
        return None
    wanted = _public_bytes(certificates[0].public_key())
    return next((key for key in private_keys if _public_bytes(key.public_key()) == wanted), None)


def _public_bytes(key: "PublicKeyTypes") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
