"""What a server may attach to every hot request: admission, metrics, tracing. What is not attached costs nothing."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from holdfast.common.dialect import Dialects
from holdfast.common.express.message import Request
from holdfast.common.express.route import Route
from holdfast.common.metrics import Counter, Histogram, Registry
from holdfast.common.tracing import Tracer
from holdfast.common.wire_errors import ENVELOPE

Admit = Callable[[Route, Request], Awaitable[None] | None]
"""Lets a request in by returning None, delays it by an awaitable, refuses it by raising a HoldfastError."""

Leave = Callable[[Route], None]
"""The other end of `admit`: called once for every request that was given to it, however it ended."""

Identify = Callable[[Route, Request], None]
"""Finds out or looks at the principal of a request; refuses it by raising a HoldfastError."""

Check = Callable[[], None]
"""Whether the process may serve at all now; refuses every request by raising a HoldfastError while it may not."""


class HttpMetrics:
    """Requests by route, method and status, their duration, and how many run right now."""

    __slots__ = ("_children", "_duration", "_requests", "in_flight")

    def __init__(self, registry: Registry) -> None:
        self.in_flight = 0
        self._requests = registry.counter(
            "holdfast.http.requests", "HTTP requests by route and status.", ("route", "method", "status")
        )
        self._duration = registry.histogram(
            "holdfast.http.request.duration", "From a complete request to its answer.", ("route",), unit="ms"
        )
        registry.gauge(
            "holdfast.http.in_flight",
            "Requests of express routes being served.",
            callback=lambda: float(self.in_flight),
        )
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def observe(self, route: str, method: str, status: int, duration_s: float) -> None:
        """Count one answered request; `route` and `method` come from our own routes, never from the client."""
        children = self._children.get((route, method, status))
        if children is None:
            children = self._requests.labels(route, method, str(status)), self._duration.labels(route)
            self._children[route, method, status] = children
        children[0].value += 1
        children[1].observe(duration_s * 1000)


@dataclass(slots=True)
class Hooks:
    """The attachments of one app."""

    check: Check | None = None
    identify: Identify | None = None
    admit: Admit | None = None
    leave: Leave | None = None
    metrics: HttpMetrics | None = None
    tracer: Tracer | None = None
    dialects: Dialects = field(default_factory=lambda: Dialects(ENVELOPE))
    """For errors that are older than the choice of a route."""
    wall_s: Callable[[], float] = time.time
    """What `Date` says: the time by which the ends in the answers are judged."""


def in_turn(first: Identify | None, second: Identify) -> Identify:
    """Both checks, the second when the first let the request pass."""
    if first is None:
        return second

    def identify(route: Route, request: Request) -> None:
        first(route, request)
        second(route, request)

    return identify
