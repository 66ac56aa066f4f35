"""How one process of the plane calls a service in another: what callers code against and tests fake."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.common.express.message import Header, parse_header_lines
from holdfast.common.ids import HEADER as CORRELATION_HEADER


class AnswerStream(Protocol):
    """The body of an answer that is not collected; the caller reads it to its end or closes it."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def __anext__(self) -> bytes: ...

    def call_off(self) -> None:
        """Let the service stop; what it has sent before still comes, then the stream ends, mostly in an error."""
        ...

    async def aclose(self) -> None:
        """Let go; the call behind is cancelled when its answer was not read to the end."""
        ...


@dataclass(slots=True)
class RequestStream:
    """A request body that is sent as it comes in, no faster than the other side takes it."""

    chunks: AsyncIterator[bytes]
    size_bytes: int | None = None
    """None when it is not known beforehand: the body then goes out chunked."""


class UpstreamAnswer:
    """What came back. Header names are lower case; the date and what concerns one connection only are left out.

    A small answer whose size was announced is complete in `body`; any other one is in `stream`. `size_bytes` is the
    announced size. `trailers` are headers behind a chunked body: announced names are there from the start, values
    when the stream has ended.
    """

    __slots__ = ("_headers", "body", "correlation_id", "size_bytes", "status", "stream", "trailers")

    def __init__(
        self,
        status: int,
        headers: list[Header] | bytes,
        body: bytes = b"",
        *,
        stream: AnswerStream | None = None,
        size_bytes: int | None = None,
        trailers: dict[bytes, bytes] | None = None,
        correlation_id: bytes | None = None,
    ) -> None:
        self.status = status
        self._headers = headers
        self.body = body
        self.stream = stream
        self.size_bytes = size_bytes
        self.trailers: dict[bytes, bytes] = {} if trailers is None else trailers
        self.correlation_id = correlation_id
        """The id beside plain header lines."""

    @property
    def headers(self) -> list[Header]:
        """All headers in their order; plain lines are parsed on demand."""
        if isinstance(self._headers, bytes):
            self._headers = parse_header_lines(self._headers)
            if self.correlation_id is not None:
                self._headers.append((CORRELATION_HEADER, self.correlation_id))
        return self._headers

    @property
    def header_lines(self) -> bytes | None:
        """The headers but for the correlation id as a process of ours has rendered them, if one has."""
        return self._headers if isinstance(self._headers, bytes) else None


class Upstream(Protocol):
    """A service in another process, behind one or several replicas."""

    async def call(
        self,
        method: str,
        target: str,
        headers: Sequence[Header] = (),
        body: bytes | RequestStream = b"",
        *,
        deadline_s: float | None,
        affinity: bytes = b"",
        is_repeatable: bool = False,
    ) -> UpstreamAnswer:
        """One exchange; raises an error of `upstream.errors`. Cancelling it closes the connection behind it.

        `target` is path and query. `deadline_s` counts from now to the head of the answer and a collected body; None
        waits as long as the connection stands. Calls of the same `affinity` go to the same replica while it is well.
        A repeatable request (b"" or bytes as its body) is sent again when its connection breaks; every other one
        only if not a byte of it was sent.
        """
        ...

    async def problem(self) -> str | None:
        """Why no replica of this service can be used now, for `/readyz`; None when one can."""
        ...
