"""The settings of the fan-out, on the way to a service and on the way to another island."""

import asyncio
import random
from collections.abc import Mapping

import pytest

from holdfast.common.ids import new_xid
from holdfast.common.role import Role
from holdfast.common.settings import PlaneSettings
from holdfast.common.upstream.errors import UpstreamUnavailable
from holdfast.common.upstream.port import RequestStream, UpstreamAnswer
from holdfast.storage.layers_pb2 import TxnParticipant, TxnRecord
from holdfast.txn.courier import Courier, ServiceCourier
from holdfast.txn.islands import IslandCourier
from holdfast.txn.rm_registry import Change, RmRegistry
from holdfast.txn.rm_registry_records import RmTable
from holdfast.txn.tc_peers import PeerAnswer, PeerUnreachable
from holdfast.txn.tc_peers import Role as Caller
from tests.service.txn.conftest import HERE, Plane

SETTINGS = PlaneSettings.isolated(
    tc_fanout_timeout_s="9s",
    tc_fanout_attempts=5,
    tc_fanout_delay_s_base="1s",
    tc_fanout_delay_s_max="5s",
    tc_fanout_delay_multiplier=3,
)


class Away:
    """Whatever is called is not there; remembers how long it was waited for."""

    def __init__(self) -> None:
        self.limits_s: list[float | None] = []

    async def problem(self) -> str | None:
        return None


class AwayService(Away):
    async def call(
        self,
        method: str,
        target: str,
        headers: object = (),
        body: bytes | RequestStream = b"",
        *,
        deadline_s: float | None,
        affinity: bytes = b"",
        is_repeatable: bool = False,
    ) -> UpstreamAnswer:
        self.limits_s.append(deadline_s)
        raise UpstreamUnavailable("not there")


class AwayPeer(Away):
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


@pytest.mark.parametrize("way", ["service", "island"])
async def test_calls_limits_and_pauses_are_those_of_the_settings(
    way: str, plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses_s: list[float] = []
    sleep = asyncio.sleep

    async def note(delay_s: float) -> None:
        pauses_s.append(delay_s)
        await sleep(0)

    service, peer = AwayService(), AwayPeer()
    managers = RmRegistry(RmTable(plane.store), peer, list[str], lambda: 0)
    await managers.change(Change.REGISTER, "far", "http://far:1", is_replica=True)
    courier: Courier = (
        ServiceCourier(dict.fromkeys((Role.STATE, Role.LEASES, Role.QUEUE), service), SETTINGS, HERE)
        if way == "service"
        else IslandCourier(lambda: managers, lambda: peer, SETTINGS)
    )
    member = TxnParticipant(namespace="default", key="a", backend_hash=HERE if way == "service" else "far")
    monkeypatch.setattr(asyncio, "sleep", note)
    monkeypatch.setattr(random, "uniform", longest)

    brought = await courier.bring(new_xid(), TxnRecord(state="commit", participants=[member]))

    assert brought.reached == []
    assert (service if way == "service" else peer).limits_s == [9.0] * 5
    assert pauses_s == [1.0, 3.0, 5.0, 5.0]
