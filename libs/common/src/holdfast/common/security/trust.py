"""Whose certificates coordinators of other islands may show: the CAs in a directory, and how a CA is named there."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.common.security.bundle import InvalidBundle, read_bundle

if TYPE_CHECKING:  # As in `bundle.py`.
    from cryptography import x509

FILES_MAX: Final = 1000


def read_trust(directory: Path) -> "tuple[x509.Certificate, ...]":
    """The CAs of all PEM files in a directory; none if there is no such directory."""
    try:
        paths = sorted(path for path in directory.glob("*.pem") if path.is_file())
    except OSError as error:
        raise InvalidBundle(directory, f"can't be read: {error.strerror}") from error
    if len(paths) > FILES_MAX:
        raise InvalidBundle(directory, f"has more than {FILES_MAX} files")
    return tuple(authority for path in paths for authority in read_bundle(path).ca_certificates)


def trust_file_name(authority: "x509.Certificate") -> str:
    """One name for each CA, so that adding it twice makes one file."""
    from cryptography.hazmat.primitives.serialization import Encoding

    return f"ca-{hashlib.sha256(authority.public_bytes(Encoding.DER)).hexdigest()[:16]}.pem"


def is_issued_by(certificate: "x509.Certificate", authority: "x509.Certificate") -> bool:
    """Whether a CA signed a certificate itself; bundles have no CAs in between."""
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def pem_of(authorities: "tuple[x509.Certificate, ...]") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return b"".join(authority.public_bytes(Encoding.PEM) for authority in authorities)


def find_client_bundle(named: Path | None, config_dir: Path) -> Path | None:
    """The bundle that calls between coordinators show: the one named, or the only one in the config directory."""
    if named is not None:
        return named
    found = sorted(config_dir.glob("tc-client*.pem"))
    if len(found) > 1:
        raise InvalidBundle(found[0], "is one of several tc-client bundles: name one with --tc-client-bundle")
    return found[0] if found else None
