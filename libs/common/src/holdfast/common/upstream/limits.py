"""What calls to another process may cost: every buffer, pool and wait of the upstream client has a bound here."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    """Bounds towards one replica."""

    connections_max: int = 8192
    """Calls that wait (acquire, dequeue, subscribe) hold a connection each, so there are many."""
    waiters_max: int = 8192
    """Calls that wait for a connection; one more is refused at once."""
    pool_wait_s: float = 5.0
    idle_max: int = 512
    """Connections that are kept although no call uses them."""
    idle_timeout_s: float = 60.0
    """Less than the servers' own keep-alive time, so that it is this side that closes."""
    connect_timeout_s: float = 3.0
    head_bytes: int = 64 * 1024
    """Status line and headers, trailers, or anything else that is not body, in one go."""
    headers_max: int = 128
    collected_bytes: int = 64 * 1024
    """A larger answer, or one of unknown size, is a stream."""
    buffered_bytes: int = 64 * 1024
    """Above this a stream without a reader is not read from the network either; one read may come on top."""
    attempts_max: int = 4
    retry_pause_s: float = 0.05
    retry_pause_s_max: float = 0.5
    backoff_s: float = 0.1
    """After a failed connection the replica is left alone for so long, doubled up to the maximum."""
    backoff_s_max: float = 2.0
    call_off_s: float = 5.0
    """How long a call that was called off may take to end; then its connection is dropped."""
    probe_interval_s: float = 1.0
    probe_timeout_s: float = 2.0
    dead_peer_s: int = 60
    """How long the other side may acknowledge nothing before the kernel gives the connection up."""


DEFAULT_UPSTREAM_LIMITS = UpstreamLimits()
