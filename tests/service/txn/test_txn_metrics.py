"""The numbers of transactions move with what happens: in one process, on the way to others, and split."""

from collections.abc import Mapping

import httpx
import pytest

from holdfast.common.ids import new_xid, xid_seconds
from holdfast.common.settings import PlaneSettings
from holdfast.common.telemetry.metrics import Registry
from holdfast.gateway.app import create_app
from holdfast.gateway.settings import GatewaySettings
from holdfast.txn.cluster.fan_out import IslandFanOut
from holdfast.txn.cluster.peers.port import PeerAnswer, PeerUnreachable
from holdfast.txn.cluster.peers.port import Role as Caller
from holdfast.txn.cluster.registry.records import RmTable
from holdfast.txn.cluster.registry.registry import RegistryChange, RmRegistry
from holdfast.txn.layer.errors import TxnFanoutFailed
from holdfast.txn.layer.listing import in_doubt
from holdfast.txn.layer.port import Member
from holdfast.txn.layer.records_pb2 import TxnParticipant, TxnRecord
from holdfast.txn.layer.rules import Ask, Participant, State
from holdfast.txn.metrics import TxnMetrics
from tests.infra.gateway import gateway_before, url_of
from tests.infra.split import split_services
from tests.service.txn.conftest import RETENTION_S, Plane
from tests.service.txn.test_decisions import A, ask

FAR = Participant(Member("default", "far"), "island-2")
FANOUT = {"tc_fanout_attempts": 3, "tc_fanout_delay_s_base": 0.001, "tc_fanout_delay_s_max": 0.001}


def shown(registry: Registry) -> list[str]:
    """The lines of transactions, without those at zero and without times."""
    lines = [line for line in registry.render().decode().splitlines() if "_duration_seconds" not in line]
    return [line[13:] for line in lines if line.startswith("holdfast_txn_") and not line.endswith(" 0")]


def timed(registry: Registry) -> list[str]:
    """What took its time, and how often."""
    lines = registry.render().decode().splitlines()
    name = "_duration_seconds_count"
    return [
        line[13:].replace(name, "") for line in lines if line.startswith("holdfast_txn_") and name in line
    ]


async def test_what_takes_its_time_is_timed_by_how_it_ended(plane: Plane) -> None:
    txn_id = new_xid()
    with pytest.raises(TxnFanoutFailed):
        await plane.decisions.decide(txn_id, Ask(State.COMMIT, [FAR]))
    await plane.decisions.decide(new_xid(), ask(State.COMMIT, A))
    await plane.decisions.replay(txn_id)

    assert timed(plane.registry) == [
        'decide{result="txn_fanout_failed"} 1',
        'decide{result="ok"} 1',
        'replay{result="ok"} 1',
    ]


async def test_a_decision_is_counted_once_however_often_it_is_asked_for(plane: Plane) -> None:
    txn_id = new_xid()
    await plane.staged("a", txn_id)

    for _ in range(3):
        await plane.decisions.decide(txn_id, ask(State.COMMIT, A))
        await plane.decisions.replay(txn_id)

    assert shown(plane.registry) == ['decisions_recorded_total{state="commit"} 1']


async def test_the_sweep_tells_what_it_ended_and_what_it_forgot(plane: Plane) -> None:
    await plane.decisions.decide(new_xid(), ask(State.PENDING, A))
    plane.clock.advance(30)
    await plane.sweep.sweep()
    plane.clock.advance(RETENTION_S + 1)

    await plane.sweep.sweep()

    assert shown(plane.registry) == [
        'decisions_recorded_total{state="rollback"} 1',
        "sweep_applied_total 1",
        "sweep_cleanup_deleted_total 1",
        "sweep_pending_expired_total 1",
    ]


async def test_what_has_not_reached_everybody_is_in_doubt_until_it_has(plane: Plane) -> None:
    txn_id = new_xid()
    with pytest.raises(TxnFanoutFailed):
        await plane.decisions.decide(txn_id, Ask(State.COMMIT, [FAR]))
    plane.clock.advance(30)
    await plane.sweep.sweep()
    doubted = shown(plane.registry)
    oldest = await in_doubt(plane.store, xid_seconds(txn_id) + 7)
    plane.clock.advance(RETENTION_S)

    await plane.sweep.sweep()

    assert "in_doubt 1" in doubted
    assert "sweep_failed_total 1" in doubted
    assert oldest == (1, 7)
    assert not [line for line in shown(plane.registry) if line.startswith("in_doubt")]


class Deaf:
    """A `PeerPort` that reaches no peer."""

    async def call(
        self,
        endpoint: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        timeout_s: float,
        role: Caller = Caller.CLIENT,
        headers: Mapping[str, str] | None = None,
    ) -> PeerAnswer:
        raise PeerUnreachable("not there")


async def test_the_way_to_an_island_is_counted_by_attempt_and_by_what_was_wrong(plane: Plane) -> None:
    registry = Registry()
    managers = RmRegistry(RmTable(plane.store), Deaf(), list[str], lambda: 0)
    settings = PlaneSettings.isolated(**FANOUT)
    fan_out = IslandFanOut(lambda: managers, Deaf, settings, metrics=TxnMetrics(registry))
    far = TxnParticipant(namespace="default", key="far", backend_hash="island-2")
    record = TxnRecord(state="commit", participants=[far])

    await fan_out.deliver(new_xid(), record)
    await managers.change(RegistryChange.REGISTER, "island-2", "http://far:1", is_replica=True)
    await fan_out.deliver(new_xid(), record)

    assert shown(registry) == [
        'fanout_attempts_total{target="island",result="failed"} 3',
        'fanout_failed_total{target="island",reason="no_endpoint"} 1',
        'fanout_failed_total{target="island",reason="endpoint_failed"} 1',
        'fanout_retries_total{target="island"} 2',
    ]


async def test_the_plane_in_one_process_shows_them() -> None:
    app = create_app(GatewaySettings.isolated(store="mem://", qrf_disabled=True))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://plane") as client,
    ):
        await client.post("/v1/txn/decide", json={"txn_id": new_xid(), "state": "commit"})
        metrics = (await client.get("/metrics")).text

    assert 'holdfast_txn_decisions_recorded_total{state="commit"} 1' in metrics
    assert "holdfast_txn_in_doubt 0" in metrics
    assert "holdfast_tc_term 0" in metrics


async def test_the_coordinator_in_its_own_process_shows_them(postgres_url: str) -> None:
    async with (
        split_services(postgres_url) as peers,
        gateway_before(**peers) as server,
        httpx.AsyncClient(base_url=url_of(server), timeout=20) as client,
    ):
        txn_id = new_xid()
        body = {"key": "a", "owner": "w", "ttl_seconds": 30, "block_seconds": -1, "txn_id": txn_id}
        (await client.post("/v1/acquire", json=body)).raise_for_status()
        asked = {
            "txn_id": txn_id,
            "participants": [{"namespace": "default", "key": "a"}],
            "state": "rollback",
        }
        (await client.post("/v1/txn/decide", json=asked)).raise_for_status()
        metrics = (await client.get(f"{peers['peer_txn']}/metrics")).text

    assert 'holdfast_txn_decisions_recorded_total{state="rollback"} 1' in metrics
    assert (
        "holdfast_txn_fanout_attempts_total{" not in metrics
    )  # It was applied in the commit that recorded it.
