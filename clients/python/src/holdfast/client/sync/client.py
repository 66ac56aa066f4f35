# Generated from aio/client.py by generate_sync.py: change that, then run `make sync-client`.
"""The client: acquires leases, reads what is public, and looks after its sessions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload

from holdfast.client.environment import client_settings
from holdfast.client.errors import ClientClosed, ClientError
from holdfast.client.kv.calls import KvCalls
from holdfast.client.options import SERVER_DEFAULT, ClientOptions
from holdfast.client.query.namespace import FlushMode, IndexFlush, Namespace, NamespaceConfig
from holdfast.client.query.search import Search, SelectorInput
from holdfast.client.queue.calls import QueueCalls
from holdfast.client.queue.consumer import Consumer, Stop
from holdfast.client.session.acquisition import BLOCK_S_DEFAULT, Acquisition
from holdfast.client.session.document import Description, State
from holdfast.client.session.handshake import FAILURE_RETRIES_DEFAULT, Handshake, OnError
from holdfast.client.session.hold import Hold
from holdfast.client.session.lease import TTL_S_DEFAULT, Lease
from holdfast.client.session.reading import Reading
from holdfast.client.session.roster import Roster
from holdfast.client.sync.attachments import PublicAttachments
from holdfast.client.sync.concurrency import Background, pending
from holdfast.client.sync.for_update import run_handler
from holdfast.client.sync.kv.kv import Kv
from holdfast.client.sync.locks.methods import LockMethods
from holdfast.client.sync.query import DocumentQuery, KeyQuery, Pages
from holdfast.client.sync.queue.consumer import run_consumers
from holdfast.client.sync.queue.delivery import Delivery
from holdfast.client.sync.queue.queue import Queue
from holdfast.client.sync.renewer import Renewer
from holdfast.client.sync.session import Session
from holdfast.client.sync.stream import DocumentStream
from holdfast.client.sync.transport import Transport
from holdfast.client.sync.watch import Watch
from holdfast.client.transaction import Participant, Transactions, TxnState, TxnView
from holdfast.client.watch.calls import WatchCalls
from holdfast.client.wire.connection import ServerConnection
from holdfast.client.wire.endpoint import Endpoint
from holdfast.client.wire.flow import Channel
from holdfast.client.wire.retry import RETRIES_DEFAULT
from holdfast.common.ids import uuid7

T = TypeVar("T")


class Client(LockMethods):
    """`with Client("http://127.0.0.1:9341") as client`. Threads may share it.

    Servers are URLs (`http://`, `https://`, `unix:///path`) or `host[:port]`; with several, the next one is asked
    when one is not there. Closing it rolls back the sessions that were not released.
    """

    def __init__(self, *servers: str, options: ClientOptions | None = None) -> None:
        self.options = options or ClientOptions()
        connection = ServerConnection(servers or (SERVER_DEFAULT,), self.options)
        self.endpoints = connection.endpoints
        self._transport = Transport(connection)
        self._channel = Channel(
            connection.endpoints,
            timeout_s=self.options.timeout_s,
            on_shutdown_imminent=self._on_shutdown_imminent,
        )
        self._renewer = Renewer(self._transport, self._channel, self.options)
        self._open_locks(self._transport, self._channel, self.options, self._renewer)
        self.kv = Kv(self._transport, KvCalls(self._channel, self.options))
        self._roster = Roster[Session]()
        self._giving_back = Background()
        self._is_closed = False

    @classmethod
    def from_environment(cls) -> Self:
        """The client that `HOLDFAST_CLIENT_*` (or `LOCKD_CLIENT_*`) describes."""
        settings = client_settings()
        return cls(*settings.servers, options=settings.options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back what is still held, nothing of it committed, and hang up."""
        if self._is_closed:
            return
        self._is_closed = True
        self._giving_back.wait(self.options.close_timeout_s)
        deadline_s = self._channel.monotonic_s() + self.options.close_timeout_s
        for session in self._roster.sessions():
            with suppress(ClientError):  # It expires by itself.
                session.release(rollback=True)
            if self._channel.monotonic_s() > deadline_s:
                break
        self.locks.close()
        for session in self._roster.sessions():
            session.detach()
        self._renewer.close()
        self._transport.close()

    # Leases

    def acquire(
        self,
        key: str = "",
        *,
        ttl_s: float = TTL_S_DEFAULT,
        block_s: float | None = BLOCK_S_DEFAULT,
        owner: str | None = None,
        namespace: str | None = None,
        txn_id: str = "",
        if_not_exists: bool = False,
        retries: int = RETRIES_DEFAULT,
        keepalive: bool = True,
    ) -> Session:
        """Hold a key: `with client.acquire("orders") as session`. Without a key the server invents one.

        Waits up to `block_s` for a key that is held (None: for ever, 0: not at all), then raises LeaseHeld.
        """
        acquisition = Acquisition.of(
            self.options,
            key=key,
            ttl_s=ttl_s,
            block_s=block_s,
            owner=owner,
            namespace=namespace,
            txn_id=txn_id,
            if_not_exists=if_not_exists,
            retries=retries,
        )
        return pending(lambda: self._acquire(acquisition, keepalive=keepalive))

    def _acquire(self, acquisition: Acquisition, *, keepalive: bool) -> Session:
        self._check_open()
        answer = self._transport.run(acquisition.run(self._channel))
        hold = Hold.granted(self._channel, self.options, answer, acquisition.ttl_s)
        return self._session(hold, keepalive=keepalive)

    def attach(self, lease: Lease) -> Session:
        """A session on a lease that was acquired elsewhere: it is neither kept alive nor released by itself."""
        return Session(self._transport, Hold(self._channel, self.options, lease))

    def acquire_for_update(
        self,
        key: str,
        handler: Callable[[Session, State | None], T],
        *,
        ttl_s: float = TTL_S_DEFAULT,
        block_s: float | None = BLOCK_S_DEFAULT,
        owner: str | None = None,
        namespace: str | None = None,
        failure_retries: int = FAILURE_RETRIES_DEFAULT,
        on_error: OnError = "rollback",
    ) -> T:
        """Acquire and read a key, run `handler(session, state)` under the lease, then release; gives its result.

        Acquire and get are tried again while that makes sense; the handler runs once. When it raises, what it
        staged is rolled back, or with `on_error="commit"` published.
        A thread can't be cancelled: a long handler should look at `session.lost`.
        """
        acquisition = Acquisition.of(
            self.options, key=key, ttl_s=ttl_s, block_s=block_s, owner=owner, namespace=namespace, retries=0
        )
        self._check_open()
        handshake = Handshake(self._channel, self.options, acquisition, failure_retries=failure_retries)
        try:
            state = self._transport.run(handshake.run())
        except BaseException:
            if handshake.hold is not None:
                with suppress(ClientError):
                    self._transport.run(handshake.hold.release(rollback=True))
            raise
        assert handshake.hold is not None, "a handshake that succeeds has a lease"
        session = self._session(handshake.hold, keepalive=True)
        handshake.hold.is_in_handler = True
        return run_handler(
            session, state, handler, on_error=on_error, release_retries=max(0, failure_retries)
        )

    def _session(self, hold: Hold, *, keepalive: bool) -> Session:
        try:
            session = Session(
                self._transport,
                hold,
                renewer=self._renewer if keepalive else None,
                on_end=lambda: self._roster.remove(hold),
            )
        except ClientError:  # Nothing can keep it alive, as when there are no more threads.
            with suppress(ClientError):
                self._transport.run(hold.release(rollback=True))
            raise
        hold.on_due = lambda: self._giving_back.start(session.give_back, name="holdfast.give-back")
        self._roster.add(hold, session)
        return session

    def _on_shutdown_imminent(self, endpoint: Endpoint) -> None:
        if self.options.drain_aware:
            self._roster.want_back(endpoint)

    # Public reads

    def get(self, key: str, *, namespace: str | None = None) -> State | None:
        """The last committed document; None if there is none. Needs no lease and waits for none."""
        reading = self._reading(key, namespace)
        return self._transport.run(reading.get(bytes_max=self.options.document_bytes_max))

    def load(self, key: str, default: Any = None, *, namespace: str | None = None) -> Any:
        """The last committed document, decoded, or `default`."""
        state = self.get(key, namespace=namespace)
        return default if state is None else state.json()

    @contextmanager
    def stream(self, key: str, *, namespace: str | None = None) -> Iterator[DocumentStream]:
        """`with client.stream(key) as document`: for documents that should not be in memory."""
        answer = self._transport.run(self._reading(key, namespace).document(bytes_max=None))
        with DocumentStream(answer) as document:
            yield document

    def describe(self, key: str, *, namespace: str | None = None) -> Description:
        """Version, ETag and holder of a key."""
        return self._transport.run(self._reading(key, namespace).describe())

    def attachments(self, key: str, *, namespace: str | None = None) -> PublicAttachments:
        """The committed attachments of a key."""
        reading = self._reading(key, namespace)
        return PublicAttachments(self._transport, lambda: reading, nullcontext)

    # Queues

    def queue(self, name: str, *, namespace: str | None = None) -> Queue:
        """A queue, by its name: `client.queue("orders").enqueue(b"…")`."""
        return Queue(
            self._transport,
            self._renewer,
            QueueCalls(self._channel, self.options, namespace or self.options.namespace, name),
        )

    def start_consumer(self, *consumers: Consumer[Delivery], stop: Stop | None = None) -> None:
        """Run consumers until `stop` is set, or until one fails for good: then all end, with ConsumerFailed.

        A consumer that fails starts again as its restart policy says. One thread each; this one waits.
        """
        self._check_open()
        run_consumers(
            consumers, lambda consumer: self.queue(consumer.queue, namespace=consumer.namespace), stop
        )

    # Watches

    def watch(self, prefix: str = "", *, namespace: str | None = None, after: int | None = None) -> Watch:
        """`with client.watch("orders/") as watch: for event in watch`: documents that are published or go, leases
        that are acquired, released or expire, of the keys that begin with `prefix`; renewals are not told.

        With `after` it goes on behind the revision of an event that was dealt with; without it, it begins now.
        """
        self._check_open()
        calls = WatchCalls(
            self._channel,
            namespace=namespace or self.options.namespace,
            prefix=prefix,
            after=after,
            correlation_id=self._correlation_id,
        )
        return Watch(self._transport, calls)

    # Search

    @overload
    def query(
        self,
        selector: SelectorInput = "",
        *,
        documents: Literal[True],
        namespace: str | None = None,
        limit: int | None = None,
        cursor: str = "",
        all_pages: bool = True,
        fields: Mapping[str, Any] | None = None,
        engine: str = "",
        refresh: str = "",
    ) -> DocumentQuery: ...

    @overload
    def query(
        self,
        selector: SelectorInput = "",
        *,
        documents: Literal[False] = False,
        namespace: str | None = None,
        limit: int | None = None,
        cursor: str = "",
        all_pages: bool = True,
        fields: Mapping[str, Any] | None = None,
        engine: str = "",
        refresh: str = "",
    ) -> KeyQuery: ...

    def query(
        self,
        selector: SelectorInput = "",
        *,
        documents: bool = False,
        namespace: str | None = None,
        limit: int | None = None,
        cursor: str = "",
        all_pages: bool = True,
        fields: Mapping[str, Any] | None = None,
        engine: str = "",
        refresh: str = "",
    ) -> KeyQuery | DocumentQuery:
        """`for key in client.query('/status="open"')`: the keys of all committed documents that match.

        With `documents=True` rows with the documents themselves. The selector is text or its JSON form; an empty
        one matches everything. `limit` is the size of a page; with `all_pages=False` the first one is all there is,
        and `cursor` of the result says where to go on.
        """
        search = Search.of(
            selector,
            namespace=namespace or self.options.namespace,
            documents=documents,
            limit=limit,
            fields=fields,
            engine=engine,
            refresh=refresh,
            correlation_id=self._correlation_id(),
        )
        pages = Pages(self._transport, self._channel, search, cursor=cursor, all_pages=all_pages)
        return DocumentQuery(pages, self.options.document_bytes_max) if documents else KeyQuery(pages)

    def flush_index(self, mode: FlushMode = "async", *, namespace: str | None = None) -> IndexFlush:
        """Bring the index up to date, or ask for it. Queries of holdfast need no flush: they see every commit."""
        return self._transport.run(self._namespace(namespace).flush_index(mode))

    def namespace_config(self, *, namespace: str | None = None) -> NamespaceConfig:
        """How a namespace is searched."""
        return self._transport.run(self._namespace(namespace).config())

    def set_namespace_config(
        self,
        *,
        namespace: str | None = None,
        preferred_engine: str | None = None,
        fallback_engine: str | None = None,
        if_match: str | None = None,
    ) -> NamespaceConfig:
        """Change how a namespace is searched; what is not given stays. `if_match`: only if unchanged."""
        flow = self._namespace(namespace).set_config(
            preferred_engine=preferred_engine, fallback_engine=fallback_engine, if_match=if_match
        )
        return self._transport.run(flow)

    def txn_decide(
        self,
        txn_id: str,
        state: TxnState,
        participants: Sequence[Participant] = (),
        *,
        expires_at_unix: int = 0,
        namespace: str | None = None,
    ) -> str:
        """Record how a transaction ends, or with `pending` that it will; returns what is recorded, which may differ."""
        flow = self._transactions(namespace).decide(txn_id, state, participants, expires_at_unix)
        return self._transport.run(flow)

    def txn_replay(self, txn_id: str) -> str:
        """Have the recorded decision applied again; `pending` if there is none yet and its time is not over."""
        return self._transport.run(self._transactions(None).replay(txn_id))

    def txn_list(self, limit: int = 100) -> list[TxnView]:
        """The transactions under way, those in doubt first, then by age."""
        return self._transport.run(self._transactions(None).list(limit))

    def _transactions(self, namespace: str | None) -> Transactions:
        return Transactions(self._channel, namespace or self.options.namespace, self._correlation_id())

    def _namespace(self, name: str | None) -> Namespace:
        return Namespace(self._channel, name or self.options.namespace, self._correlation_id())

    def _correlation_id(self) -> str:
        return self.options.correlation_id or uuid7()

    def _reading(self, key: str, namespace: str | None) -> Reading:
        headers = {"X-Correlation-Id": self._correlation_id()}
        return Reading(self._channel, namespace or self.options.namespace, key, headers, is_public=True)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("this client is closed")
