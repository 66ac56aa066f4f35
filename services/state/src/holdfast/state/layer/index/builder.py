"""The background work of the index: what was turned off is cleared, what was turned on or is out of date is built.

Every step is one commit that also says how far it came, so that a process that dies is followed by one that goes on.
Queries scan until a namespace is complete.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from holdfast.common import failpoint
from holdfast.common.background import background
from holdfast.common.backoff import Backoff
from holdfast.common.logging import get_logger
from holdfast.state.layer.document.service import StateService
from holdfast.state.layer.index.summaries import pending_member
from holdfast.state.layer.index.summarizer import Summarizer
from holdfast.state.layer.index.writer import index_prefix
from holdfast.state.layer.namespace import NamespaceService
from holdfast.state.layer.query.engine import Engine
from holdfast.state.layer.records import DOCUMENTS
from holdfast.state.layer.records_pb2 import IndexState
from holdfast.state.metrics import IndexMetrics
from holdfast.storage.errors import StorageError
from holdfast.storage.hosting.trouble import warn_unless_told
from holdfast.storage.keys import next_key, pack, unpack
from holdfast.storage.port import Demand, Store, Transaction
from holdfast.txn.layer.port import Member

# One step takes some milliseconds, in which no other request is served.
STEP_DOCUMENTS: Final = 32
STEP_WRITES: Final = 512
_NAMESPACES_PER_COMMIT: Final = 500
_END: Final = b"\xff"

_log = get_logger("state.index")


class IndexBuilder:
    """Keeps the indexes of one store in the phase they are wanted in."""

    def __init__(self, store: Store, state: StateService, metrics: IndexMetrics) -> None:
        self._store = store
        self._namespaces = NamespaceService(store)
        self._index = state.index
        self._states = self._index.states
        self._metrics = metrics
        self._summarizer = Summarizer(
            store, self._index.summaries, self._index.terms, state.open_content, metrics
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """What is out of date is marked before anything else happens; the work itself goes on in the background."""
        await self.prepare()
        async with background(self._run(), self._summarizer.run(), name="state.index"):
            yield

    async def prepare(self) -> None:
        """If the entries of this store were made in another way, or it is not known how, all of them are made again."""
        if await self._store.view(self._states.format) == self._index.terms.format:
            return
        namespaces = await self._used_namespaces()
        for start in range(0, len(namespaces), _NAMESPACES_PER_COMMIT):
            await self._renew(namespaces[start : start + _NAMESPACES_PER_COMMIT])

        def done(tx: Transaction) -> None:
            self._states.put_format(tx, self._index.terms.format)

        await self._store.transact(done)

    async def catch_up(self) -> None:
        """Do all the work there is now."""
        await self._build_all()
        await self._summarizer.catch_up()

    async def _build_all(self) -> None:
        after = ""
        while True:
            names, after = await self._store.view(partial(self._states.working, after=after))
            for namespace in names:
                await self._finish_phase(namespace)
            if not after:
                return

    # -- the tasks

    async def _prepare_and_build(self) -> None:
        await self.prepare()
        await self._build_all()

    async def _run(self) -> None:
        backoff, is_failing = Backoff(None), False
        while True:
            try:
                async with self._store.watch(*self._states.bounds(), demand=Demand()) as changes:
                    # Events may have been missed, so what there is to do is read from the store.
                    self._summarizer.look_again()
                    await self._prepare_and_build()
                    backoff, is_failing = Backoff(None), False
                    async for events in changes:
                        pending = [(event, pending_member(event.key)) for event in events]
                        for event, member in pending:
                            if member is not None and event.record is not None:
                                self._summarizer.noticed(member)
                        if any(member is None for _, member in pending):
                            await self._prepare_and_build()
            except StorageError as error:
                if not is_failing:  # One line for an outage, however long it lasts.
                    warn_unless_told(_log, "index.build.failed", error)
                is_failing = True
                await backoff.pause()

    async def _finish_phase(self, namespace: str) -> None:
        self._metrics.working.inc()
        try:
            _log.info("index.build.started", namespace=namespace)
            while await self._step(namespace):
                pass
            _log.info("index.build.finished", namespace=namespace)
        finally:
            self._metrics.working.dec()

    async def _step(self, namespace: str) -> bool:
        """Whether there is more to do."""
        await asyncio.sleep(0)  # A store in memory never waits; others must have their turn.
        state = await self._store.view(lambda view: self._states.get(view, namespace))
        if failpoint.ARMED:
            failpoint.hit("index.step")
        if state.phase == IndexState.CLEARING:
            await self._store.transact(lambda tx: self._clear(tx, namespace))
        elif state.phase == IndexState.BUILDING:
            await self._build(namespace)
        else:
            return False
        return True

    def _clear(self, tx: Transaction, namespace: str) -> None:
        state = self._states.get(tx, namespace)
        if state.phase != IndexState.CLEARING:
            return
        prefix = index_prefix(namespace)
        # In this phase no writer adds entries, so what is read here is all there is.
        records = tx.range(prefix, prefix + _END, limit=STEP_WRITES)
        for record in records:
            tx.delete(record.key)
        if len(records) < STEP_WRITES:
            phase = IndexState.BUILDING if state.is_wanted else IndexState.OFF
            self._states.enter(tx, namespace, phase, is_wanted=state.is_wanted)

    async def _build(self, namespace: str) -> None:
        progress = await self._store.view(lambda view: self._states.progress(view, namespace))
        first, last = DOCUMENTS.bounds(namespace)
        start = next_key(DOCUMENTS.key(namespace, progress.after_key)) if progress.after_key else first
        found = await self._store.range(start, last, limit=STEP_DOCUMENTS, keys_only=True)
        keys = [record.key for record in found]
        count = await self._store.transact(lambda tx: self._add(tx, namespace, progress.after_key, keys))
        self._metrics.built.labels(namespace).inc(count)

    def _add(self, tx: Transaction, namespace: str, after_key: str, keys: list[bytes]) -> int:
        """Index these documents, as many as fit into a step. Those published since the phase began are in already:
        writing them again changes nothing, and no writer has to wait for more of them."""
        state = self._states.get(tx, namespace)
        progress = self._states.progress(tx, namespace)
        if state.phase != IndexState.BUILDING or progress.after_key != after_key:
            return 0  # Another process was faster.
        records = tx.get_many(keys)
        count = write_count = 0
        for key in keys:
            name = str(unpack(key)[2])
            if key in records:
                document = DOCUMENTS.decode(records[key])
                write_count += self._index.add(tx, Member(namespace, name), document)
            count += 1
            progress.after_key = name
            if write_count >= STEP_WRITES:
                break
        if count == len(keys) < STEP_DOCUMENTS:
            self._states.enter(tx, namespace, IndexState.READY, is_wanted=True)
        else:
            progress.document_count += count
            self._states.put_progress(tx, namespace, progress)
        return count

    # -- what is out of date

    async def _renew(self, namespaces: list[str]) -> None:
        def renew(tx: Transaction) -> None:
            for namespace in namespaces:
                config = self._namespaces.read(tx, namespace)
                is_wanted = config.preferred_engine == Engine.INDEX
                self._states.enter(tx, namespace, IndexState.CLEARING, is_wanted=is_wanted)

        await self._store.transact(renew)

    async def _used_namespaces(self) -> list[str]:
        """Every namespace that has documents or entries."""
        found: set[str] = set()
        for table in (DOCUMENTS.name, "index"):
            start, end = pack((table,)), pack((table,)) + _END
            while records := await self._store.range(start, end, limit=1, keys_only=True):
                namespace = str(unpack(records[0].key)[1])
                found.add(namespace)
                start = pack((table, namespace)) + _END
        return sorted(found)
