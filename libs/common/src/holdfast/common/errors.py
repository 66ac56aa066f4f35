"""The root of everything a client may be told: an error knows its wire code and its HTTP status."""

from collections.abc import Mapping
from typing import ClassVar


class HoldfastError(Exception):
    """Base of everything a client may be told. `detail` says what happened and what to do next."""

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500

    def __init__(self, detail: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry_after_s = retry_after_s

    def fields(self) -> Mapping[str, str | int]:
        """Further members of the error body (`current_version`, `leader_endpoint`, …); zero values are left out."""
        return {}

    def headers(self) -> Mapping[str, str]:
        """Further headers of the error answer, such as `X-Lockd-QRF-State`."""
        return {}


class InvalidBody(HoldfastError):
    """The request body is not what this endpoint takes."""

    code, status = "invalid_body", 400


class InvalidRequest(HoldfastError):
    """The bytes are not an HTTP/1.1 request that this server understands."""

    code, status = "invalid_request", 400


class PathNotFound(HoldfastError):
    """Nothing is served at this path; outside of every protocol the answer names the documentation."""

    code, status = "not_found", 404

    def __init__(self, detail: str, hints: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self._hints = dict(hints or {})

    def fields(self) -> Mapping[str, str | int]:
        return self._hints


class MethodNotAllowed(HoldfastError):
    """The path exists, the method does not."""

    code, status = "method_not_allowed", 405


class PermissionMissing(HoldfastError):
    """The caller is known, and may not use this."""

    code, status = "permission_missing", 403


class RequestTimeout(HoldfastError):
    """The client took too long to send its request."""

    code, status = "request_timeout", 408


class BodyTooLarge(HoldfastError):
    """The request body is above this endpoint's limit."""

    code, status = "document_too_large", 413


class HeadersTooLarge(HoldfastError):
    """The request line and headers are above the limit."""

    code, status = "headers_too_large", 431


class TooManyConnections(HoldfastError):
    """The server holds as many connections as it may."""

    code, status = "too_many_connections", 503


class ShutdownDraining(HoldfastError):
    """The server takes no new work because it is about to stop."""

    code, status = "shutdown_draining", 503


class Draining(Exception):
    """The server began to drain while a caller waited; its endpoint says what that means there."""


class NotReady(HoldfastError):
    """The server is up but something it needs is not; the detail says what."""

    code, status = "not_ready", 503


def error_classes(root: type[HoldfastError] = HoldfastError) -> list[type[HoldfastError]]:
    """Every error class imported so far, root first: the docs table is checked against this list."""
    found = [root]
    for child in root.__subclasses__():
        found.extend(error_classes(child))
    return found
