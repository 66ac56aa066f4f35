"""The key space of etcd's API: keys in their order, with revisions."""

from collections.abc import Callable, Sequence

from holdfast.client.aio.kv.leases import KvLeases
from holdfast.client.aio.kv.watch import KvWatch
from holdfast.client.aio.transport import Transport
from holdfast.client.kv.calls import KvCalls
from holdfast.client.kv.fields import Octets
from holdfast.client.kv.operation import (
    Compare,
    DeleteOp,
    GetOp,
    KvOp,
    Order,
    PutOp,
    SortTarget,
    TxnOp,
)
from holdfast.client.kv.view import KvDeleteResult, KvGetResult, KvPutResult, KvTxnResult
from holdfast.client.kv.watching import Watching


class Kv:
    """`client.kv`: keys and values are bytes, text stands for its UTF-8. Not the documents of `client.load`.

    Of `range_end`, `prefix` and `from_key` at most one says that more than a key is meant: all up to that end, all that
    begin so, or all from there on.
    """

    def __init__(self, transport: Transport, calls: KvCalls) -> None:
        self._transport = transport
        self._calls = calls
        self.leases = KvLeases(transport, calls)

    async def put(
        self,
        key: Octets,
        value: Octets = b"",
        *,
        lease: int = 0,
        prev_kv: bool = False,
        ignore_value: bool = False,
        ignore_lease: bool = False,
    ) -> KvPutResult:
        """Set a key. Without `lease` it ends with none; `ignore_lease` keeps the one it has, `ignore_value` its value."""
        operation = PutOp(key, value, lease, prev_kv, ignore_value, ignore_lease)
        return await self._transport.run(self._calls.put(operation))

    async def get(
        self,
        key: Octets,
        *,
        range_end: Octets = b"",
        prefix: bool = False,
        from_key: bool = False,
        limit: int = 0,
        revision: int = 0,
        order: Order | None = None,
        sort_by: SortTarget = "KEY",
        keys_only: bool = False,
        count_only: bool = False,
    ) -> KvGetResult:
        """Read one key, `(await client.kv.get("a")).first`, or many; `revision` reads them as they were then."""
        operation = GetOp(
            key, range_end, prefix, from_key, limit, revision, order, sort_by, keys_only, count_only
        )
        return await self._transport.run(self._calls.get(operation))

    async def delete(
        self,
        key: Octets,
        *,
        range_end: Octets = b"",
        prefix: bool = False,
        from_key: bool = False,
        prev_kv: bool = False,
    ) -> KvDeleteResult:
        """Delete one key or many, all in one revision."""
        operation = DeleteOp(key, range_end, prefix, from_key, prev_kv)
        return await self._transport.run(self._calls.delete(operation))

    async def txn(
        self,
        compare: Sequence[Compare] = (),
        success: Sequence[KvOp] = (),
        failure: Sequence[KvOp] = (),
    ) -> KvTxnResult:
        """Do one thing if all comparisons hold, else the other: `txn([Compare.version("a", "=", 0)], [PutOp("a", "1")])`."""
        return await self._transport.run(self._calls.txn(TxnOp(compare, success, failure)))

    async def compact(self, revision: int, *, physical: bool = False) -> int:
        """Forget what was before this revision; `physical` waits until its space is free. Gives the revision of now."""
        return await self._transport.run(self._calls.compact(revision, physical=physical))

    def watch(
        self,
        key: Octets,
        *,
        range_end: Octets = b"",
        prefix: bool = False,
        from_key: bool = False,
        start_revision: int = 0,
        prev_kv: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> KvWatch:
        """`async with client.kv.watch("jobs/", prefix=True) as watch`, then `async for event in watch`.

        From `start_revision` on, which may be in the past, else from the moment it is opened. `on_progress` is told from time
        to time, when nothing happens, up to which revision everything was told.
        """
        watching = Watching(
            key,
            range_end=range_end,
            prefix=prefix,
            from_key=from_key,
            start_revision=start_revision,
            prev_kv=prev_kv,
            on_progress=on_progress,
        )
        return KvWatch(self._transport, self._calls, watching)
