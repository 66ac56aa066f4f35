"""The coordinator with the services that follow it, over stores of every local kind, on a clock that a test moves."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.common.clock import FakeClock, SteadyClock
from holdfast.common.telemetry.metrics import Registry
from holdfast.leases.layer.grant import AcquireParams, Claim, Grant
from holdfast.leases.layer.service import LeaseService
from holdfast.queue.layer.delivery.transaction_binding import Dependencies
from holdfast.queue.layer.service import QueueService
from holdfast.state.layer.document.service import StateService
from holdfast.state.layer.document.staging import Expectation
from holdfast.storage.disk.store import open_disk
from holdfast.storage.memory import open_memory
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Store
from holdfast.txn.cluster.lead import Lead
from holdfast.txn.cluster.leadership import LocalLeadership
from holdfast.txn.cluster.peers.port import PeerPort
from holdfast.txn.layer.coordinator import Coordinator
from holdfast.txn.layer.decisions import Decisions
from holdfast.txn.layer.port import Decision, Member
from holdfast.txn.layer.sweep import Sweep
from holdfast.txn.metrics import TxnMetrics

HERE = "island-1"
RETENTION_S = 3600.0


class Plane:
    """Everything over one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = FakeClock()
        steady = SteadyClock(self.clock)
        self.registry = Registry()
        metrics = TxnMetrics(self.registry)
        self.coordinator = Coordinator(steady, backend_hash=HERE, retention_s=RETENTION_S, metrics=metrics)
        self.leases = LeaseService(store, self.coordinator, steady)
        self.state = StateService(store, steady)
        self.queue = QueueService(store, steady, Dependencies(self.coordinator, self.leases, self.state))
        for manager in (self.state, self.leases, self.queue):
            self.coordinator.enlist(manager)
        self.decisions = Decisions(store, self.coordinator, steady, self.leases)
        lead = Lead(LocalLeadership(), _no_peers, self.decisions)
        self.sweep = Sweep(store, lead, steady, interval_s=5, metrics=metrics)

    async def staged(self, key: str, txn_id: str, ttl_s: int = 30, text: bytes = b'{"n":1}') -> Grant:
        member = Member("default", key)
        grant = await self.leases.acquire(AcquireParams(member, "worker", ttl_s, 0.0, txn_id))
        content = await self.state.content_of(member, text)
        await self.state.update(member, claim(grant), content, Expectation())
        return grant

    async def release(self, key: str, grant: Grant, decision: Decision = Decision.COMMIT) -> None:
        await self.leases.release(Member("default", key), claim(grant), decision)

    async def document(self, key: str) -> bytes | None:
        view = await self.state.get_public(Member("default", key))
        return None if view.content is None else view.content.inline

    async def version(self, key: str) -> int:
        return (await self.state.get_public(Member("default", key))).version


def _no_peers() -> PeerPort:
    raise AssertionError("there is no other node")


def claim(grant: Grant) -> Claim:
    return Claim(grant.lease_id, grant.fencing_token, grant.txn_id)


@pytest.fixture(params=["mem", "disk"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = open_memory(StoreOptions()) if request.param == "mem" else open_disk(tmp_path, StoreOptions())
    async with opened as store:
        yield store


@pytest.fixture
async def plane(store: Store) -> AsyncIterator[Plane]:
    plane = Plane(store)
    async with plane.queue.running():
        yield plane
