# Generated from aio/session.py by generate_sync.py: change that, then run `make sync-client`.
"""A held lease and everything that can be done under it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from holdfast.client.errors import ClientError, LeaseLost
from holdfast.client.queue.message import CONTENT_TYPE_DEFAULT, Enqueued, Outgoing
from holdfast.client.session.document import Description, RemoveResult, State, WriteResult
from holdfast.client.session.hold import Hold, drained
from holdfast.client.session.lease import Lease
from holdfast.client.session.renewal import Renewal
from holdfast.client.sync.attachments import Attachments
from holdfast.client.sync.concurrency import Event, Lock
from holdfast.client.sync.renewer import Renewer
from holdfast.client.sync.stream import DocumentStream
from holdfast.client.sync.transport import Transport
from holdfast.client.wire import request
from holdfast.client.wire.body import SyncSource


class Session:
    """As a context manager it commits at the end of its block, and rolls back when the block raises.

    `lost` is set when the lease is gone, or can't be proved any more; what happens after that is not protected.
    Every write carries the fencing token, so the server refuses a holder that did not notice.
    """

    def __init__(
        self,
        transport: Transport,
        hold: Hold,
        *,
        renewer: Renewer | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.lost = Event()
        self.attachments = Attachments(transport, hold)
        self._transport = transport
        self._hold = hold
        self._renewer = renewer
        self._ending = Lock()
        self._tell_end = on_end
        self._renewal: Renewal | None = None  # Before the hold may end, which may be before `add` returns.
        hold.on_end = self._on_end
        if renewer is not None:
            self._renewal = renewer.add(hold)

    @property
    def lease(self) -> Lease:
        """Who this is to the server; `version` and `etag` follow what was read and written."""
        return self._hold.lease

    @property
    def key(self) -> str:
        return self._hold.lease.key

    @property
    def fencing_token(self) -> int:
        return self._hold.lease.fencing_token

    @property
    def is_ended(self) -> bool:
        """Released or lost."""
        return self._hold.is_ended

    @property
    def lost_because(self) -> LeaseLost | None:
        """Why `lost` is set."""
        return self._hold.lost_because

    def __enter__(self) -> Self:
        self._hold.is_in_block = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.release()
            return
        try:
            self.release(rollback=True)
        except ClientError as problem:
            error.add_note(f"holdfast: the lease was not released and will expire: {problem}")

    # Document

    def get(self) -> State | None:
        """The document as this session sees it, its own staged changes included; None if there is none."""
        with self._hold.in_use():
            return self._transport.run(self._hold.get())

    def load(self, default: Any = None) -> Any:
        """The decoded document, or `default` if there is none."""
        state = self.get()
        return default if state is None else state.json()

    @contextmanager
    def stream(self) -> Iterator[DocumentStream]:
        """`with session.stream() as document`: for documents that should not be in memory."""
        with self._hold.in_use():
            answer = self._transport.run(self._hold.stream())
            with DocumentStream(answer) as document:
                yield document

    def update(
        self,
        document: SyncSource,
        *,
        if_version: int | None = None,
        if_etag: str | None = None,
        cas: bool = True,
        query_hidden: bool | None = None,
        expected_sha256: str | None = None,
        expected_bytes: int | None = None,
    ) -> WriteResult:
        """Stage a document: JSON as bytes, text, file or stream."""
        conditions = self._hold.conditions(
            if_version=if_version,
            if_etag=if_etag,
            cas=cas,
            query_hidden=query_hidden,
            expected_sha256=expected_sha256,
            expected_bytes=expected_bytes,
        )
        with self._hold.in_use():
            return self._transport.run(self._hold.update(document, conditions))

    def save(self, value: Any) -> WriteResult:
        """Stage a value as JSON."""
        return self.update(request.json_bytes(value))

    def mutate(
        self,
        mutations: Sequence[str],
        *,
        if_version: int | None = None,
        if_etag: str | None = None,
        cas: bool = True,
    ) -> WriteResult:
        """Let the server change fields: `["/n++", "/status=done"]`."""
        conditions = self._hold.conditions(if_version=if_version, if_etag=if_etag, cas=cas)
        with self._hold.in_use():
            return self._transport.run(self._hold.mutate(mutations, conditions))

    def remove(
        self, *, if_version: int | None = None, if_etag: str | None = None, cas: bool = True
    ) -> RemoveResult:
        """Stage the removal of the document and all attachments."""
        conditions = self._hold.conditions(if_version=if_version, if_etag=if_etag, cas=cas)
        with self._hold.in_use():
            return self._transport.run(self._hold.remove(conditions))

    def metadata(self, *, query_hidden: bool, if_version: int | None = None, cas: bool = True) -> int:
        """Stage an attribute; gives the staged version."""
        flow = self._hold.metadata(query_hidden=query_hidden, if_version=if_version, cas=cas)
        with self._hold.in_use():
            return self._transport.run(flow)

    # Messages

    def enqueue(
        self,
        queue: str,
        payload: SyncSource = b"",
        *,
        namespace: str | None = None,
        content_type: str = CONTENT_TYPE_DEFAULT,
        attributes: dict[str, Any] | None = None,
        delay_s: float = 0.0,
        visibility_s: float | None = None,
        ttl_s: float | None = None,
        max_attempts: int | None = None,
        priority: int = 0,
        correlation_id: str = "",
    ) -> Enqueued:
        """Stage a message: the commit of this session sends it, a rollback drops it. Delay and TTL count from the commit.

        Without `namespace` the queue is in the one of the key.
        """
        message = Outgoing(
            payload=payload,
            content_type=content_type,
            attributes=attributes or {},
            delay_s=delay_s,
            visibility_s=visibility_s,
            ttl_s=ttl_s,
            max_attempts=max_attempts,
            priority=priority,
        )
        with self._hold.in_use():
            return self._transport.run(
                self._hold.enqueue(queue, message, namespace=namespace, correlation_id=correlation_id)
            )

    # Lease

    def describe(self) -> Description:
        """What any client sees of this key."""
        return self._transport.run(self._hold.reading().describe())

    def keepalive(self, ttl_s: float | None = None) -> int:
        """Count the time to live from now, by default the same as before; gives the expiry in Unix seconds."""
        with self._hold.in_use():
            expires_at_unix = self._transport.run(self._hold.keepalive(ttl_s))
        if self._renewer is not None and self._renewal is not None:
            self._renewer.move(self._renewal)
        return expires_at_unix

    def release(self, *, rollback: bool = False) -> None:
        """End the lease: publish what was staged, or forget it. A second time it does nothing.

        Raises LeaseLost if the lease was lost before, because then nothing was published.
        """
        self.end(rollback=rollback)

    def end(self, *, rollback: bool = False, retries: int = 0) -> None:
        """`release` that waits for another node when this one is passive."""
        with self._ending:
            if self._hold.is_ended:
                if self._hold.lost_because is not None and not rollback:
                    raise self._hold.lost_because
                return
            self._stop_renewal()  # A renewal after the release would look like a loss.
            with self._hold.in_use():
                self._transport.run(self._hold.release(rollback=rollback, retries=retries))
                self._hold.end()
        self._on_end()

    def give_back(self) -> None:
        """What a server that is about to stop asks for: a release that is a loss to code that goes on."""
        try:
            self.end()
        except ClientError as problem:
            self._hold.lose(drained(problem))
            return
        self._hold.lost_because = drained()
        self.lost.set()

    def detach(self) -> Lease:
        """Leave the lease to another process that has its ids: no more keepalives, no release."""
        self._hold.end()
        self._on_end()
        return self._hold.lease

    def _stop_renewal(self) -> None:
        if self._renewer is not None and self._renewal is not None:
            self._renewer.discard(self._renewal)

    def _on_end(self) -> None:
        self._stop_renewal()
        if self._hold.lost_because is not None:
            self.lost.set()
        self._tell_end()
