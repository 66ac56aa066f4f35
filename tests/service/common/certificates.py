"""A private CA and bundles signed by it, made for one test run."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BOTH_USES: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


class Authority:
    """Issues certificates; `bundle` gives them as one PEM file, as `auth new` would."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        self._name = _name("test-ca")
        self.certificate = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, None)
        )

    def issue(
        self, common_name: str, uri: str = "", uses: Sequence[x509.ObjectIdentifier] = BOTH_USES
    ) -> tuple[x509.Certificate, Ed25519PrivateKey]:
        key = Ed25519PrivateKey.generate()
        names = [x509.DNSName("*"), *([x509.UniformResourceIdentifier(uri)] if uri else [])]
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            _builder(_name(common_name), self._name, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(authority, critical=False)
            .sign(self._key, None)
        )
        return certificate, key

    def bundle(
        self, common_name: str, uri: str = "", uses: Sequence[x509.ObjectIdentifier] = BOTH_USES
    ) -> bytes:
        certificate, key = self.issue(common_name, uri, uses)
        return pem(self.certificate) + pem(certificate) + pem(key)


def pem(part: x509.Certificate | Ed25519PrivateKey) -> bytes:
    if isinstance(part, x509.Certificate):
        return part.public_bytes(Encoding.PEM)
    return part.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: Ed25519PrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
