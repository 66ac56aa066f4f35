"""HTTP in, leases of the key space, HTTP out."""

from typing import Final, NamedTuple

from holdfast.common.express.message import Answer, Request
from holdfast.state.layer.kv.errors import KvLeaseExists, KvLeaseNotFound, RevisionOutOfRange
from holdfast.state.layer.kv.port import KeySpace
from holdfast.state.protocol.etcd.declarations import GOES_ON, LOOKS, WRITES, EtcdRouter, answered
from holdfast.state.protocol.etcd.wire.answer import AnswerWriter, in_stream
from holdfast.state.protocol.etcd.wire.body import STREAM_BYTES_MAX, object_of, objects_of
from holdfast.state.protocol.etcd.wire.errors import WrongType, WrongTypeInStream
from holdfast.state.protocol.etcd.wire.field import Message, read_bool, read_int64


class GrantRequest(NamedTuple):
    ttl_s: int = 0
    lease_id: int = 0


class LeaseRequest(NamedTuple):
    lease_id: int = 0
    keys: bool = False


_GRANT: Final = Message(GrantRequest, {"TTL": read_int64, "ID": read_int64})
_LEASE: Final = Message(LeaseRequest, {"ID": read_int64, "keys": read_bool})


class LeaseRoutes:
    """`service` and `answers` are set while the store is open."""

    service: KeySpace
    answers: AnswerWriter

    def __init__(self) -> None:
        declared = EtcdRouter("lease")
        declared.add(
            "/lease/grant",
            self.grant,
            summary="A lease: keys that are put with it end with it.",
            example={"TTL": "30", "ID": "0"},
            errors=(KvLeaseExists, RevisionOutOfRange),
            admission=WRITES,
        )
        declared.add(
            "/lease/keepalive",
            self.keep_alive,
            summary="Count the time of a lease from now on; a lease that is over is answered without a TTL.",
            example={"ID": "777"},
            errors=(WrongTypeInStream,),
            admission=GOES_ON,
            is_repeatable=True,
            body_bytes_max=STREAM_BYTES_MAX,
        )
        declared.add(
            "/lease/revoke",
            self.revoke,
            aliases=("/kv/lease/revoke",),
            summary="End a lease and its keys.",
            example={"ID": "777"},
            errors=(KvLeaseNotFound,),
            admission=GOES_ON,
        )
        declared.add(
            "/lease/timetolive",
            self.time_to_live,
            aliases=("/kv/lease/timetolive",),
            summary="How long a lease still lasts.",
            example={"ID": "777", "keys": True},
            admission=LOOKS,
            is_repeatable=True,
        )
        declared.add(
            "/lease/leases",
            self.leases,
            aliases=("/kv/lease/leases",),
            summary="All leases.",
            example={},
            admission=LOOKS,
            is_repeatable=True,
        )
        self.router = declared.router

    async def grant(self, request: Request, body: None) -> Answer:
        asked = _GRANT.of(object_of(request.body))
        lease_id, ttl_s = await self.service.leases.grant(asked.ttl_s, asked.lease_id)
        return answered(self.answers.lease(await self.service.revision(), lease_id, ttl_s))

    async def keep_alive(self, request: Request, body: None) -> Answer:
        """A stream in etcd; here an answer with one line for each request of the body, usually one."""
        found = objects_of(request.body)
        try:
            asked = [_LEASE.of(members).lease_id for members in found]
        except WrongType as error:
            raise WrongTypeInStream(error.detail) from error
        lines: list[bytes] = []
        for lease_id in asked:
            ttl_s = await self.service.leases.keep_alive(lease_id)
            answer = self.answers.lease(await self.service.revision(), lease_id, ttl_s)
            lines.append(in_stream(answer))
        return answered(b"".join(lines))

    async def revoke(self, request: Request, body: None) -> Answer:
        asked = _LEASE.of(object_of(request.body))
        return answered(self.answers.header(await self.service.leases.revoke(asked.lease_id)))

    async def time_to_live(self, request: Request, body: None) -> Answer:
        asked = _LEASE.of(object_of(request.body))
        state = await self.service.leases.time_to_live(asked.lease_id, with_keys=asked.keys)
        revision = await self.service.revision()
        return answered(self.answers.lease_state(revision, asked.lease_id, state))

    async def leases(self, request: Request, body: None) -> Answer:
        object_of(request.body)
        ids = await self.service.leases.ids()
        return answered(self.answers.leases(await self.service.revision(), ids))
