"""One connection that speaks dflockd's protocol.

    reading --a request that is answered--> reading
    reading --`l`, `w` … that waits--> blocked --grant, timeout, shutdown--> reading
    reading, blocked --not all of an answer or of a signal could be written--> held up --all is written--> as before
    any --end of the client, an idle line, a line too long--> ending

There is no task: requests run as their bytes come in, and a grant is written by the release that caused it. Until a blocked request is
answered the next one is not looked at, but the connection goes on reading, so that the end of the client is noticed at once.
A client that only ends its own side gets the answers to what it has asked, unless that waits. Its end is noticed as well while nothing
is read because too much stands behind a blocked request.
"""

import asyncio
import hmac
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Final, cast

from holdfast.common.express.hang_up import FILENO, has_peer_finished
from holdfast.leases.layer.locks.records import Outcome, Pending, Session
from holdfast.leases.layer.locks.service import LockService
from holdfast.leases.protocol.dflockd.arguments import LINE_BYTES_MAX, REQUEST_LINES, Malformed, key_of
from holdfast.leases.protocol.dflockd.commands import ERROR, KEYED, KEYLESS, OK, Answer, granted

if TYPE_CHECKING:
    from holdfast.leases.protocol.dflockd.server import LockServer

PUSHES_MAX: Final = 64
"""Signals that wait for a client that reads slowly."""
AHEAD_BYTES_MAX: Final = 64 << 10
"""Requests that wait for a client that takes no answers; above this nothing more is read."""
BEHIND_BYTES_MAX: Final = 512 << 10
"""Requests that wait for a blocked one. They are read so far because the end of the client stands behind them: where more are sent than
this and the buffers of both kernels, it can't be noticed."""
LOOK_S: Final = 0.25
"""How often it is looked whether a client is there that is not read, where the transport does not tell: below TLS."""
AUTH_PAUSE_S: Final = 0.1
REQUESTS_PER_TURN_MAX: Final = 256
ANSWER_BYTES_ENOUGH: Final = 64 << 10
"""Answered in one go; then other connections have their turn, or the client has to take what is there."""
_AUTH_ERROR: Final = b"error_auth"


class LockConnection(asyncio.Protocol):
    """Made by the listener; `server` has what all connections share."""

    __slots__ = (
        "_ahead",
        "_answer_of",
        "_has_eof",
        "_has_peer_finished",
        "_idle_timer",
        "_is_authenticated",
        "_is_discarding",
        "_is_ending",
        "_is_held_up",
        "_look_timer",
        "_owes_answer",
        "_pending",
        "_pushes",
        "_reading_since_s",
        "_server",
        "_timer",
        "_transport",
        "_write_timer",
        "service",
        "session",
    )

    session: Session

    def __init__(self, server: "LockServer") -> None:
        self.service: LockService = server.service
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._ahead: bytes | bytearray = b""
        self._pending: Pending | None = None
        self._answer_of: Answer = granted
        self._timer: asyncio.Handle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._reading_since_s = 0.0
        self._pushes: deque[bytes] | None = None
        self._is_authenticated = server.secret is None
        self._is_discarding = False
        self._is_ending = False
        self._is_held_up = False
        self._has_eof = False
        self._has_peer_finished = False
        self._look_timer: asyncio.TimerHandle | None = None
        self._owes_answer = False

    # -- the beginning and the end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.session = self.service.begin_session(_address(transport))
        self.session.on_lost = self._close
        if not self._server.admits(self):
            self._is_ending = True
            self._transport.abort()
            return
        # An answer is written before the next request is looked at.
        self._transport.set_write_buffer_limits(1, 0)
        self._reading_since_s = monotonic()
        self._watch_idleness(self._server.options.read_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_ending = True
        self._server.connections.discard(self)
        for timer in (self._timer, self._idle_timer, self._look_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self.session.on_lost = None
        self.service.leave(self)
        self._end_session()

    def eof_received(self) -> bool:
        """A client that ends its side is gone once it is answered: no waiting request of it may be granted."""
        if not self._is_ending and self._owes_more:
            self._has_eof = True
            if self._pending is not None:
                self._pending.hurry()
            return True
        self._leave()
        return False

    def peer_finished(self) -> None:
        """The end of its input is there, behind bytes that are not read yet: the same, and what can be answered is read later."""
        self._has_peer_finished = True
        if not self._is_ending:
            self._wait_for_nothing()

    def _wait_for_nothing(self) -> None:
        if self._pending is None:
            return
        if self._pending.waits:
            self._end()
        else:
            self._pending.hurry()

    @property
    def _has_request(self) -> bool:
        """Whether the next request is here as a whole."""
        at = 0
        for _ in range(REQUEST_LINES):
            at = self._ahead.find(b"\n", at) + 1
            if not at:
                return False
        return True

    @property
    def _owes_more(self) -> bool:
        """Whether there is something to answer that does not wait for others."""
        return self._has_request if self._pending is None else not self._pending.waits

    def shutdown(self) -> None:
        """The server stops: waiters are told so by the service, other clients may go on until they leave."""

    # -- bytes

    def data_received(self, data: bytes) -> None:
        if self._is_ending:
            return
        if self._is_discarding:
            if b"\n" in data:
                self._end_with(ERROR)
            return
        if b"\n" in data:
            self._reading_since_s = monotonic()
        if self._pending is not None or self._is_held_up:
            if not isinstance(self._ahead, bytearray):
                self._ahead = bytearray(self._ahead)
            self._ahead += data
            self._limit_ahead()
            if self._pending is None and self._has_request:
                self._watch_writing()
            return
        if self._ahead:
            data = bytes(self._ahead) + data
        if len(data) <= LINE_BYTES_MAX and b"\r" not in data:
            lines = data.split(b"\n", REQUEST_LINES)
            if len(lines) > REQUEST_LINES and not lines[REQUEST_LINES]:
                self._ahead = b""
                self._work_one(lines[0], lines[1], lines[2])
                return
        self._work(data)

    def pause_writing(self) -> None:
        """The client does not take what is sent: no more requests until it does, and signals are kept, so many."""
        self._is_held_up = True

    def resume_writing(self) -> None:
        self._is_held_up = False
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        if self._owes_answer:
            self._owes_answer = False
            self._reading_since_s = monotonic()
        self._push_kept()
        self._go_on()

    def _watch_writing(self) -> None:
        """There is an answer to write, for which a client may take only so long."""
        self._owes_answer = True
        timeout_s = self._server.options.write_timeout_s
        if timeout_s and self._write_timer is None:
            self._write_timer = self._server.loop.call_later(timeout_s, self._give_up)

    def _give_up(self) -> None:
        self._write_timer = None
        if self._transport is not None:
            self._transport.abort()

    def _limit_ahead(self) -> None:
        limit_bytes = AHEAD_BYTES_MAX if self._pending is None else BEHIND_BYTES_MAX
        transport = self._transport
        if len(self._ahead) > limit_bytes and transport is not None and transport.is_reading():
            transport.pause_reading()
            if self._look_timer is None and transport.get_extra_info(FILENO) is None:
                self._look_timer = self._server.loop.call_later(LOOK_S, self._look_for_end)

    def _look_for_end(self) -> None:
        """That of the TCP connection: what TLS says of it stands behind what is not read."""
        self._look_timer = None
        transport = self._transport
        if transport is None or self._is_ending or transport.is_reading():
            return
        if has_peer_finished(transport):
            self.peer_finished()
        else:
            self._look_timer = self._server.loop.call_later(LOOK_S, self._look_for_end)

    def _go_on(self) -> None:
        if self._is_ending or self._pending is not None:
            return
        if self._is_held_up:
            if self._has_request:
                self._watch_writing()
            return
        transport = self._transport
        if transport is not None and not transport.is_reading():
            transport.resume_reading()
        if self._ahead or self._has_eof:
            self._work(bytes(self._ahead))

    def _work_one(self, command: bytes, key: bytes, argument: bytes) -> None:
        """As `_work`, for the one request that most clients send at a time."""
        answer = self._answer(command, key, argument)
        if answer is not None and self._transport is not None:
            self._transport.write(answer + b"\n")
            if self._is_held_up:
                self._watch_writing()

    def _work(self, data: bytes) -> None:
        """Answer the whole requests, in order, with one write; stop at one that blocks."""
        answers: list[bytes] = []
        at = size_bytes = 0
        has_more = False
        while not has_more:
            first = data.find(b"\n", at)
            second = data.find(b"\n", first + 1) if first >= 0 else -1
            third = data.find(b"\n", second + 1) if second >= 0 else -1
            if third < 0:
                break
            if third - at > LINE_BYTES_MAX and _is_too_long(
                first - at, second - first - 1, third - second - 1
            ):
                break
            answer = self._answer(
                data[at:first].rstrip(b"\r"),
                data[first + 1 : second].rstrip(b"\r"),
                data[second + 1 : third].rstrip(b"\r"),
            )
            at = third + 1
            if answer is None:
                break
            answers.append(answer)
            size_bytes += len(answer)
            has_more = len(answers) >= REQUESTS_PER_TURN_MAX or size_bytes >= ANSWER_BYTES_ENOUGH
        self._send(answers)
        if self._is_ending:
            return
        self._ahead = data[at:]
        self._limit_ahead()
        if self._is_held_up and self._pending is None:
            return
        if has_more:
            self._server.loop.call_soon(self._go_on)
            return
        if self._pending is None:
            self._check_lines()
        if self._has_eof and self._pending is None:
            self._end()
        elif self._has_eof or self._has_peer_finished:
            self._wait_for_nothing()

    def _check_lines(self) -> None:
        """A line may not be too long, whether it has ended yet or not."""
        if len(self._ahead) <= LINE_BYTES_MAX:
            return
        *whole, begun = self._ahead.split(b"\n", REQUEST_LINES)
        if any(len(line) > LINE_BYTES_MAX for line in whole):
            self._end_with(ERROR)
        elif len(begun) > LINE_BYTES_MAX:
            self._ahead = b""
            self._is_discarding = True

    def _answer(self, command: bytes, key: bytes, argument: bytes) -> bytes | None:
        if not self._is_authenticated:
            return self._authenticate(command, argument)
        try:
            known = KEYED.get(command)
            if known is not None:
                return known(self, key_of(key), argument)
            keyless = KEYLESS.get(command)
            return ERROR if keyless is None else keyless(self, key, argument)
        except Malformed:
            return ERROR

    def _authenticate(self, command: bytes, argument: bytes) -> bytes | None:
        secret = self._server.secret
        assert secret is not None, "else every connection is authenticated"
        if command == b"auth" and hmac.compare_digest(argument.strip(), secret):
            self._is_authenticated = True
            return OK
        self._end_with(ERROR)
        return None

    def _send(self, answers: list[bytes]) -> None:
        if answers and self._transport is not None:
            answers.append(b"")
            self._transport.write(b"\n".join(answers))
            if self._is_held_up:
                self._watch_writing()

    # -- a request that waits

    def block(self, pending: Pending, answer_of: Answer) -> bytes | None:
        """No answer yet: it comes by `tell`."""
        self._pending = pending
        self._answer_of = answer_of
        return None

    def tell(self, outcome: Outcome) -> None:
        """Called by the step that decided the request."""
        if self._pending is None or self._is_ending:
            return
        self._pending = None
        self._reading_since_s = monotonic()
        self._send([self._answer_of(outcome)])
        if self._ahead or self._has_eof:
            # Not at once: the release that granted this may itself be one of a chain of grants.
            self._server.loop.call_soon(self._go_on)

    # -- signals

    @property
    def address(self) -> str:
        return self.session.address

    def push(self, channel: bytes, payload: bytes) -> bool:
        """Written beside the answers, also while a request blocks."""
        if self._transport is None or self._is_ending:
            return False
        line = b"sig %b %b\n" % (channel, payload)
        if not self._is_held_up:
            self._transport.write(line)
            return True
        if self._pushes is None:
            self._pushes = deque()
        if len(self._pushes) >= PUSHES_MAX:
            return False
        self._pushes.append(line)
        return True

    def _push_kept(self) -> None:
        while self._pushes and not self._is_held_up and self._transport is not None:
            self._transport.write(self._pushes.popleft())

    # -- time

    def _watch_idleness(self, delay_s: float) -> None:
        self._idle_timer = self._server.loop.call_later(delay_s, self._check_idleness)

    def _check_idleness(self) -> None:
        timeout_s = self._server.options.read_timeout_s
        left_s = timeout_s
        if self._pending is None and not self._owes_answer:
            left_s -= monotonic() - self._reading_since_s
        if left_s > 0:
            self._watch_idleness(left_s)
        else:
            self._end_with(ERROR)

    def _end_with(self, answer: bytes) -> None:
        """The last answer; one that was never authenticated hears only that, after a moment."""
        if self._is_ending:
            return
        self._leave()
        self._send([answer if self._is_authenticated else _AUTH_ERROR])
        if self._is_authenticated:
            self._close()
        else:
            self._timer = self._server.loop.call_later(AUTH_PAUSE_S, self._close)

    def _end(self) -> None:
        self._leave()
        self._close()

    def _leave(self) -> None:
        """Nothing is granted to it any more; what is still to be written to it may take only so long."""
        self._is_ending = True
        self._ahead = b""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._end_session()
        if self._is_held_up:
            self._watch_writing()

    def _end_session(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            self.service.cancel(pending)  # Else the node that decides about it would keep it.
        self.service.end_session(self.session)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _is_too_long(*lines_bytes: int) -> bool:
    return max(lines_bytes) > LINE_BYTES_MAX


def _address(transport: asyncio.BaseTransport) -> str:
    peer = transport.get_extra_info("peername")
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else ""
