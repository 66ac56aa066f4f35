"""What one HTTP connection may cost: every buffer and every wait of the server has a bound here."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a listener; the defaults suit a service behind nothing but its own clients."""

    inline_body_bytes: int = 64 * 1024
    """Above this a body leaves the express lane and streams through ASGI."""
    head_bytes: int = 64 * 1024
    """Request line and headers; checked once per slice, so up to one slice more may pass."""
    headers_max: int = 128
    connections_max: int = 10_000
    head_timeout_s: float = 15.0
    """From the first byte of a request to the end of its headers."""
    body_timeout_s: float = 30.0
    """For a whole inline body, or between two pieces of a streamed one."""
    keep_alive_timeout_s: float = 120.0
    write_timeout_s: float = 60.0
    """How long a client may take nothing of an answer that waits for it."""
    stream_write_timeout_s: float = 1800.0
    """The same for a stream: a consumer reads on when its message is done, which may take as long as a lease."""
    linger_s: float = 2.0
    """How long input is still read and dropped after a refusal, so that the client gets to see the answer."""
    half_close_grace_s: float = 5.0
    """How long a request goes on after its client closed the sending side only."""
    idle_close_s: float = 0.5
    """At shutdown an idle connection stays this long, so that a request already on its way is answered."""


DEFAULT_LIMITS = Limits()
