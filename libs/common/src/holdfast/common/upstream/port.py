"""How one process of the plane calls a service in another: what callers code against and tests fake."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.common.express.message import Header


class AnswerStream(Protocol):
    """The body of an answer that is not collected; whoever got it reads it to its end or closes it."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def __anext__(self) -> bytes: ...

    async def aclose(self) -> None:
        """Let go; the call behind is cancelled when its answer was not read to the end."""
        ...


@dataclass(slots=True)
class RequestStream:
    """A request body that is sent as it comes in, no faster than the other side takes it."""

    chunks: AsyncIterator[bytes]
    size_bytes: int | None = None
    """None when it is not known beforehand: the body then goes out chunked."""


@dataclass(slots=True)
class UpstreamAnswer:
    """What came back. Header names are lower case; those that concern one connection only are left out.

    A small answer whose size was announced is complete in `body`; any other one is in `stream`.
    """

    status: int
    headers: list[Header]
    body: bytes = b""
    stream: AnswerStream | None = None
    size_bytes: int | None = None
    """Of a stream, when it was announced."""
    trailers: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    """Headers behind a chunked body: announced names are there from the start, values when the stream has ended."""


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
