"""How a decision reaches those who are not in this process: the services of this island, when they run on their own.

commit     state and queue at once, then leases: nobody gets a lease before what it guards is published
rollback   state, then leases, then queue: a message that is back finds the lease on its state free
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from holdfast.common import failpoint
from holdfast.common.errors import HoldfastError
from holdfast.common.logging import get_logger
from holdfast.common.metrics import Registry
from holdfast.common.role import Role
from holdfast.common.settings import PlaneSettings
from holdfast.common.upstream.port import Upstream
from holdfast.storage.internal_call import call_internal
from holdfast.storage.layers_pb2 import TxnRecord
from holdfast.storage.lifetime import message_place
from holdfast.storage.remote_decision import member_bodies
from holdfast.storage.resource import Decision, Member
from holdfast.storage.resource_routes import APPLY_PATH, RM_KEEP_PATH
from holdfast.txn import rules
from holdfast.txn.errors import TxnFanoutFailed
from holdfast.txn.metrics import TxnMetrics
from holdfast.txn.watchdog import watched

ROUNDS_MAX = 8  # So often may a holder stage more between the round to state and the one to leases.

_log = get_logger("txn.courier")


class Brought(NamedTuple):
    """The islands that a decision has reached, and what was wrong with the others."""

    reached: list[str]
    problems: list[str]


class Courier(Protocol):
    """Brings what is recorded to participants that this process cannot reach by itself."""

    async def bring(self, txn_id: str, record: TxnRecord) -> Brought:
        """One round to everybody whom the decision has not reached; never raises for one that fails."""
        ...

    async def apply_single(self, txn_id: str, decision: Decision, members: Sequence[Member]) -> None:
        """For a lease that is no part of a transaction of several: the caller ends the lease itself."""
        ...

    async def keep(self, txn_id: str, expires_at_ms: int, members: Sequence[Member]) -> int:
        """Let these live until then at least; returns when the last of them ends."""
        ...


class NoCourier:
    """All in one process: what is not here is nowhere."""

    async def bring(self, txn_id: str, record: TxnRecord) -> Brought:
        missing = sorted({one.backend_hash for one in record.participants if not one.is_applied})
        return Brought([], [f"({one}): no endpoint" for one in missing])

    async def apply_single(self, txn_id: str, decision: Decision, members: Sequence[Member]) -> None:
        raise AssertionError("there is no other process")

    async def keep(self, txn_id: str, expires_at_ms: int, members: Sequence[Member]) -> int:
        return expires_at_ms


class ServiceCourier:
    """The services of this island, each behind its `Upstream`; other islands are another courier's."""

    def __init__(
        self,
        services: Mapping[Role, Upstream],
        settings: PlaneSettings,
        backend_hash: str,
        islands: Courier | None = None,
        *,
        metrics: TxnMetrics | None = None,
    ) -> None:
        self._metrics = metrics or TxnMetrics(Registry())
        self._services = services
        self._backend_hash = backend_hash
        self._islands: Courier = islands or NoCourier()
        self._timeout_s = settings.tc_fanout_timeout_s
        self._attempts = settings.tc_fanout_attempts
        self._delay_s_base = settings.tc_fanout_delay_s_base
        self._delay_s_max = settings.tc_fanout_delay_s_max
        self._delay_multiplier = settings.tc_fanout_delay_multiplier

    async def bring(self, txn_id: str, record: TxnRecord) -> Brought:
        decision = rules.state_of(record).decision
        assert decision is not None, "only a decision is brought"
        here = rules.local_members(record, self._backend_hash)
        reached: list[str] = []
        problems: list[str] = []
        if here:
            try:
                with watched(self._metrics.apply, "apply", txn_id):
                    await self._apply(txn_id, decision, here)
                reached.append(self._backend_hash)
            except HoldfastError as error:
                _log.warn("txn.apply.failed", txn_id=txn_id, reason=error.detail)
                problems.append(f"({self._backend_hash}): {error.detail}")
        far = TxnRecord(state=record.state, term=record.term, expires_at_ms=record.expires_at_ms)
        far.participants.extend(
            one for one in record.participants if one.backend_hash not in ("", self._backend_hash)
        )
        if not rules.is_applied(far):
            brought = await self._islands.bring(txn_id, far)
            reached += brought.reached
            problems += brought.problems
        return Brought(reached, problems)

    async def apply_single(self, txn_id: str, decision: Decision, members: Sequence[Member]) -> None:
        await self._call(Role.STATE, txn_id, decision, members)

    async def keep(self, txn_id: str, expires_at_ms: int, members: Sequence[Member]) -> int:
        messages, keys = _divided(members)
        body: dict[str, object] = {"txn_id": txn_id, "expires_at_ms": expires_at_ms}
        last_ms = expires_at_ms
        for role, own in ((Role.QUEUE, messages), (Role.LEASES, keys)):
            if own:
                asked = {**body, "members": member_bodies(own)}
                told = await self._attempt(role, RM_KEEP_PATH, asked, txn_id)
                last_ms = max(last_ms, int(told.get("expires_at_ms", 0)))
        return last_ms

    async def _apply(self, txn_id: str, decision: Decision, members: Sequence[Member]) -> None:
        messages, keys = _divided(members)
        is_commit = decision is Decision.COMMIT
        for _ in range(ROUNDS_MAX):
            if failpoint.ARMED:
                failpoint.hit("txn.apply.begin")
            first = [(Role.STATE, keys), (Role.QUEUE, messages if is_commit else [])]
            calls = [self._call(role, txn_id, decision, own) for role, own in first if own]
            for result in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result
            if failpoint.ARMED:
                failpoint.hit("txn.apply.half")
            if not keys or await self._call(Role.LEASES, txn_id, decision, keys):
                break
        else:
            raise TxnFanoutFailed("the holder goes on staging; the decision is tried again")
        if messages and not is_commit:
            await self._call(Role.QUEUE, txn_id, decision, messages)

    async def _call(self, role: Role, txn_id: str, decision: Decision, members: Sequence[Member]) -> bool:
        body: dict[str, object] = {
            "txn_id": txn_id,
            "decision": decision.value,
            "members": member_bodies(members),
        }
        return bool((await self._attempt(role, APPLY_PATH, body, txn_id)).get("done"))

    async def _attempt(self, role: Role, path: str, body: dict[str, object], txn_id: str) -> dict[str, Any]:
        """A few times, with growing pauses; the sweep goes on where this ends."""
        pause_s = self._delay_s_base
        for attempt in range(1, self._attempts + 1):
            try:
                answer = await call_internal(
                    self._services[role],
                    path,
                    body,
                    deadline_s=self._timeout_s,
                    affinity=txn_id.encode(),
                )
            except HoldfastError:
                self._metrics.attempted(role, is_retry=attempt > 1, is_ok=False)
                if attempt == self._attempts:
                    self._metrics.gave_up(role)
                    raise
            else:
                self._metrics.attempted(role, is_retry=attempt > 1, is_ok=True)
                return answer
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(self._delay_s_max, pause_s * self._delay_multiplier)
        raise AssertionError("the last attempt returns or raises")


def _divided(members: Sequence[Member]) -> tuple[list[Member], list[Member]]:
    """Messages, and keys."""
    messages = [member for member in members if message_place(member)]
    return messages, [member for member in members if not message_place(member)]
