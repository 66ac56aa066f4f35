"""A lease in use: its calls as flows, what they taught about version and ETag, and whether it may end.

A hold is live until it is released or lost, and then ended for good. A server that is about to stop asks for it
back; it goes back when no call runs on it, and not in the middle of a block that has staged something.
"""

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Final

from holdfast.client.errors import (
    ClientClosed,
    ClientError,
    Forbidden,
    InvalidArgument,
    LeaseLost,
    RequestRefused,
    TransportFailed,
    TxnConflict,
    UnexpectedAnswer,
    error_among_many,
)
from holdfast.client.options import ClientOptions
from holdfast.client.queue.calls import QueueCalls
from holdfast.client.queue.message import Enqueued, Outgoing
from holdfast.client.session.document import Attachment, PutResult, RemoveResult, State, WriteResult
from holdfast.client.session.lease import Lease, granted_s
from holdfast.client.session.reading import Reading, state_of
from holdfast.client.wire import request
from holdfast.client.wire.body import AsyncSource, Body
from holdfast.client.wire.call import Answer, Members
from holdfast.client.wire.endpoint import Endpoint
from holdfast.client.wire.flow import Channel, Flow, pause
from holdfast.client.wire.retry import ACQUIRE_BACKOFF, RETRIES_DEFAULT, UPDATE_BACKOFF

_KEEPALIVE_RETRY_S_MAX: Final = 1.0
_FINAL: Final = (Forbidden, RequestRefused, TxnConflict, ClientClosed)


class Hold:
    """The part of a session that both twins share. It does no I/O."""

    def __init__(
        self,
        channel: Channel,
        options: ClientOptions,
        lease: Lease,
        *,
        asked_ttl_s: float = 0.0,
        ttl_s: float = 0.0,
        endpoint: Endpoint | None = None,
        deadline_s: float | None = None,
    ) -> None:
        self.lease = lease
        self.ttl_s = ttl_s
        self.endpoint = endpoint
        self.has_staged = False
        self.is_in_block = False
        """Between the two ends of a `with`: what is staged there belongs together."""
        self.is_in_handler = False
        """`acquire_for_update` gives the lease back itself, when its handler is done."""
        self.is_decided = False
        """Another lease of the transaction was released: this one may be over, but nothing of it is lost."""
        self.lost_because: LeaseLost | None = None
        self.on_end: Callable[[], None] = lambda: None
        self.on_due: Callable[[], None] = lambda: None
        """Called when the lease is to be given back in the background."""
        self.on_decision: Callable[[bool], None] = lambda is_decided: None
        """Called when a release is sent, and again with false if it failed."""
        self._channel = channel
        self._options = options
        self._asked_ttl_s = asked_ttl_s
        self._deadline_s = deadline_s
        self._running = 0
        self._is_ended = False
        self._is_wanted_back = False
        self._is_going_back = False
        self._lock = threading.Lock()

    @classmethod
    def granted(cls, channel: Channel, options: ClientOptions, answer: Answer, asked_ttl_s: float) -> "Hold":
        lease = Lease.granted(answer)
        ttl_s = granted_s(answer, lease.expires_at_unix, asked_ttl_s)
        # An acquire may wait at the server for longer than its lease lasts, and the grant came at the end of that: so
        # half of the time is believed, and the first renewal, which is due at once then, proves it or not.
        deadline_s = max(answer.sent_at_s + ttl_s, channel.monotonic_s() + ttl_s / 2)
        return cls(
            channel,
            options,
            lease,
            asked_ttl_s=asked_ttl_s,
            ttl_s=ttl_s,
            endpoint=answer.endpoint,
            deadline_s=deadline_s,
        )

    # Life

    @property
    def is_ended(self) -> bool:
        return self._is_ended

    def remaining_s(self) -> float | None:
        """How long the lease lasts for certain, by our own clock; None if that is not known."""
        return None if self._deadline_s is None else self._deadline_s - self._channel.monotonic_s()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """A call runs; what it learns about the lease is passed on when it is over."""
        with self._lock:
            if self._is_ended:
                raise self.lost_because or LeaseLost(
                    "lease_required", "this session was released", status=403
                )
            self._running += 1
        try:
            yield
        except LeaseLost as problem:
            self.lose(problem)
            raise
        finally:
            with self._lock:
                self._running -= 1
                is_due = self._is_due()
            if is_due:
                self.on_due()

    def lose(self, because: LeaseLost) -> None:
        """The lease is gone: nothing more goes on under it."""
        if self.end(None if self.is_decided else because):
            self.on_end()

    def want_back(self) -> None:
        """The server is about to stop: give the lease back as soon as nothing goes on under it."""
        with self._lock:
            self._is_wanted_back = True
            is_due = self._is_due()
        if is_due:
            self.on_due()

    def _is_due(self) -> bool:
        """True once: the caller gives it back, and loses it if that fails."""
        is_in_use = self._running > 0 or self.is_in_handler or (self.is_in_block and self.has_staged)
        if not self._is_wanted_back or self._is_going_back or self._is_ended or is_in_use:
            return False
        self._is_going_back = True
        return True

    def end(self, because: LeaseLost | None = None) -> bool:
        """Released, or lost because of this; false if it was over already."""
        with self._lock:
            if self._is_ended:
                return False
            self._is_ended = True
            self.lost_because = because
            return True

    def keepalive_in_s(self, *, after_failure: bool = False) -> float:
        """When to renew: at half time, and after a failure soon again, for as long as the lease lasts."""
        remaining_s = self.remaining_s() or 0.0
        if after_failure:
            return max(0.0, min(remaining_s, self.ttl_s / 20, _KEEPALIVE_RETRY_S_MAX))
        return max(0.0, remaining_s - self.ttl_s / 2)

    def verdict(self, problem: ClientError) -> LeaseLost | None:
        """Why a failed keepalive means that the lease is lost; None if it may be tried again."""
        if isinstance(problem, LeaseLost):
            return problem
        if isinstance(problem, _FINAL):
            return LeaseLost("lease_required", f"the keepalive was refused: {problem}", status=403)
        remaining_s = self.remaining_s()
        if remaining_s is not None and remaining_s <= 0:
            return LeaseLost("lease_expired", f"no keepalive got through in time: {problem}", status=403)
        return None

    # Lease

    def keepalive(self, ttl_s: float | None = None) -> Flow[int]:
        """Moves the expiry, and gives it in Unix seconds."""
        if ttl_s is not None:
            self._asked_ttl_s = ttl_s
        # Asked for anew each time: what a server once cut must not shrink from renewal to renewal.
        asked_s = self._asked_ttl_s
        call = request.keepalive(self.lease, asked_s, timeout_s=self._options.keepalive_timeout_s)
        answer = yield from self._channel.send(call, deadline_s=self._deadline_s)
        members = _success(answer).members()
        self.lease.follow_token(answer)
        return self._follow_renewal(answer, members, asked_s)

    @property
    def asked_ttl_s(self) -> float:
        """What the next renewal asks for."""
        return self._asked_ttl_s

    def follow_batched(self, answer: Answer, members: Members, asked_s: float) -> ClientError | None:
        """What one of many renewals came to; None if the lease is renewed."""
        try:
            if members.number("status") >= 400:
                return error_among_many(members.raw, answer.headers)
            self._follow_renewal(answer, members, asked_s)
        except UnexpectedAnswer as problem:
            return problem
        self.lease.fencing_token = members.number("fencing_token") or self.lease.fencing_token
        return None

    def _follow_renewal(self, answer: Answer, members: Members, asked_s: float) -> int:
        expires_at_unix = members.number("expires_at_unix", is_required=True)
        self.lease.expires_at_unix = expires_at_unix
        self.ttl_s = granted_s(answer, expires_at_unix, asked_s)
        self._deadline_s = answer.sent_at_s + self.ttl_s
        return expires_at_unix

    def release(self, *, rollback: bool, retries: int = 0) -> Flow[None]:
        """Ends the lease. `retries` are for a plane whose active node has just changed."""
        self.on_decision(True)
        try:
            answer = yield from self._send_release(rollback=rollback, retries=retries)
        except BaseException:
            self.on_decision(False)
            raise
        is_at_stake = self.has_staged and not rollback and not self.is_decided
        try:
            members = _success(answer).members()
        except LeaseLost:
            if is_at_stake:
                raise
            return
        if not members.boolean("released"):
            raise UnexpectedAnswer("the server did not release the lease")
        # A release that comes too late is answered like any other, and commits nothing.
        remaining_s = self.remaining_s()
        if is_at_stake and remaining_s is not None and remaining_s <= 0:
            raise LeaseLost(
                "lease_expired", "released when its time was over: what was staged may be gone", status=403
            )

    def _send_release(self, *, rollback: bool, retries: int) -> Flow[Answer]:
        call = request.release(self.lease, rollback=rollback, timeout_s=self._options.close_timeout_s)
        answer = yield from self._channel.send(call)
        for attempt in range(retries):
            if not answer.is_passive:
                break
            yield from pause(ACQUIRE_BACKOFF.delay_s(attempt, self._channel.chance))
            answer = yield from self._channel.send(call)
        if answer.status >= 300 and not isinstance(answer.error(), LeaseLost):
            raise answer.error()
        return answer

    # Document

    def reading(self) -> Reading:
        """Reads with the proof of this lease."""
        lease = self.lease
        return Reading(self._channel, lease.namespace, lease.key, lease.headers(), is_public=False)

    def get(self) -> Flow[State | None]:
        answer = yield from self.reading().document(bytes_max=self._options.document_bytes_max)
        self._follow_get(answer)
        return state_of(answer)

    def stream(self) -> Flow[Answer]:
        """The open answer of a get, or one with status 204."""
        answer = yield from self.reading().document(bytes_max=None)
        self._follow_get(answer)
        return answer

    def _follow_get(self, answer: Answer) -> None:
        self.lease.follow_token(answer)
        self.lease.etag = answer.etag
        if answer.key_version is not None:
            self.lease.version = answer.key_version

    def update(self, source: AsyncSource, conditions: dict[str, str]) -> Flow[WriteResult]:
        """Sent again when no answer came: only the holder may write, so nothing is overwritten."""
        body = Body(source)
        call = request.update(self.lease, body, conditions)
        may_be_a_repeat = False
        for attempt in count():
            is_last = attempt == RETRIES_DEFAULT
            try:
                answer = yield from self._channel.send(call)
            except TransportFailed as failure:
                may_be_a_repeat |= failure.is_sent
                if is_last or not body.can_be_sent:
                    raise
            else:
                if not answer.is_passive or is_last or not body.can_be_sent:
                    if answer.status == 409 and (may_be_a_repeat or answer.may_be_a_repeat):
                        return (yield from self._find_staged(answer, body))
                    return self._follow_write(answer)
            yield from pause(UPDATE_BACKOFF.delay_s(attempt, self._channel.chance))
        raise AssertionError("count() does not end")

    def _find_staged(self, conflict: Answer, body: Body) -> Flow[WriteResult]:
        """A repeated update meets its own first attempt: the staged document tells whether that is so."""
        staged = yield from self.get()
        if body.data is None or staged is None or staged.etag != hashlib.sha256(body.data).hexdigest():
            raise conflict.error()
        self.has_staged = True
        return WriteResult(staged.version, staged.etag, len(body.data), query_hidden=False)

    def enqueue(
        self, queue: str, message: Outgoing, *, namespace: str | None, correlation_id: str
    ) -> Flow[Enqueued]:
        calls = QueueCalls(self._channel, self._options, namespace or self.lease.namespace, queue)
        self.has_staged = True  # Also when no answer comes: the server may have it.
        return (yield from calls.enqueue(message, correlation_id, txn_id=self.lease.txn_id))

    def mutate(self, mutations: Sequence[str], conditions: dict[str, str]) -> Flow[WriteResult]:
        if isinstance(mutations, str):
            raise InvalidArgument("mutations is a list of expressions, not one text")
        answer = yield from self._channel.send(request.mutate(self.lease, mutations, conditions))
        return self._follow_write(answer)

    def _follow_write(self, answer: Answer) -> WriteResult:
        result = WriteResult.read(answer.expect(200))
        self._stage(result.version)
        self.lease.etag = result.etag
        return result

    def remove(self, conditions: dict[str, str]) -> Flow[RemoveResult]:
        answer = yield from self._channel.send(request.remove(self.lease, conditions))
        members = answer.expect(200).members()
        result = RemoveResult(members.boolean("removed"), members.number("new_version"))
        if result.is_removed:
            self._stage(result.version)
        self.lease.etag = ""
        return result

    def metadata(self, *, query_hidden: bool, if_version: int | None, cas: bool) -> Flow[int]:
        """Stages the attribute, and gives the staged version."""
        conditions = self.conditions(if_version=if_version, cas=cas)
        conditions.pop("X-If-State-ETag", None)
        call = request.metadata(self.lease, query_hidden=query_hidden, conditions=conditions)
        answer = yield from self._channel.send(call)
        version = answer.expect(200).members().number("version")
        self._stage(version)
        return version

    def conditions(
        self,
        *,
        if_version: int | None = None,
        if_etag: str | None = None,
        cas: bool = True,
        query_hidden: bool | None = None,
        expected_sha256: str | None = None,
        expected_bytes: int | None = None,
    ) -> dict[str, str]:
        """The headers that a write depends on: what is named, else (with `cas`) what this session has seen last."""
        headers: dict[str, str] = {}
        if cas and if_version is None and if_etag is None:
            if_version = self.lease.version or None
            if_etag = self.lease.etag or None
        if if_version is not None:
            headers["X-If-Version"] = str(if_version)
        if if_etag is not None:
            headers["X-If-State-ETag"] = if_etag
        if query_hidden is not None:
            headers["X-Lockd-Meta-Query-Hidden"] = "true" if query_hidden else "false"
        if expected_sha256 is not None:
            headers["X-Expected-SHA256"] = expected_sha256
        if expected_bytes is not None:
            headers["X-Expected-Bytes"] = str(expected_bytes)
        return headers

    # Attachments

    def put_attachment(
        self,
        name: str,
        source: AsyncSource,
        *,
        content_type: str | None,
        max_bytes: int | None,
        prevent_overwrite: bool,
    ) -> Flow[PutResult]:
        call = request.put_attachment(
            self.lease,
            name,
            source,
            content_type=content_type,
            max_bytes=max_bytes,
            prevent_overwrite=prevent_overwrite,
        )
        answer = yield from self._channel.send(call)
        members = answer.expect(200).members()
        self.lease.follow_token(answer)
        result = PutResult(
            Attachment.from_members(members.inner("attachment")),
            members.number("version"),
            members.boolean("noop"),
        )
        if not result.is_noop:
            self._stage(result.version)
        return result

    def delete_attachment(self, *, name: str, id: str) -> Flow[bool]:
        answer = yield from self._channel.send(request.delete_attachment(self.lease, name=name, id=id))
        members = answer.expect(200).members()
        self.lease.follow_token(answer)
        is_deleted = members.boolean("deleted")
        if is_deleted:
            self._stage(members.number("version"))
        return is_deleted

    def delete_attachments(self) -> Flow[int]:
        answer = yield from self._channel.send(request.delete_attachments(self.lease))
        members = answer.expect(200).members()
        self.lease.follow_token(answer)
        deleted = members.number("deleted")
        if deleted:
            self._stage(members.number("version"))
        return deleted

    def _stage(self, version: int) -> None:
        self.has_staged = True
        if version:
            self.lease.version = version


def _success(answer: Answer) -> Answer:
    """Acquire, keepalive and release may answer with any success."""
    if answer.status < 300:
        return answer
    raise answer.error()


def drained(problem: ClientError | None = None) -> LeaseLost:
    """Why a session ended that its client did not release."""
    detail = "given back because the server is about to stop"
    return LeaseLost("lease_required", f"{detail}: {problem}" if problem else detail, status=403)
