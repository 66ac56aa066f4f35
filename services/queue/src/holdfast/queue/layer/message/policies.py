"""The policy of a queue: kept in the store, known to its dispatcher."""

from collections.abc import Callable

from holdfast.queue.layer.dispatch.dispatchers import Dispatchers
from holdfast.queue.layer.errors import InvalidPolicy
from holdfast.queue.layer.message.records import POLICIES
from holdfast.queue.layer.message.types import Policy, QueueAddress
from holdfast.queue.layer.records_pb2 import QueuePolicy
from holdfast.storage.port import Store, Transaction

MAX_ATTEMPTS_MAX = 1_000_000
TTL_S_MAX = 10 * 365 * 24 * 3600
DELIVERIES_PER_S_MAX = 1_000_000.0


class Policies:
    """Read and changed by the operators of the queues."""

    def __init__(self, store: Store, dispatchers: Dispatchers, visibility_s_max: int) -> None:
        self._store = store
        self._dispatchers = dispatchers
        self._visibility_s_max = visibility_s_max

    async def get(self, address: QueueAddress) -> Policy:
        return _view(await POLICIES.fetch(self._store, *address) or QueuePolicy())

    async def set(self, address: QueueAddress, policy: Policy) -> Policy:
        self._check(policy)
        return await self._change(address, lambda _: policy)

    async def pause(self, address: QueueAddress, *, is_paused: bool) -> Policy:
        return await self._change(address, lambda policy: policy._replace(is_paused=is_paused))

    async def _change(self, address: QueueAddress, change: Callable[[Policy], Policy]) -> Policy:
        def write(tx: Transaction) -> Policy:
            known = POLICIES.get(tx, *address) or QueuePolicy()
            changed = change(_view(known))
            record = QueuePolicy(**changed._asdict())
            if changed == Policy():
                POLICIES.delete(tx, *address)
            else:
                POLICIES.put(tx, record, *address)
            tx.after_commit(lambda _: self._dispatchers.set_policy(address, record))
            return changed

        return await self._store.transact(write)

    def _check(self, policy: Policy) -> None:
        bounds: list[tuple[str, float, float]] = [
            ("visibility_s", policy.visibility_s, self._visibility_s_max),
            ("max_attempts", policy.max_attempts, MAX_ATTEMPTS_MAX),
            ("ttl_s", policy.ttl_s, TTL_S_MAX),
            ("deliveries_per_s", policy.deliveries_per_s, DELIVERIES_PER_S_MAX),
        ]
        for name, value, value_max in bounds:
            if not 0 <= value <= value_max:
                raise InvalidPolicy(f"{name} {value} is not within 0…{value_max:g}")


def _view(record: QueuePolicy) -> Policy:
    return Policy(
        record.visibility_s, record.max_attempts, record.ttl_s, record.deliveries_per_s, record.is_paused
    )
