"""What may go wrong between two processes of the plane, as the client in front is told."""

from holdfast.common.errors import HoldfastError


class UpstreamError(HoldfastError):
    """A call to another process of the plane failed."""

    code, status = "upstream_failed", 502


class UpstreamUnavailable(UpstreamError):
    """The service could not be reached: nothing was sent, so the request may be repeated."""

    code, status = "upstream_unavailable", 503


class UpstreamBroken(UpstreamError):
    """The connection to the service broke before its answer was complete: whether it did its work is unknown."""

    code, status = "upstream_broken", 502


class UpstreamMalformed(UpstreamError):
    """The service answered with something that is not a valid HTTP/1.1 answer within the limits."""

    code, status = "upstream_malformed", 502


class UpstreamTimeout(UpstreamError):
    """The service did not answer in time: whether it did its work is unknown."""

    code, status = "upstream_timeout", 504
