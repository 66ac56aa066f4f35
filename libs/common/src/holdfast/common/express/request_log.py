"""A line for every request, at debug level: `sys` names the operation, correlation and trace ids come by themselves."""

from functools import lru_cache

from holdfast.common.logging import Logger, get_logger


@lru_cache(maxsize=1024)
def operation_of(route: str) -> str:
    """`queue.dequeue_with_state` for `/v1/queue/dequeueWithState`; `other` for what no route takes."""
    words = route.strip("/").removeprefix("v1/").replace("/", ".") or "other"
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in words)


@lru_cache(maxsize=1024)
def _logger_of(route: str) -> Logger:
    return get_logger(f"api.http.router.{operation_of(route)}")


def log_request(route: str, method: str, path: str, status: int, duration_s: float) -> None:
    """For callers that have asked `is_debug_on`."""
    _logger_of(route).debug(
        "http.request.done", method=method, path=path, status=status, duration_ms=round(duration_s * 1000, 3)
    )
