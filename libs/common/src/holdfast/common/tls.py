"""TLS from a bundle: one PEM file with CA, certificate chain and private key, in any order."""

import os
import re
import ssl
import tempfile
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

BUNDLE_BYTES_MAX: Final = 1024 * 1024
_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 -]+)-----\r?\n.*?-----END \1-----", re.DOTALL)
_KEY_TYPES: Final = frozenset({b"PRIVATE KEY", b"RSA PRIVATE KEY", b"EC PRIVATE KEY"})


class BundleError(ValueError):
    """A bundle that cannot be used; the text says what is missing. It never quotes the bundle."""


@dataclass(frozen=True, slots=True, repr=False)
class Bundle:
    """The parts of a bundle as PEM: `chain` begins with the own certificate, `ca` holds every CA certificate."""

    chain: bytes
    key: bytes
    ca: bytes


def read_bundle(pem: bytes) -> Bundle:
    """Sort the blocks of a bundle: CA or not by basicConstraints, the key by the certificate it belongs to."""
    if len(pem) > BUNDLE_BYTES_MAX:
        raise BundleError(f"the bundle is larger than {BUNDLE_BYTES_MAX} bytes")
    authorities: list[x509.Certificate] = []
    leaves: list[x509.Certificate] = []
    keys: list[PrivateKeyTypes] = []
    for block in _BLOCK.finditer(pem):
        if block[1] == b"CERTIFICATE":
            certificate = _load_certificate(block[0])
            (authorities if _is_authority(certificate) else leaves).append(certificate)
        elif block[1] in _KEY_TYPES:
            keys.append(_load_key(block[0]))
    if not leaves:
        raise BundleError("the bundle has no certificate of its own, only CA certificates or none")
    if not authorities:
        raise BundleError("the bundle has no CA certificate")
    own_public = _public_bytes(leaves[0].public_key())
    own = next((key for key in keys if _public_bytes(key.public_key()) == own_public), None)
    if own is None:
        raise BundleError("the bundle has no private key that matches its certificate")
    return Bundle(
        chain=b"".join(certificate.public_bytes(Encoding.PEM) for certificate in leaves),
        key=own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        ca=b"".join(certificate.public_bytes(Encoding.PEM) for certificate in authorities),
    )


def server_context(bundle: Bundle, *, more_client_ca: bytes = b"") -> ssl.SSLContext:
    """A server that asks for a client certificate, and takes none that its CAs did not sign."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=(bundle.ca + more_client_ca).decode("ascii"))
    _load_chain(context, bundle)
    context.set_alpn_protocols(["http/1.1"])
    return context


def client_context(bundle: Bundle) -> ssl.SSLContext:
    """A client with a certificate. Host names are not checked: bundles are issued for `*`, the CA is private."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.load_verify_locations(cadata=bundle.ca.decode("ascii"))
    _load_chain(context, bundle)
    return context


def _load_chain(context: ssl.SSLContext, bundle: Bundle) -> None:
    """OpenSSL takes a chain and its key from a file only: it lives as short as it can, for the owner's eyes."""
    descriptor, path = tempfile.mkstemp(prefix="holdfast-")  # Created with mode 0600.
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(bundle.chain + bundle.key)
        context.load_cert_chain(path)
    finally:
        os.unlink(path)  # noqa: PTH108 - a plain name, made and removed in this function


def _load_certificate(block: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(block)
    except ValueError as error:
        raise BundleError("the bundle has a certificate that cannot be read") from error


def _load_key(block: bytes) -> PrivateKeyTypes:
    try:
        return load_pem_private_key(block, password=None)
    except (ValueError, TypeError) as error:
        raise BundleError("the bundle has a private key that cannot be read (is it encrypted?)") from error


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _public_bytes(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
