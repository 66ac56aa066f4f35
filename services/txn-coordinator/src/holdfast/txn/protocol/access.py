"""Which certificate opens which endpoint of coordinators, and which node it belongs to."""

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from holdfast.common.express.execution import Identify
from holdfast.common.express.message import Request
from holdfast.common.express.route import Route
from holdfast.common.security.bundle import read_bundle
from holdfast.common.security.principal import Permission
from holdfast.common.security.trust import is_issued_by, read_trust
from holdfast.common.settings import PlaneSettings
from holdfast.txn.cluster.errors import IdentityMissing, TcClientRequired, TcForbidden, TcServerRequired

if TYPE_CHECKING:  # As in `holdfast.common.security.bundle`.
    from cryptography import x509
    from cryptography.x509.oid import ObjectIdentifier

SERVER_IDENTITY: Final = "spiffe://lockd/server/"
_IDENTITY_CHARS_MAX: Final = 256
_CACHED: Final = 1024


class TcAccess:
    """The checks of one process. Without mutual TLS, or when told so, there are none."""

    def __init__(self, authorities: "Iterable[x509.Certificate]" = (), *, is_on: bool = False) -> None:
        self._authorities = tuple(authorities)
        self.is_on = is_on
        self._uses = lru_cache(maxsize=_CACHED)(self._uses_of)

    @classmethod
    def of(cls, settings: PlaneSettings) -> "TcAccess":
        if not settings.is_mtls_on or settings.tc_auth_disabled:
            return cls()
        own = read_bundle(settings.bundle).ca_certificates if settings.tc_default_ca_allowed else ()
        return cls((*read_trust(settings.tc_trust_dir), *own), is_on=True)

    def _require_client(self, request: Request) -> None:
        """Any certificate for clients of a trusted CA."""
        certificate = request.principal.certificate
        if certificate is None:
            raise TcClientRequired("a client certificate is required here")
        from cryptography.x509.oid import ExtendedKeyUsageOID

        self._require(certificate, ExtendedKeyUsageOID.CLIENT_AUTH)

    def _require_server(self, request: Request) -> None:
        """A certificate for servers of a trusted CA."""
        certificate = request.principal.certificate
        if certificate is None:
            raise TcServerRequired("a server certificate is required here")
        from cryptography.x509.oid import ExtendedKeyUsageOID

        self._require(certificate, ExtendedKeyUsageOID.SERVER_AUTH)

    def guard(self) -> Identify | None:
        """The check of every request by the permission that its route needs; None when there is nothing to check."""
        return self._check if self.is_on else None

    def _check(self, route: Route, request: Request) -> None:
        permission = route.traits.permission
        if permission is Permission.COORDINATOR_SERVER:
            self._require_server(request)
        elif permission is Permission.COORDINATOR_CLIENT:
            self._require_client(request)

    def _require(self, certificate: bytes, use: "ObjectIdentifier") -> None:
        uses = self._uses(certificate)
        if uses is None:
            raise TcForbidden(
                "the certificate's CA is not trusted for coordinators: add it with `tc trust add`, "
                "or start with --tc-allow-default-ca"
            )
        if use not in uses:
            raise TcForbidden("the certificate is not for this use")

    def _uses_of(self, certificate: bytes) -> "frozenset[ObjectIdentifier] | None":
        """What a trusted certificate may be used for; None if it is not trusted."""
        from cryptography import x509

        parsed = x509.load_der_x509_certificate(certificate)
        if not any(is_issued_by(parsed, authority) for authority in self._authorities):
            return None
        try:
            return frozenset(parsed.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
        except (x509.ExtensionNotFound, ValueError):
            return frozenset()


def caller_identity(request: Request) -> str:
    """The node that calls, by its certificate and nothing else."""
    certificate = request.principal.certificate
    identity = None if certificate is None else server_identity(certificate)
    if identity is None:
        raise IdentityMissing(f"a server certificate with {SERVER_IDENTITY}<id> is required to be a member")
    return identity


@lru_cache(maxsize=_CACHED)
def server_identity(certificate: bytes) -> str | None:
    """The node id of a server certificate in DER."""
    from cryptography import x509

    parsed = x509.load_der_x509_certificate(certificate)
    try:
        names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return None
    for uri in names.get_values_for_type(x509.UniformResourceIdentifier):
        identity = uri.removeprefix(SERVER_IDENTITY)
        if identity != uri and 0 < len(identity) <= _IDENTITY_CHARS_MAX:
            return identity
    return None
