"""Answers as the bytes of a body: etcd's order of members, defaults left out, numbers of 64 bits as texts."""

import asyncio
from binascii import b2a_base64
from collections.abc import Sequence
from typing import Final

from holdfast.state.layer.kv.operation import (
    DeleteRangeResult,
    Event,
    KeyValue,
    LeaseState,
    PutResult,
    RangeResult,
    Result,
    TxnResult,
)
from holdfast.state.protocol.etcd.identity import Identity

KVS_AT_ONCE: Final = 1000
"""More are rendered in several turns of the loop."""


def base64_of(data: bytes) -> bytes:
    return b2a_base64(data, newline=False)


def kv_json(kv: KeyValue) -> bytes:
    """Of a deleted key there is the key and the revision that deleted it."""
    key, value, create_revision, mod_revision, version, lease = kv
    if not version:
        return b'{"key":"%b","mod_revision":"%d"}' % (b2a_base64(key, newline=False), mod_revision)
    return b'{"key":"%b","create_revision":"%d","mod_revision":"%d","version":"%d"%b%b}' % (
        b2a_base64(key, newline=False),
        create_revision,
        mod_revision,
        version,
        b',"value":"%b"' % b2a_base64(value, newline=False) if value else b"",
        b',"lease":"%d"' % lease if lease else b"",
    )


class AnswerWriter:
    """Answers of one node: what its headers say of it is rendered once."""

    def __init__(self, identity: Identity) -> None:
        head = b'{"cluster_id":"%d","member_id":"%d"' % (identity.cluster_id, identity.member_id)
        tail = b',"raft_term":"%d"}' % identity.raft_term
        self._identity = identity
        self._before_revision = b'{"header":' + head + b',"revision":"'
        self._after_revision = b'"' + tail
        self._without_revision = b'{"header":' + head + tail

    def begin(self, revision: int) -> bytes:
        """An object up to its header; zero: without a revision."""
        if not revision:
            return self._without_revision
        return b"%b%d%b" % (self._before_revision, revision, self._after_revision)

    def header(self, revision: int) -> bytes:
        """An answer that is a header alone."""
        return self.begin(revision) + b"}"

    def put(self, result: PutResult) -> bytes:
        return b"%b%b}" % (self.begin(result.revision), _put_members(result))

    def range(self, result: RangeResult) -> bytes:
        return self.begin(result.revision) + self.range_members(result)

    async def rendered_range(self, result: RangeResult) -> bytes:
        """The same; others go on while many keys are rendered."""
        kvs = result.kvs
        if len(kvs) <= KVS_AT_ONCE:
            return self.range(result)
        parts: list[bytes] = []
        for first in range(0, len(kvs), KVS_AT_ONCE):
            parts.append(b",".join([kv_json(kv) for kv in kvs[first : first + KVS_AT_ONCE]]))
            await asyncio.sleep(0)
        rest = _range_members(result._replace(kvs=[]))
        return b'%b,"kvs":[%b]%b}' % (self.begin(result.revision), b",".join(parts), rest)

    def range_members(self, result: RangeResult) -> bytes:
        """What follows the header of such an answer, to its end."""
        return _range_members(result) + b"}"

    def delete_range(self, result: DeleteRangeResult) -> bytes:
        return b"%b%b}" % (self.begin(result.revision), _delete_range_members(result))

    def txn(self, result: TxnResult) -> bytes:
        return b"%b%b}" % (self.begin(result.revision), _txn_members(result))

    def lease(self, revision: int, lease_id: int, ttl_s: int) -> bytes:
        """What grant and keepalive tell; a lease that is over has no TTL."""
        ident = b',"ID":"%d"' % lease_id if lease_id else b""
        ttl = b',"TTL":"%d"' % ttl_s if ttl_s else b""
        return b"%b%b%b}" % (self.begin(revision), ident, ttl)

    def lease_state(self, revision: int, lease_id: int, state: LeaseState | None) -> bytes:
        ident = b',"ID":"%d"' % lease_id if lease_id else b""
        if state is None:
            return b'%b%b,"TTL":"-1"}' % (self.begin(revision), ident)
        return b"%b%b%b%b%b}" % (
            self.begin(revision),
            ident,
            b',"TTL":"%d"' % state.ttl_s if state.ttl_s else b"",
            b',"grantedTTL":"%d"' % state.granted_ttl_s if state.granted_ttl_s else b"",
            b',"keys":[%b]' % b",".join([b'"%b"' % base64_of(key) for key in state.keys])
            if state.keys
            else b"",
        )

    def leases(self, revision: int, ids: Sequence[int]) -> bytes:
        found = b",".join([b'{"ID":"%d"}' % lease_id for lease_id in ids])
        return b"%b%b}" % (self.begin(revision), b',"leases":[%b]' % found if ids else b"")

    def watch(self, revision: int, watch_id: int, members: bytes = b"") -> bytes:
        """One message of a watch, as a line of its stream; `members` begin with a comma."""
        ident = b',"watch_id":"%d"' % watch_id if watch_id else b""
        return b"%b%b%b}}\n" % (b'{"result":' + self.begin(revision), ident, members)

    def watch_events(
        self, revision: int, watch_id: int, events: Sequence[Event], *, has_previous: bool
    ) -> bytes:
        found = b",".join([_event(event, has_previous) for event in events])
        return self.watch(revision, watch_id, b',"events":[%b]' % found)


def in_stream(answer: bytes) -> bytes:
    """An answer as one line of a stream."""
    return b'{"result":%b}\n' % answer


def _put_members(result: PutResult) -> bytes:
    return b"" if result.previous is None else b',"prev_kv":%b' % kv_json(result.previous)


def _range_members(result: RangeResult) -> bytes:
    kvs, total = result.kvs, result.total
    return b"%b%b%b" % (
        b',"kvs":[%b]' % b",".join([kv_json(kv) for kv in kvs]) if kvs else b"",
        b',"more":true' if result.more else b"",
        b',"count":"%d"' % total if total else b"",
    )


def _delete_range_members(result: DeleteRangeResult) -> bytes:
    previous = result.previous
    return b"%b%b" % (
        b',"deleted":"%d"' % result.deleted if result.deleted else b"",
        b',"prev_kvs":[%b]' % b",".join([kv_json(kv) for kv in previous]) if previous else b"",
    )


def _txn_members(result: TxnResult) -> bytes:
    responses = b",".join([_response(each) for each in result.results])
    return b"%b%b" % (
        b',"succeeded":true' if result.succeeded else b"",
        b',"responses":[%b]' % responses if responses else b"",
    )


def _response(result: Result) -> bytes:
    """The header of an operation has its revision alone, that of a nested transaction nothing."""
    if isinstance(result, TxnResult):
        return b'{"response_txn":{"header":{}%b}}' % _txn_members(result)
    if isinstance(result, PutResult):
        name, members = b"response_put", _put_members(result)
    elif isinstance(result, RangeResult):
        name, members = b"response_range", _range_members(result)
    else:
        name, members = b"response_delete_range", _delete_range_members(result)
    return b'{"%b":{"header":{"revision":"%d"}%b}}' % (name, result.revision, members)


def _event(event: Event, has_previous: bool) -> bytes:
    previous = event.previous if has_previous else None
    return b'{%b"kv":%b%b}' % (
        b'"type":"DELETE",' if event.is_delete else b"",
        kv_json(event.kv),
        b"" if previous is None else b',"prev_kv":%b' % kv_json(previous),
    )
