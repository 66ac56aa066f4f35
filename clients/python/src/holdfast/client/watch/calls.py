"""What a watch asks for, and where it goes on when it is opened again."""

from collections.abc import Callable
from typing import Final

from holdfast.client.queue.opening import Opening
from holdfast.client.wire.call import Call
from holdfast.client.wire.flow import Channel
from holdfast.client.wire.retry import RETRIES_DEFAULT

SILENCE_S_MAX: Final = 50.0
"""A server says every 15 seconds that it is there: after more than three times that it is not."""


class WatchCalls:
    """`after` moves on with every message that arrived; None: from now on."""

    def __init__(
        self,
        channel: Channel,
        *,
        namespace: str,
        prefix: str,
        after: int | None,
        correlation_id: Callable[[], str],
    ) -> None:
        self.after = after
        self._channel = channel
        self._namespace = namespace
        self._prefix = prefix
        self._correlation_id = correlation_id

    def open(self, prepare: Callable[[Call], None]) -> Opening:
        """Patient as any call until it is opened for the first time."""

        def call_for() -> Call:
            call = self._call()
            prepare(call)
            return call

        return Opening(self._channel, call_for, retries=RETRIES_DEFAULT)

    def _call(self) -> Call:
        query = {"namespace": self._namespace, "prefix": self._prefix}
        if self.after is not None:
            query["after"] = str(self.after)
        headers = {"Accept": "application/x-ndjson", "X-Correlation-Id": self._correlation_id()}
        call = Call("GET", "/v1/watch", query, headers)
        call.pool = "stream"
        call.is_stream = True
        call.timeout_s = SILENCE_S_MAX
        return call
