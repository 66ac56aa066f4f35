"""How a decision reaches other islands: each has resource managers that the registry knows, and any of them will do."""

import asyncio
import random
from collections.abc import Callable, Sequence

from holdfast.common.clock import unix_s
from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.common.settings import PlaneSettings
from holdfast.common.telemetry.metrics import Registry
from holdfast.txn.cluster.peers.port import PeerAnswer, PeerPort, PeerUnreachable
from holdfast.txn.cluster.registry.registry import RmRegistry
from holdfast.txn.layer.fan_out import Delivered
from holdfast.txn.layer.records_pb2 import TxnParticipant, TxnRecord
from holdfast.txn.metrics import ISLAND, LOOKUP_FAILED, NO_ENDPOINT, TxnMetrics

_log = get_logger("tc.fanout")


class IslandFanOut:
    """The `FanOut` to other stores; registry and peers are there while this node's own store is open."""

    def __init__(
        self,
        registry: Callable[[], RmRegistry],
        peers: Callable[[], PeerPort],
        settings: PlaneSettings,
        *,
        metrics: TxnMetrics | None = None,
    ) -> None:
        self._metrics = metrics or TxnMetrics(Registry())
        self._registry = registry
        self._peers = peers
        self._timeout_s = settings.tc_fanout_timeout_s
        self._attempts = settings.tc_fanout_attempts
        self._delay_s_base = settings.tc_fanout_delay_s_base
        self._delay_s_max = settings.tc_fanout_delay_s_max
        self._delay_multiplier = settings.tc_fanout_delay_multiplier

    async def deliver(self, txn_id: str, record: TxnRecord) -> Delivered:
        groups: dict[str, list[TxnParticipant]] = {}
        for one in record.participants:
            if not one.is_applied:
                groups.setdefault(one.backend_hash, []).append(one)
        with self._metrics.fanout.observed():
            problems = await asyncio.gather(
                *(self._deliver(txn_id, record, island, group) for island, group in groups.items())
            )
        reached = [island for island, problem in zip(groups, problems, strict=True) if not problem]
        return Delivered(reached, [problem for problem in problems if problem])

    async def _deliver(
        self, txn_id: str, record: TxnRecord, island: str, group: Sequence[TxnParticipant]
    ) -> str:
        """What is wrong with every endpoint of an island; empty if one of them has applied the decision."""
        try:
            endpoints = await self._registry().endpoints(island)
        except HoldfastError as error:
            self._metrics.gave_up(ISLAND, LOOKUP_FAILED)
            return f"({island}): {error.detail}"
        if not endpoints:
            self._metrics.gave_up(ISLAND, NO_ENDPOINT)
            return f"({island}): no endpoint"
        body: dict[str, object] = {
            "txn_id": txn_id,
            "state": record.state,
            "participants": [
                {"namespace": one.namespace, "key": one.key, "backend_hash": island} for one in group
            ],
            "expires_at_unix": unix_s(record.expires_at_ms),
            "tc_term": record.term,
            "target_backend_hash": island,
        }
        problems: list[str] = []
        for endpoint in endpoints:
            problem = await self._call(endpoint, f"/v1/txn/{record.state}", body)
            if not problem:
                return ""
            problems.append(f"{endpoint} ({island}): {problem}")
        self._metrics.gave_up(ISLAND)
        return ", ".join(problems)

    async def _call(self, endpoint: str, path: str, body: dict[str, object]) -> str:
        pause_s = self._delay_s_base
        problem = ""
        for attempt in range(self._attempts):
            if attempt:
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(self._delay_s_max, pause_s * self._delay_multiplier)
            try:
                answer = await self._peers().call(endpoint, path, body, timeout_s=self._timeout_s)
            except PeerUnreachable as error:
                self._metrics.attempted(ISLAND, is_retry=attempt > 0, is_ok=False)
                problem = str(error)
                continue
            problem = _refusal(answer, endpoint, body)
            self._metrics.attempted(ISLAND, is_retry=attempt > 0, is_ok=not problem)
            if answer.status < 500:
                break  # It will say the same again.
        return problem


def _refusal(answer: PeerAnswer, endpoint: str, body: dict[str, object]) -> str:
    code = answer.text("error")
    if answer.is_ok and answer.text("state") == body["state"]:
        return ""
    if answer.is_ok or code == "txn_conflict":
        # Two decisions on one transaction: nothing can be done about it here, so it has to be seen in the log.
        _log.error(
            "txn.fanout.conflict",
            endpoint=endpoint,
            txn_id=body["txn_id"],
            state=body["state"],
            recorded=answer.text("state") or "the other one",
        )
        return ""
    return code or f"answered {answer.status}"
