"""The way to the coordinator of a cluster from another process of its island: by internal calls."""

from collections.abc import Sequence
from typing import Final

from holdfast.common.upstream.internal_call import call_internal
from holdfast.common.upstream.port import Upstream
from holdfast.txn.layer.port import Decision, Member
from holdfast.txn.layer.rules import State

DECIDE_PATH: Final = "/internal/v1/txn/decide"
ENLIST_PATH: Final = "/internal/v1/txn/enlist"
DEADLINE_S: Final = 30.0


class RemoteLead:
    """The `Led` of a process that serves something else."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    @property
    def is_clustered(self) -> bool:
        return True

    async def end_with_lease(self, txn_id: str, decision: Decision) -> State:
        answer = await self._call(DECIDE_PATH, txn_id, state=decision.value)
        return State(str(answer.get("state")))

    async def enlist(self, txn_id: str, expires_at_ms: int, members: Sequence[Member]) -> None:
        named = [{"namespace": member.namespace, "key": member.key} for member in members]
        await self._call(ENLIST_PATH, txn_id, expires_at_ms=expires_at_ms, members=named)

    async def _call(self, path: str, txn_id: str, **more: object) -> dict[str, object]:
        body: dict[str, object] = {"txn_id": txn_id, **more}
        return await call_internal(
            self._upstream, path, body, deadline_s=DEADLINE_S, affinity=txn_id.encode()
        )
