"""Who calls between the processes of one plane: a signature over the call, which no process outside can make.

The header `X-Holdfast-Internal` holds, with dots between them: version, caller's role, time in seconds, digest of the
body (or `stream`), the certificate of the client in front in base64url (or nothing), and the signature over all of
this, the method and the target: HMAC-SHA256. The key comes from the bundle's root key or from a secret. Of a client
that is known by more than its certificate, the rest stands behind the certificate: JSON in base64url, in version 2.
"""

import hmac
import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from holdfast.common.errors import HoldfastError
from holdfast.common.express.execution import Identify, identify_by_protocol
from holdfast.common.express.message import Request
from holdfast.common.express.route import Route
from holdfast.common.role import Role
from holdfast.common.security.bundle import read_bundle
from holdfast.common.security.principal import ANONYMOUS, OUTSIDE, Permission, Principal, PrincipalKind
from holdfast.common.settings import PlaneSettings

HEADER: Final = b"x-holdfast-internal"
DEADLINE_HEADER: Final = b"x-holdfast-deadline-ms"
RESERVED_PREFIX: Final = b"x-holdfast-"
"""Headers that only processes of the plane may send to each other."""

SKEW_S_MAX: Final = 60
_VERSION: Final = b"v1"
_VERSION_PROVED: Final = b"v2"
_FIELDS: Final = {_VERSION: 5, _VERSION_PROVED: 6}
_ROLES: Final = frozenset(role.encode("ascii") for role in Role)
_STREAM: Final = b"stream"
_SALT: Final = b"holdfast/internal/v1"
_KEY_BYTES: Final = 32
_BLOCK_BYTES: Final = 64
_NO_BODY: Final = sha256(b"").hexdigest().encode("ascii")
_CLAIMS_CHARS_MAX: Final = 32 * 1024


class InternalForbidden(HoldfastError):
    """Only processes of the plane itself may make this call; their signature is missing, wrong or too old."""

    code, status = "internal_forbidden", 403


@dataclass(frozen=True, slots=True)
class Caller:
    """Who signed, and for which client."""

    role: str
    client: Principal

    @property
    def principal(self) -> Principal:
        """The process itself."""
        return Principal(
            PrincipalKind.INTERNAL, self.role, self.client.certificate, frozenset((Permission.INTERNAL,))
        )


class _Proved(BaseModel):
    """A client as its protocol knows it."""

    model_config = ConfigDict(strict=True, extra="forbid")

    kind: PrincipalKind
    subject: str
    permissions: frozenset[Permission]
    scopes: tuple[str, ...]


def internal_keys(settings: PlaneSettings) -> list[bytes]:
    """The key to sign with, then older ones that still count; empty when there is nothing to derive them from."""
    if settings.internal_secret is not None:
        return [_derive(settings.internal_secret.get_secret_value().encode())]
    if not settings.has_bundle:
        return []
    bundle = read_bundle(settings.bundle)
    roots = [] if bundle.root_key is None else [bundle.root_key, *bundle.old_root_keys]
    return [_derive(root) for root in roots]


def _derive(material: bytes) -> bytes:
    # Imported by the processes of a split plane only: it is slow.
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), _KEY_BYTES, salt=_SALT, info=b"signature").derive(material)


class _Mac:
    """HMAC-SHA256 under one key, with what depends on the key alone done beforehand: a third of the time."""

    def __init__(self, key: bytes) -> None:
        assert len(key) == _KEY_BYTES
        block = key.ljust(_BLOCK_BYTES, b"\0")
        self._inner = sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = sha256(bytes(byte ^ 0x5C for byte in block))

    def of(self, method: str, target: str, claims: bytes) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(b"%b\n%b\n%b" % (method.encode("latin-1"), target.encode("latin-1"), claims))
        outer.update(inner.digest())
        return outer.hexdigest().encode("ascii")


class Signer:
    """Makes the header of a call; `time_s` is the wall clock."""

    def __init__(self, key: bytes, role: Role, time_s: Callable[[], float] = time.time) -> None:
        self._mac = _Mac(key)
        self._prefix = b"%b.%b." % (_VERSION, role.encode("ascii"))
        self._prefix_proved = b"%b.%b." % (_VERSION_PROVED, role.encode("ascii"))
        self._time_s = time_s
        self._shown: tuple[bytes | None, bytes] = None, b""

    def sign(self, method: str, target: str, body: bytes | None, client: Principal = ANONYMOUS) -> bytes:
        """The value of the header; a body of None is one that streams."""
        digest = _STREAM if body is None else _digest(body)
        prefix, shown = self._prefix, self._certificate(client.certificate)
        if not _is_plain(client):
            prefix, shown = self._prefix_proved, b"%b.%b" % (shown, _encoded(client))
        claims = b"%b%d.%b.%b" % (prefix, int(self._time_s()), digest, shown)
        return b"%b.%b" % (claims, self._mac.of(method, target, claims))

    def _certificate(self, certificate: bytes | None) -> bytes:
        if certificate is None:
            return b""
        if self._shown[0] != certificate:  # The calls of one client often come one after the other.
            self._shown = certificate, urlsafe_b64encode(certificate).rstrip(b"=")
        return self._shown[1]


def _is_plain(client: Principal) -> bool:
    """Whether its certificate, or that there is none, says all of it."""
    return client is ANONYMOUS or (
        client.kind is (PrincipalKind.ANONYMOUS if client.certificate is None else PrincipalKind.CERTIFICATE)
        and not client.subject
        and not client.scopes
        and client.permissions == OUTSIDE
    )


def _encoded(client: Principal) -> bytes:
    proved = _Proved.model_construct(
        kind=client.kind, subject=client.subject, permissions=client.permissions, scopes=client.scopes
    )
    return urlsafe_b64encode(proved.model_dump_json().encode()).rstrip(b"=")


class Verifier:
    """Reads the header of a call, and refuses what was not signed with one of the keys, or not lately."""

    def __init__(self, keys: Sequence[bytes], time_s: Callable[[], float] = time.time) -> None:
        self._macs = [_Mac(key) for key in keys]
        self._time_s = time_s

    def check(
        self, method: str, target: str, value: bytes, body: bytes, *, may_stream: bool = False
    ) -> Caller:
        """Who called; InternalForbidden says what was wrong with the header. `may_stream` takes any body for a stream."""
        claims, _, signature = value.rpartition(b".")
        fields = claims.split(b".")
        if _FIELDS.get(fields[0]) != len(fields) or len(value) > _CLAIMS_CHARS_MAX:
            raise InternalForbidden("the signature of an internal call is not one")
        for mac in self._macs:
            if hmac.compare_digest(mac.of(method, target, claims), signature):
                break
        else:
            raise InternalForbidden("the signature of an internal call is wrong; do all share one secret?")
        _, role, signed_s, digest, shown, *proved = fields
        if role not in _ROLES or not _is_time(signed_s):
            raise InternalForbidden("an internal call is signed with a role or a time that is none")
        if abs(self._time_s() - int(signed_s)) > SKEW_S_MAX:
            raise InternalForbidden("the signature of an internal call is too old; do the clocks agree?")
        is_streamed = may_stream and digest == _STREAM
        if not is_streamed and digest != _digest(body):
            raise InternalForbidden("the body of an internal call is not the one that was signed")
        certificate = _decode(shown) if shown else None
        client = _decoded(certificate, proved[0]) if proved else Principal.of_certificate(certificate)
        return Caller(role.decode("ascii"), client)


def identify_with(verifier: Verifier) -> Identify:
    """The hook of a service: internal routes need a signature, others take their principal from one. Without one the
    client talks to the service itself, which asks for the proof of its protocol.

    A signature that is there and does not hold is refused everywhere: the certificate of the connection is that of
    the gateway, which may do more than the client that it speaks for.
    """

    def identify(route: Route, request: Request) -> None:
        value = request.peek(HEADER)
        is_internal = route.traits.permission is Permission.INTERNAL
        if value is not None:
            query = request.query_string
            target = f"{request.path}?{query.decode('latin-1')}" if query else request.path
            caller = verifier.check(request.method, target, value, request.body, may_stream=not is_internal)
            request.principal = caller.principal if is_internal else caller.client
        elif not is_internal:
            identify_by_protocol(route, request)
        if is_internal and not request.principal.may(Permission.INTERNAL):
            raise InternalForbidden("this path is for processes of the plane only")

    return identify


_is_time = re.compile(rb"[0-9]{1,12}").fullmatch
_is_base64url = re.compile(rb"[A-Za-z0-9_-]+").fullmatch


def _digest(body: bytes) -> bytes:
    return sha256(body).hexdigest().encode("ascii") if body else _NO_BODY


def _decode(text: bytes) -> bytes:
    if not _is_base64url(text) or len(text) % 4 == 1:
        raise InternalForbidden("the client in the signature of an internal call is none")
    return urlsafe_b64decode(text + b"=" * (-len(text) % 4))


def _decoded(certificate: bytes | None, text: bytes) -> Principal:
    """No signature makes a client a process of the plane."""
    try:
        proved = _Proved.model_validate_json(_decode(text))
    except ValidationError as error:
        raise InternalForbidden("the client in the signature of an internal call is none") from error
    if proved.kind is PrincipalKind.INTERNAL or not proved.permissions <= OUTSIDE:
        raise InternalForbidden("the client in the signature of an internal call is a process of the plane")
    return Principal(proved.kind, proved.subject, certificate, proved.permissions, proved.scopes)
