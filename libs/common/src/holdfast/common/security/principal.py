"""Who makes a request, what proved it, and what that proof allows."""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final


class Permission(StrEnum):
    """What a principal must be allowed to do to use a route."""

    CLIENT = "client"
    """Be a client of this plane."""
    COORDINATOR_CLIENT = "coordinator client"
    """Speak for a coordinator; also open to those whose CA is trusted between coordinators only."""
    COORDINATOR_SERVER = "coordinator server"
    """Be a coordinator."""
    INTERNAL = "internal"
    """Be a process of this plane."""


class PrincipalKind(StrEnum):
    """What proved who it is."""

    ANONYMOUS = "anonymous"
    CERTIFICATE = "certificate"
    JWT = "jwt"
    TOKEN = "token"
    INTERNAL = "internal"


OUTSIDE: Final = frozenset(Permission) - {Permission.INTERNAL}
"""What a proof from outside of the plane can allow."""


@dataclass(frozen=True, slots=True)
class Principal:
    """`permissions` is the most that it may do: a plane that trusts only some CAs for something looks at `certificate` too."""

    kind: PrincipalKind
    subject: str = ""
    """As a JWT or a token names it, or the role of a process; a certificate is read when it is asked."""
    certificate: bytes | None = None
    """In DER."""
    permissions: frozenset[Permission] = OUTSIDE
    scopes: tuple[str, ...] = ()
    """What it may do in its own protocol, in the words of its proof."""

    @staticmethod
    def of_certificate(certificate: bytes | None) -> "Principal":
        """The client of a TLS connection; without a certificate it is anonymous."""
        if certificate is None:
            return ANONYMOUS
        return Principal(PrincipalKind.CERTIFICATE, certificate=certificate)

    @property
    def name(self) -> str:
        """Who it is; nothing for the anonymous one. A certificate is `<subject>#<serial in hex>`."""
        if self.subject or self.certificate is None:
            return self.subject
        return certificate_name(self.certificate)

    def may(self, permission: Permission) -> bool:
        return permission in self.permissions


ANONYMOUS: Final = Principal(PrincipalKind.ANONYMOUS)


@lru_cache(maxsize=1024)
def certificate_name(certificate: bytes) -> str:
    """`<subject>#<serial in hex>` of a certificate in DER."""
    from cryptography import x509  # As in `bundle.py`.

    parsed = x509.load_der_x509_certificate(certificate)
    return f"{parsed.subject.rfc4514_string()}#{parsed.serial_number:x}"
