"""uvicorn's way of one request through ASGI, for clients that do not know chunked answers."""

import sys
from typing import cast

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class Cycle(RequestResponseCycle):
    """An HTTP/1.0 answer of unknown size ends with its connection; uvicorn would send it chunked."""

    _ends_with_connection = False

    async def send(self, message: ASGISendEvent) -> None:
        if self.scope["http_version"] == "1.0":
            self._prepare(message)
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
