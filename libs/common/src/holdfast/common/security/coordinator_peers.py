"""Callers whose CA is trusted between coordinators only: the handshake lets them in, everything else is closed to them."""

from functools import lru_cache
from typing import Final

from cryptography import x509

from holdfast.common.errors import HoldfastError
from holdfast.common.express.execution import Hooks, in_turn
from holdfast.common.express.message import Request
from holdfast.common.express.route import Route
from holdfast.common.security.bundle import read_bundle
from holdfast.common.security.principal import Permission
from holdfast.common.security.trust import is_issued_by, read_trust
from holdfast.common.settings import PlaneSettings

_OPEN_TO_COORDINATORS: Final = frozenset((Permission.COORDINATOR_CLIENT, Permission.COORDINATOR_SERVER))
_CACHED: Final = 4096


class ClientForbidden(HoldfastError):
    """The certificate is trusted between coordinators, but not as a client of this plane."""

    code, status = "client_forbidden", 403


def confine_coordinators(hooks: Hooks, settings: PlaneSettings) -> None:
    """Without CAs in the trust directory there are no such callers, and nothing is asked."""
    if not read_trust(settings.tc_trust_dir):
        return
    own = read_bundle(settings.bundle).ca_certificates

    @lru_cache(maxsize=_CACHED)
    def is_own(certificate: bytes) -> bool:
        parsed = x509.load_der_x509_certificate(certificate)
        return any(is_issued_by(parsed, authority) for authority in own)

    def check(route: Route, request: Request) -> None:
        certificate = request.principal.certificate
        if certificate is None or route.traits.permission in _OPEN_TO_COORDINATORS or is_own(certificate):
            return
        raise ClientForbidden("this certificate is trusted between coordinators only")

    hooks.identify = in_turn(hooks.identify, check)
