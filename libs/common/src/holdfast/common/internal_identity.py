"""Who calls between the processes of one plane: a signature over the call, which nobody outside can make.

The header `X-Holdfast-Internal` holds, with dots between them: version, caller's role, time in seconds, digest of the
body (or `stream`), the certificate of the client in front (or nothing), and the signature over all of this, the method
and the target. Bytes are in base64url without padding. The key comes from the bundle's root key or from a secret.
"""

import hmac
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from holdfast.common.bundle import read_bundle
from holdfast.common.errors import HoldfastError
from holdfast.common.express.hooks import Identify
from holdfast.common.express.message import Request
from holdfast.common.express.route import INTERNAL_PREFIX, Route
from holdfast.common.role import Role
from holdfast.common.settings import PlaneSettings

HEADER: Final = b"x-holdfast-internal"
DEADLINE_HEADER: Final = b"x-holdfast-deadline-ms"
RESERVED_PREFIX: Final = b"x-holdfast-"
"""Headers that only processes of the plane may send to each other."""

SKEW_S_MAX: Final = 60
_VERSION: Final = b"v1"
_STREAM: Final = b"stream"
_SALT: Final = b"holdfast/internal/v1"
_KEY_BYTES: Final = 32
_CERTIFICATE_CHARS_MAX: Final = 32 * 1024


class InternalForbidden(HoldfastError):
    """Only processes of the plane itself may make this call; their signature is missing, wrong or too old."""

    code, status = "internal_forbidden", 403


@dataclass(frozen=True, slots=True)
class Caller:
    """Who signed, and for which client: its certificate in DER, None without mutual TLS in front."""

    role: str
    certificate: bytes | None


def internal_keys(settings: PlaneSettings) -> list[bytes]:
    """The key to sign with, then older ones that still count; empty when there is nothing to derive them from."""
    if settings.internal_secret is not None:
        return [_derive(settings.internal_secret.get_secret_value().encode())]
    if not settings.bundle.is_file():
        return []
    bundle = read_bundle(settings.bundle)
    roots = [] if bundle.root_key is None else [bundle.root_key, *bundle.old_root_keys]
    return [_derive(root) for root in roots]


def _derive(material: bytes) -> bytes:
    return HKDF(SHA256(), _KEY_BYTES, salt=_SALT, info=b"signature").derive(material)


class Signer:
    """Makes the header of a call; `time_s` is the wall clock."""

    def __init__(self, key: bytes, role: Role, time_s: Callable[[], float] = time.time) -> None:
        self._key = key
        self._prefix = b"%b.%b." % (_VERSION, role.encode("ascii"))
        self._time_s = time_s
        self._shown: tuple[bytes | None, bytes] = None, b""

    def sign(self, method: str, target: str, body: bytes | None, certificate: bytes | None = None) -> bytes:
        """The value of the header; a body of None is one that streams."""
        digest = _STREAM if body is None else _encode(sha256(body).digest())
        claims = b"%b%d.%b.%b" % (self._prefix, int(self._time_s()), digest, self._certificate(certificate))
        return b"%b.%b" % (claims, _signature(self._key, method, target, claims))

    def _certificate(self, certificate: bytes | None) -> bytes:
        if certificate is None:
            return b""
        if self._shown[0] != certificate:  # The calls of one client often come one after the other.
            self._shown = certificate, _encode(certificate)
        return self._shown[1]


class Verifier:
    """Reads the header of a call, and refuses what was not signed with one of the keys, or not lately."""

    def __init__(self, keys: Sequence[bytes], time_s: Callable[[], float] = time.time) -> None:
        self._keys = keys
        self._time_s = time_s

    def check(
        self, method: str, target: str, value: bytes, body: bytes, *, may_stream: bool = False
    ) -> Caller:
        """Who called; InternalForbidden says what was wrong with the header. `may_stream` takes any body for a stream."""
        claims, _, signature = value.rpartition(b".")
        fields = claims.split(b".")
        if len(fields) != 5 or fields[0] != _VERSION or len(value) > _CERTIFICATE_CHARS_MAX:
            raise InternalForbidden("the signature of an internal call is not one")
        if not any(
            hmac.compare_digest(_signature(key, method, target, claims), signature) for key in self._keys
        ):
            raise InternalForbidden("the signature of an internal call is wrong; do all share one secret?")
        _, role, signed_s, digest, certificate = fields
        # From here on every field is the word of a process of ours.
        if abs(self._time_s() - int(signed_s)) > SKEW_S_MAX:
            raise InternalForbidden("the signature of an internal call is too old; do the clocks agree?")
        is_streamed = may_stream and digest == _STREAM
        if not is_streamed and digest != _encode(sha256(body).digest()):
            raise InternalForbidden("the body of an internal call is not the one that was signed")
        return Caller(role.decode("ascii"), _decode(certificate) if certificate else None)


def identify_with(verifier: Verifier) -> Identify:
    """The hook of a service: internal routes need a signature, others take the client's certificate from one.

    A signature that is there and does not hold is refused everywhere: the certificate of the connection is that of
    the gateway, which may do more than the client that it speaks for.
    """

    def identify(route: Route, request: Request) -> None:
        value = request.header(HEADER)
        is_internal = route.path.startswith(INTERNAL_PREFIX)
        if value is None:
            if is_internal:
                raise InternalForbidden("this path is for processes of the plane only")
            return
        query = request.query_string
        target = f"{request.path}?{query.decode('latin-1')}" if query else request.path
        caller = verifier.check(
            request.method, target, value.encode("latin-1"), request.body, may_stream=not is_internal
        )
        request.peer_certificate = caller.certificate

    return identify


def _signature(key: bytes, method: str, target: str, claims: bytes) -> bytes:
    text = b"%b\n%b\n%b" % (method.encode("latin-1"), target.encode("latin-1"), claims)
    return _encode(hmac.digest(key, text, "sha256"))


def _encode(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def _decode(text: bytes) -> bytes:
    return urlsafe_b64decode(text + b"=" * (-len(text) % 4))
