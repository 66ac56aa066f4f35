"""The settings of the fan-out to other islands."""

import asyncio
import random
from collections.abc import Mapping

import pytest

from holdfast.common.ids import new_xid
from holdfast.common.settings import PlaneSettings
from holdfast.txn.cluster.fan_out import IslandFanOut
from holdfast.txn.cluster.peers.port import PeerAnswer, PeerUnreachable
from holdfast.txn.cluster.peers.port import Role as Caller
from holdfast.txn.cluster.registry.records import RmTable
from holdfast.txn.cluster.registry.registry import RegistryChange, RmRegistry
from holdfast.txn.layer.records_pb2 import TxnParticipant, TxnRecord
from tests.service.txn.conftest import Plane

SETTINGS = PlaneSettings.isolated(
    tc_fanout_timeout_s="9s",
    tc_fanout_attempts=5,
    tc_fanout_delay_s_base="1s",
    tc_fanout_delay_s_max="5s",
    tc_fanout_delay_multiplier=3,
)


class AwayPeer:
    """Every node that is called is not there; remembers how long it was waited for."""

    def __init__(self) -> None:
        self.limits_s: list[float | None] = []

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
        self.limits_s.append(timeout_s)
        raise PeerUnreachable("not there")


def longest(low: float, high: float) -> float:
    return high


async def test_calls_limits_and_pauses_are_those_of_the_settings(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses_s: list[float] = []
    sleep = asyncio.sleep

    async def note(delay_s: float) -> None:
        pauses_s.append(delay_s)
        await sleep(0)

    peer = AwayPeer()
    managers = RmRegistry(RmTable(plane.store), peer, list[str], lambda: 0)
    await managers.change(RegistryChange.REGISTER, "far", "http://far:1", is_replica=True)
    fan_out = IslandFanOut(lambda: managers, lambda: peer, SETTINGS)
    member = TxnParticipant(namespace="default", key="a", backend_hash="far")
    monkeypatch.setattr(asyncio, "sleep", note)
    monkeypatch.setattr(random, "uniform", longest)

    delivered = await fan_out.deliver(new_xid(), TxnRecord(state="commit", participants=[member]))

    assert delivered.reached == []
    assert peer.limits_s == [9.0] * 5
    assert pauses_s == [1.0, 3.0, 5.0, 5.0]
