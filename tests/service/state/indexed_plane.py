"""Leases, state, index and queries over one store, without HTTP."""

import json
from typing import Any

from holdfast.common.clock import FakeClock, SteadyClock
from holdfast.common.telemetry.metrics import Registry
from holdfast.leases.layer.grant import AcquireParams, Claim
from holdfast.leases.layer.service import LeaseService
from holdfast.lql.selector.json import selector_from_json
from holdfast.state.layer.document.service import StateService
from holdfast.state.layer.document.staging import ANYTHING
from holdfast.state.layer.index.builder import IndexBuilder
from holdfast.state.layer.namespace import NamespaceService
from holdfast.state.layer.query.engine import Engine
from holdfast.state.layer.query.request import QueryRequest
from holdfast.state.layer.query.service import Page, QueryService
from holdfast.state.metrics import IndexMetrics
from holdfast.storage.port import Store
from holdfast.txn.layer.coordinator import Coordinator
from holdfast.txn.layer.port import Decision, Member

NAMESPACE = "default"


class IndexedPlane:
    """The services, and the calls that most tests begin with."""

    def __init__(self, store: Store) -> None:
        self.clock = SteadyClock(FakeClock())
        coordinator = Coordinator()
        self.store = store
        self.leases = LeaseService(store, coordinator, self.clock)
        self.state = StateService(store, self.clock)
        self.namespaces = NamespaceService(store)
        self.query = QueryService(store, self.state, self.namespaces, self.clock)
        self.builder = IndexBuilder(store, self.state, IndexMetrics(Registry()))
        coordinator.enlist(self.state)
        coordinator.enlist(self.leases)

    async def configure(self, preferred: str, fallback: str = "scan") -> None:
        await self.namespaces.set(NAMESPACE, preferred=preferred, fallback=fallback, expected_etag="")

    async def turn_on(self) -> None:
        """An index that is complete, and a scan beside it to compare with."""
        await self.builder.prepare()
        await self.configure("index")
        await self.builder.catch_up()

    async def acquire(self, key: str, txn_id: str = "") -> Claim:
        grant = await self.leases.acquire(AcquireParams(Member(NAMESPACE, key), "worker", 30, 0.0, txn_id))
        return Claim(grant.lease_id, grant.fencing_token, grant.txn_id)

    async def release(self, key: str, claim: Claim, decision: Decision = Decision.COMMIT) -> None:
        await self.leases.release(Member(NAMESPACE, key), claim, decision)

    async def stage(self, key: str, claim: Claim, text: bytes, *, is_hidden: bool | None = None) -> None:
        content = await self.state.content_of(Member(NAMESPACE, key), text)
        await self.state.update(Member(NAMESPACE, key), claim, content, ANYTHING, is_hidden)

    async def publish(
        self, key: str, document: Any, decision: Decision = Decision.COMMIT, *, is_hidden: bool | None = None
    ) -> None:
        """A document as a value, or as JSON in bytes."""
        text = document if isinstance(document, bytes) else json.dumps(document).encode()
        claim = await self.acquire(key)
        await self.stage(key, claim, text, is_hidden=is_hidden)
        await self.release(key, claim, decision)

    async def remove(self, key: str) -> None:
        claim = await self.acquire(key)
        await self.state.remove(Member(NAMESPACE, key), claim, ANYTHING)
        await self.release(key, claim)

    async def hide(self, key: str, is_hidden: bool) -> None:
        claim = await self.acquire(key)
        await self.state.hide(Member(NAMESPACE, key), claim, is_hidden, ANYTHING)
        await self.release(key, claim)

    async def page(
        self,
        selector: Any,
        *,
        engine: Engine = Engine.INDEX,
        limit: int = 1000,
        cursor: str = "",
        documents: bool = False,
    ) -> Page:
        parsed = selector_from_json(selector)
        return await self.query.page(QueryRequest(NAMESPACE, parsed, limit, cursor, engine, documents))

    async def keys(self, selector: Any, *, engine: Engine = Engine.INDEX, limit: int = 1000) -> list[str]:
        """The keys of all pages."""
        found: list[str] = []
        cursor = ""
        while True:
            page = await self.page(selector, engine=engine, limit=limit, cursor=cursor)
            found += [match.key for match in page.matches]
            cursor = page.cursor
            if not cursor:
                return found

    async def documents(self, selector: Any, *, engine: Engine = Engine.INDEX) -> list[str]:
        """The keys of a page of documents, as they stream."""
        page = await self.page(selector, engine=engine, documents=True)
        return [key async for key, _ in self.query.documents(page)]

    async def index_entries(self) -> list[bytes]:
        prefix = b"Aindex\0"
        return [record.key for record in await self.store.range(prefix, prefix + b"\xff", limit=2000)]
