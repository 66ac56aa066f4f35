"""Metrics of an operation of a service: how often it ended how in which namespace, and how long it took."""

from time import perf_counter
from types import TracebackType

from holdfast.common.errors import HoldfastError
from holdfast.common.metrics import Registry

OK = "ok"
FAILED = "failed"


class OperationMetrics:
    """`holdfast.lease.acquire` counts calls by namespace and result, `….duration_ms` times them."""

    __slots__ = ("_calls", "_duration")

    def __init__(self, registry: Registry, name: str, help_text: str) -> None:
        self._calls = registry.counter(name, help_text, ("namespace", "result"))
        self._duration = registry.histogram(f"{name}.duration_ms", f"{help_text} Time.", unit="ms")

    def observed(self, namespace: str) -> "Observation":
        """A block that is one call."""
        return Observation(self, namespace)

    def count(self, namespace: str, result: str, duration_s: float) -> None:
        self._calls.labels(namespace, result).value += 1
        self._duration.labels().observe(duration_s * 1000)


class Timing:
    """`holdfast.txn.replay.duration_ms`: how long something of no namespace took, by how it ended."""

    __slots__ = ("_duration",)

    def __init__(self, registry: Registry, name: str, help_text: str) -> None:
        self._duration = registry.histogram(f"{name}.duration_ms", help_text, ("result",), unit="ms")

    def observed(self) -> "Observation":
        """A block that is timed."""
        return Observation(self, "")

    def count(self, namespace: str, result: str, duration_s: float) -> None:
        self._duration.labels(result).observe(duration_s * 1000)


class Observation:
    """One call: its result is `ok`, or the code of the error that it ends with."""

    __slots__ = ("_metrics", "_namespace", "_started_s")

    def __init__(self, metrics: OperationMetrics | Timing, namespace: str) -> None:
        self._metrics = metrics
        self._namespace = namespace

    def __enter__(self) -> None:
        self._started_s = perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        result = OK
        if isinstance(error, HoldfastError):
            result = error.code
        elif error is not None:
            result = FAILED  # Also a client that hung up: nobody was told anything.
        self._metrics.count(self._namespace, result, perf_counter() - self._started_s)
