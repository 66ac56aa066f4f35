"""An answer that arrives between the cancellation of its caller and the moment the caller learns of it."""

import asyncio
from typing import Any, cast

import pytest

from holdfast.common.upstream.connection import UpstreamConnection
from holdfast.common.upstream.limits import DEFAULT_UPSTREAM_LIMITS
from holdfast.common.upstream.port import UpstreamAnswer

WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nlease"
STREAMED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nlease\r\n"


class Keeper:
    """Where connections go when they are free."""

    def release(self, connection: UpstreamConnection) -> None:
        return

    def forget(self, connection: UpstreamConnection) -> None:
        return


class SilentTransport:
    """Takes what is written and never fails."""

    def write(self, data: bytes) -> None:
        return

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> None:
        return None

    def close(self) -> None:
        return

    abort = close


@pytest.mark.parametrize("answer", [WHOLE, STREAMED], ids=["whole", "streamed"])
async def test_an_answer_is_kept_for_a_caller_that_was_cancelled_and_does_not_know_yet(answer: bytes) -> None:
    connection = UpstreamConnection(Keeper(), DEFAULT_UPSTREAM_LIMITS, "peer")
    connection.connection_made(cast(Any, SilentTransport()))
    waiter = connection.begin(b"POST / HTTP/1.1\r\n\r\n", b"", is_head=False, deadline_at_s=None)

    waiter.cancel()  # As the cancellation of its task does; the task itself runs in the next turn of the loop.
    connection.data_received(answer)
    late = connection.call_off(waiter)

    assert late is not None
    assert isinstance(late.result(), UpstreamAnswer)
    assert late.result().status == 200


async def test_an_answer_that_its_caller_has_is_not_kept_copy_for_caller_one() -> None:
    connection = UpstreamConnection(Keeper(), DEFAULT_UPSTREAM_LIMITS, "peer")
    connection.connection_made(cast(Any, SilentTransport()))
    first = connection.begin(b"POST / HTTP/1.1\r\n\r\n", b"", is_head=False, deadline_at_s=None)
    connection.data_received(WHOLE)
    second = connection.begin(b"POST / HTTP/1.1\r\n\r\n", b"", is_head=False, deadline_at_s=None)
    second.cancel()

    late = connection.call_off(second)

    assert first.result().body == b"lease"
    assert late is not None
    assert not late.done()
    late.cancel()
    await asyncio.sleep(0)
