"""uvicorn's way of one request through ASGI, for old clients and for those that are answered before they have sent all."""

import sys
from collections.abc import Callable
from typing import cast

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class Cycle(RequestResponseCycle):
    """An HTTP/1.0 answer of unknown size ends with its connection; uvicorn would send it chunked.

    The last answer of a connection whose request is still coming in ends in `linger`; uvicorn would close at once.
    """

    linger: Callable[[], None]
    _ends_with_connection = False

    async def send(self, message: ASGISendEvent) -> None:
        if self.scope["http_version"] == "1.0":
            self._prepare(message)
        if self.more_body and not self.keep_alive and _is_last(message):
            self.keep_alive = True  # The client was told in the head already; only uvicorn is not to close.
            self.on_response = self.linger
        await super().send(message)

    def _prepare(self, message: ASGISendEvent) -> None:
        if message["type"] == "http.response.start":
            names = [name.lower() for name, _ in message.get("headers", ())]
            self._ends_with_connection = b"content-length" not in names
            if self._ends_with_connection:
                self.chunked_encoding = False
                self.expected_content_length = sys.maxsize
        elif self._ends_with_connection and not message.get("more_body", False):
            body = cast(bytes, message.get("body", b""))
            self.expected_content_length = len(body)


def _is_last(message: ASGISendEvent) -> bool:
    return message["type"] == "http.response.body" and not message.get("more_body", False)
