"""The key space: its calls as flows, shared by both twins."""

from collections.abc import Callable
from typing import Final

from holdfast.client.errors import ApiError, ClientError, NotFound, TransportFailed
from holdfast.client.kv import request
from holdfast.client.kv.fields import present, read_int64, stream_error
from holdfast.client.kv.operation import DeleteOp, GetOp, PutOp, TxnOp
from holdfast.client.kv.view import (
    KvDeleteResult,
    KvGetResult,
    KvLease,
    KvLeaseState,
    KvPutResult,
    KvTxnResult,
    read_revision,
)
from holdfast.client.kv.watching import Watching
from holdfast.client.options import ClientOptions
from holdfast.client.queue.opening import Opening
from holdfast.client.wire.call import Call, Members
from holdfast.client.wire.flow import Channel, Flow, pause
from holdfast.client.wire.retry import Backoff
from holdfast.common.ids import uuid7

_RENEWED_AFTER: Final = 1 / 3
"""Of the time of a lease."""
_RENEWAL: Final = Backoff(start_s=0.1, factor=2.0, max_s=2.0, jitter_s=0.1)


class KvCalls:
    """It does no I/O."""

    def __init__(self, channel: Channel, options: ClientOptions) -> None:
        self.channel = channel
        self.options = options

    def put(self, operation: PutOp) -> Flow[KvPutResult]:
        return KvPutResult.read((yield from self._change("/v3/kv/put", operation.members())))

    def get(self, operation: GetOp) -> Flow[KvGetResult]:
        return KvGetResult.read((yield from self._look("/v3/kv/range", operation.members())))

    def delete(self, operation: DeleteOp) -> Flow[KvDeleteResult]:
        return KvDeleteResult.read((yield from self._change("/v3/kv/deleterange", operation.members())))

    def txn(self, operation: TxnOp) -> Flow[KvTxnResult]:
        return KvTxnResult.read((yield from self._change("/v3/kv/txn", operation.members())))

    def compact(self, revision: int, *, physical: bool) -> Flow[int]:
        members = present({"revision": revision, "physical": physical})
        return read_revision((yield from self._change("/v3/kv/compaction", members)))

    def grant(self, ttl_s: int, lease_id: int) -> Flow[KvLease]:
        members = present({"TTL": ttl_s, "ID": lease_id})
        return KvLease.read((yield from self._change("/v3/lease/grant", members)))

    def revoke(self, lease_id: int) -> Flow[int]:
        return read_revision((yield from self._change("/v3/lease/revoke", present({"ID": lease_id}))))

    def time_to_live(self, lease_id: int, *, keys: bool) -> Flow[KvLeaseState]:
        members = present({"ID": lease_id, "keys": keys})
        return KvLeaseState.read((yield from self._look("/v3/lease/timetolive", members)))

    def lease_ids(self) -> Flow[tuple[int, ...]]:
        members = yield from self._look("/v3/lease/leases", {})
        return tuple(read_int64(one, "ID") for one in members.items("leases"))

    def keep_alive(self, lease_id: int) -> Flow[int]:
        """Its time, which begins anew; NotFound when there is no such lease (any more)."""
        answer = yield from self.channel.send(request.keep_alive(str(lease_id), self._correlation_id()))
        members = answer.expect(200).members()
        if "error" in members.raw:
            raise stream_error(members.inner("error"))
        ttl_s = read_int64(members.inner("result"), "TTL")
        if ttl_s <= 0:
            raise NotFound("etcdserver: requested lease not found", status=404)
        return ttl_s

    def keep_on(self, lease_id: int, ttl_s: int) -> Flow[int]:
        """When a third of this time is over, `keep_alive`: again and again until it succeeds or all of the time is over."""
        deadline_s = self.channel.monotonic_s() + ttl_s
        yield from pause(ttl_s * _RENEWED_AFTER)
        failures = 0
        while True:
            problem: ClientError
            try:
                return (yield from self.keep_alive(lease_id))
            except TransportFailed as failure:
                problem, at_least_s = failure, None
            except ApiError as failure:
                if failure.status != 429 and failure.status < 500:
                    raise
                problem, at_least_s = failure, failure.retry_after_s
            delay_s = _RENEWAL.delay_s(failures, self.channel.chance, at_least_s)
            failures += 1
            if self.channel.monotonic_s() + delay_s >= deadline_s:
                raise problem
            yield from pause(delay_s)

    def watch(self, watching: Watching, prepare: Callable[[Call], None]) -> Opening:
        def call_for() -> Call:
            call = request.watch(watching.members(), self._correlation_id())
            prepare(call)
            return call

        return Opening(self.channel, call_for, retries=None)

    def _look(self, path: str, members: dict[str, object]) -> Flow[Members]:
        answer = yield from self.channel.send(request.look(path, members, self._correlation_id()))
        return answer.expect(200).members()

    def _change(self, path: str, members: dict[str, object]) -> Flow[Members]:
        answer = yield from self.channel.send(request.change(path, members, self._correlation_id()))
        return answer.expect(200).members()

    def _correlation_id(self) -> str:
        return self.options.correlation_id or uuid7()
