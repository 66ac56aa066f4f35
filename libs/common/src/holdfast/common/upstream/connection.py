"""One connection to another process: HTTP/1.1 as a client speaks it, one exchange at a time.

IDLE --begin--> HEAD --small answer of known size--> BODY --last byte--> IDLE    the answer is given as a whole
                HEAD --any other answer--> STREAM --last byte--> IDLE            the answer is given with its head
 any --malformed, cut off, too late, cancelled--> CLOSED                         and the connection with it
"""

import asyncio
import select
import time
from typing import Final, Protocol, cast

import httptools

from holdfast.common.express.hang_up import reset
from holdfast.common.express.message import Header
from holdfast.common.express.undo import CALL_OFF
from holdfast.common.upstream.answer_body import AnswerBody
from holdfast.common.upstream.errors import UpstreamBroken, UpstreamMalformed, UpstreamTimeout
from holdfast.common.upstream.limits import UpstreamLimits
from holdfast.common.upstream.port import RequestStream, UpstreamAnswer
from holdfast.common.upstream.quick_answer import quick_answer

# Plain numbers, not an Enum: they are compared several times per call.
_IDLE: Final = 0
_HEAD: Final = 1
_BODY: Final = 2
_STREAM: Final = 3
_CLOSED: Final = 4

# Headers that speak of this connection, of the framing or of this moment, and end here.
_FRAMING: Final = frozenset(
    {
        b"connection",
        b"content-length",
        b"date",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)


class Keeper(Protocol):
    """Whose connection it is."""

    def release(self, connection: "UpstreamConnection") -> None:
        """The connection is free for the next call."""
        ...

    def forget(self, connection: "UpstreamConnection") -> None:
        """The connection is over."""
        ...


class UpstreamConnection(asyncio.Protocol):
    """Used by the caller that took it from its keeper, until the answer is complete; then it goes back by itself."""

    def __init__(self, keeper: Keeper, limits: UpstreamLimits, peer: str) -> None:
        self._keeper = keeper
        self._limits = limits
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._phase = _IDLE
        # Of the exchange that runs: a stream may still come in when its head was told long ago.
        self._waiter: asyncio.Future[UpstreamAnswer] | None = None
        # An answer that came when its caller was cancelled and had not learnt of it: it may grant something.
        self._late: tuple[asyncio.Future[UpstreamAnswer], UpstreamAnswer] | None = None
        self._sender: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._is_reading_paused = False
        self.idle_since_s = 0.0
        self.deadline_at_s: float | None = None
        self._call_off_until_s: float | None = None
        self._start_exchange(is_head=False)

    def _start_exchange(self, *, is_head: bool) -> None:
        self._is_head = is_head
        self._is_complete = False
        self._is_spoiled = False
        self._has_begun = False
        self._quiet_bytes = 0
        self._start_message()

    def _start_message(self) -> None:
        self._headers: list[Header] = []
        self._trailers: dict[bytes, bytes] = {}
        self._status = 0
        self._size_bytes: int | None = None
        self._is_chunked = False
        self._body = b""
        self._stream: AnswerBody | None = None

    # For the caller.

    @property
    def is_usable(self) -> bool:
        return self._phase == _IDLE and self._transport is not None and not self._transport.is_closing()

    def is_stale(self) -> bool:
        """Whether the peer closed this idle connection, or sent on it, not yet reported by the loop."""
        peer = None if self._transport is None else self._transport.get_extra_info("socket")
        if peer is None:
            return True
        poll = select.poll()
        poll.register(peer.fileno(), select.POLLIN | select.POLLRDHUP)
        return bool(poll.poll(0))

    def begin(
        self, head: bytes, body: bytes | RequestStream, *, is_head: bool, deadline_at_s: float | None
    ) -> "asyncio.Future[UpstreamAnswer]":
        """Send a request; the future is the answer. A caller that stops waiting for it calls `give_up`."""
        assert self._phase == _IDLE and self._transport is not None
        self._phase = _HEAD
        self._start_exchange(is_head=is_head)
        self.deadline_at_s = deadline_at_s
        self._waiter = self._loop.create_future()
        if isinstance(body, RequestStream):
            self._transport.write(head)
            self._sender = self._loop.create_task(self._send(body), name="upstream.send")
            self._sender.add_done_callback(self._on_sent)
        else:
            self._transport.write(head + body)
        return self._waiter

    def give_up(self, waiter: "asyncio.Future[UpstreamAnswer]") -> None:
        """Drop the call of this future. If it is over, the connection may serve another one already: that goes on."""
        self._late = None
        if waiter is self._waiter:
            self.abort()

    def call_off(self, waiter: "asyncio.Future[UpstreamAnswer]") -> "asyncio.Future[UpstreamAnswer] | None":
        """For a caller that stopped waiting: the answer if it comes all the same. None: the call was over before."""
        if waiter.done() and not waiter.cancelled():
            return waiter
        late, self._late = self._late, None
        if late is not None and late[0] is waiter:
            coming: asyncio.Future[UpstreamAnswer] = self._loop.create_future()
            coming.set_result(late[1])
            return coming
        if waiter is not self._waiter or self._phase not in (_HEAD, _BODY):
            return None
        self._waiter = self._loop.create_future()
        self._ask_to_stop()
        return self._waiter

    def _ask_to_stop(self) -> None:
        self._is_spoiled = True  # The connection ends with this exchange.
        self._call_off_until_s = time.monotonic() + self._limits.call_off_s
        self._write(CALL_OFF)

    def abort(self) -> None:
        """Drop the connection, and with it the call behind it."""
        self._fail(UpstreamBroken(f"the call to {self._peer} was given up"))

    def close(self) -> None:
        """End an idle connection in peace."""
        self._phase = _CLOSED
        if self._transport is not None:
            self._transport.close()

    def check_deadline(self, now_s: float) -> None:
        """Called a few times a second."""
        if self._phase in (_HEAD, _BODY) and self.deadline_at_s is not None and now_s >= self.deadline_at_s:
            self._fail(UpstreamTimeout(f"{self._peer} did not answer in time"))
        elif self._call_off_until_s is not None and now_s >= self._call_off_until_s:
            self.abort()

    # The connection.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(self._broken(exc))
        self._keeper.forget(self)

    def eof_received(self) -> bool:
        if self._phase == _STREAM and not self._is_chunked and self._size_bytes is None:
            self._is_spoiled = True  # The end of the connection is the end of such an answer.
            self._complete()
        else:
            self._fail(self._broken(None))
        return False

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def _broken(self, cause: Exception | None) -> UpstreamBroken:
        where = "in the middle of its answer" if self._has_begun else "before it answered"
        return UpstreamBroken(f"{self._peer} closed the connection {where}{f': {cause}' if cause else ''}")

    def _fail(self, error: Exception) -> None:
        """End the exchange, if any, and the connection."""
        if self._phase == _CLOSED:
            return
        self._phase = _CLOSED
        self._stop_sending()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        if self._stream is not None:
            self._stream.end(error)
        if self._transport is not None:
            reset(self._transport)

    # The request goes out.

    async def _send(self, body: RequestStream) -> None:
        left_bytes = body.size_bytes
        async for chunk in body.chunks:
            if not chunk:
                continue
            if left_bytes is not None:
                left_bytes -= len(chunk)
                if left_bytes < 0:
                    break
            self._write_chunk(chunk, is_chunked=body.size_bytes is None)
            if self._drained is not None:
                await self._drained
        if left_bytes:
            raise UpstreamBroken("the body of the request does not have its announced size")
        if body.size_bytes is None:
            self._write(b"0\r\n\r\n")

    def _write_chunk(self, chunk: bytes, *, is_chunked: bool) -> None:
        self._write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if is_chunked else chunk)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _on_sent(self, sender: "asyncio.Task[None]") -> None:
        if self._sender is sender:
            self._sender = None
            error = None if sender.cancelled() else sender.exception()
            if isinstance(error, Exception):
                self._fail(error)  # What the source of the body raised is what its caller is told.

    def _stop_sending(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.cancel()

    # The answer comes in.

    def data_received(self, data: bytes) -> None:
        if self._phase == _IDLE:
            self._fail(UpstreamMalformed(f"{self._peer} spoke without being asked"))
            return
        if self._phase == _CLOSED:
            return
        if not self._has_begun:
            self._has_begun = True
            answer = None if self._is_head else quick_answer(data)
            if answer is not None and len(answer.body) <= self._limits.collected_bytes:
                self._give_back(answer)
                return
        self._quiet_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._is_spoiled = True
            if not self._is_complete:
                cause = error.__context__
                reason = cause if isinstance(cause, UpstreamMalformed) else self._malformed(str(error))
                self._fail(reason)
                return
        if self._is_complete:
            self._complete()
        elif self._quiet_bytes > self._limits.head_bytes:
            self._fail(self._malformed(f"more than {self._limits.head_bytes} bytes of headers"))

    def _malformed(self, reason: str) -> UpstreamMalformed:
        return UpstreamMalformed(f"{self._peer} did not answer with valid HTTP/1.1: {reason}")

    def on_message_begin(self) -> None:
        if self._is_complete:
            raise self._malformed("more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if self._stream is not None:
            if name in self._trailers or len(self._trailers) < self._limits.headers_max:
                self._trailers[name] = value
        elif name in _FRAMING:
            self._note(name, value)
        else:
            self._headers.append((name, value))

    def _note(self, name: bytes, value: bytes) -> None:
        if name == b"content-length":
            self._size_bytes = int(value)  # The parser let only digits pass.
        elif name == b"transfer-encoding":
            self._is_chunked = True
        elif name == b"trailer":
            names = [word.strip().lower() for word in value.split(b",")[: self._limits.headers_max]]
            self._trailers.update((word, b"") for word in names if word)

    def on_headers_complete(self) -> None:
        status = self._status = self._parser.get_status_code()
        if len(self._headers) > self._limits.headers_max:
            raise self._malformed(f"more than {self._limits.headers_max} headers")
        if self._quiet_bytes > self._limits.head_bytes and self._head_bytes() > self._limits.head_bytes:
            raise self._malformed(f"more than {self._limits.head_bytes} bytes of headers")
        if status == 101:
            raise self._malformed("a switch of protocols that was not asked for")
        if status < 200:
            return
        self._quiet_bytes = 0
        if self._is_head:
            # The parser does not know that no body follows; the connection is not used again.
            self._is_spoiled = self._is_complete = True
        elif status in (204, 304) or self._is_collected():
            self._phase = _BODY
        else:
            self._begin_stream()

    def _head_bytes(self) -> int:
        return sum(len(name) + len(value) + 4 for name, value in self._headers)

    def _is_collected(self) -> bool:
        return (
            self._size_bytes is not None
            and not self._is_chunked
            and self._size_bytes <= self._limits.collected_bytes
        )

    def _begin_stream(self) -> None:
        self._phase = _STREAM
        stream = self._stream = AnswerBody(self._resume_reading, self.abort, self._ask_to_stop)
        answer = UpstreamAnswer(
            self._status,
            self._headers,
            stream=stream,
            size_bytes=None if self._is_chunked else self._size_bytes,
            trailers=self._trailers,
        )
        self._tell(self._waiter, answer)

    def on_body(self, body: bytes) -> None:
        self._quiet_bytes = 0
        stream = self._stream
        if stream is None:
            self._body = self._body + body if self._body else body
        else:
            stream.push(body)
            if stream.buffered_bytes > self._limits.buffered_bytes and not self._is_reading_paused:
                self._is_reading_paused = True
                assert self._transport is not None
                self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._is_reading_paused:
            self._is_reading_paused = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def on_message_complete(self) -> None:
        if self._status < 200:
            self._start_message()  # 1xx: the answer itself is still to come.
            return
        self._is_complete = True
        if not self._parser.should_keep_alive():
            self._is_spoiled = True

    def _complete(self) -> None:
        """The answer is whole: give it, and be free again."""
        stream = self._stream
        if stream is None:
            answer = UpstreamAnswer(
                self._status, self._headers, self._body, size_bytes=self._size_bytes, trailers=self._trailers
            )
        else:
            answer = None
            stream.end()
            self._resume_reading()
        self._give_back(answer)

    def _give_back(self, answer: UpstreamAnswer | None) -> None:
        """The connection to its keeper or to its end; the answer to its caller, if it has not got it yet."""
        waiter, self._waiter = self._waiter, None
        if self._sender is not None:
            self._is_spoiled = True  # It was answered before it was sent; the rest must not become a request.
            self._stop_sending()
        self.deadline_at_s = None
        if self._is_spoiled:
            self._phase = _CLOSED
            if self._transport is not None:
                self._transport.close()
        else:
            self._phase = _IDLE
            self._keeper.release(self)
        if answer is not None:
            self._tell(waiter, answer)

    def _tell(self, waiter: "asyncio.Future[UpstreamAnswer] | None", answer: UpstreamAnswer) -> None:
        if waiter is None:
            return
        if not waiter.done():
            waiter.set_result(answer)
        elif waiter.cancelled():
            self._late = waiter, answer
