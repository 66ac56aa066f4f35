"""TLS from a bundle: both sides show a certificate, and trust the bundle's CAs only."""

import os
import ssl
import tempfile
from collections.abc import Iterable

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from holdfast.common.security.bundle import Bundle


def server_context(bundle: Bundle, *, more_client_ca: bytes = b"") -> ssl.SSLContext:
    """A server that asks for a client certificate, and takes none that its CAs did not sign."""
    bundle.require_client()  # Leaf, key and CA; the root key is storage's matter.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=(_pem(bundle.ca_certificates) + more_client_ca).decode("ascii"))
    _load_chain(context, bundle)
    context.set_alpn_protocols(["http/1.1"])
    return context


def client_context(bundle: Bundle) -> ssl.SSLContext:
    """A client with a certificate. Host names are not checked: bundles are issued for `*`, the CA is private."""
    bundle.require_client()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.load_verify_locations(cadata=_pem(bundle.ca_certificates).decode("ascii"))
    _load_chain(context, bundle)
    return context


def _load_chain(context: ssl.SSLContext, bundle: Bundle) -> None:
    """OpenSSL takes a chain and its key from a file only: it lives as short as it can, for the owner's eyes."""
    assert bundle.leaf is not None and bundle.private_key is not None, "require_client was not called"
    key = bundle.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    descriptor, path = tempfile.mkstemp(prefix="holdfast-")  # Created with mode 0600.
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_pem((bundle.leaf, *bundle.chain)) + key)
        context.load_cert_chain(path)
    finally:
        os.unlink(path)  # noqa: PTH108 - a plain name, made and removed in this function


def _pem(certificates: Iterable[x509.Certificate]) -> bytes:
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
