"""Headers that come after a body. httpx throws them away, so they are picked up one layer below."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

import h11
import httpx

from holdfast.client.errors import UnexpectedAnswer
from holdfast.client.query.search import CURSOR_HEADER
from holdfast.client.wire.call import Answer

_WAY_DOWN: Final = ("stream", "_stream", "_httpcore_stream", "_stream", "_connection", "_h11_state")
"""From a response to the state machine of its connection; none of these names but the first is promised."""


class Trailers:
    """Listens on a response until its body is read; `headers` then has what came after it."""

    def __init__(self, response: httpx.Response) -> None:
        self.headers: dict[str, str] = {}
        self._machine = _machine_of(response)
        if self._machine is not None:
            self._next_event = self._machine.next_event
            self._machine.next_event = self._listen

    @property
    def can_listen(self) -> bool:
        return self._machine is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The connection goes on to other requests."""
        if self._machine is not None:
            self._machine.__dict__.pop("next_event", None)

    def _listen(self) -> Any:
        event = self._next_event()
        if isinstance(event, h11.EndOfMessage):
            self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        return event


def _machine_of(response: httpx.Response) -> Any:
    found: Any = response
    for name in _WAY_DOWN:
        found = getattr(found, name, None)
    return found if isinstance(found, h11.Connection) else None


def page_headers(answer: Answer, trailers: Trailers) -> Mapping[str, str]:
    """What a page says of itself: some servers say it before the rows, some after them, some twice."""
    announced = answer.headers.get("trailer", "").lower()
    if CURSOR_HEADER in announced and CURSOR_HEADER not in answer.headers and not trailers.can_listen:
        raise UnexpectedAnswer("the cursor comes after the rows, where it can't be read: ask for keys")
    return {**answer.headers, **trailers.headers}
