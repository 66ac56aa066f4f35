"""HTTP in, turns at a name, HTTP out: etcd's elections, whose leader is the candidate that has the turn."""

from collections.abc import AsyncGenerator
from contextlib import closing
from functools import partial
from itertools import takewhile
from typing import Any, Final, NamedTuple

from holdfast.common.errors import Draining
from holdfast.common.express.message import Answer, HandOver, Request, StreamAnswer
from holdfast.common.express.traits import Duration
from holdfast.common.serving.drain import Drain, Waits
from holdfast.state.layer.kv.errors import KeyMissing, KvInvalid, KvLeaseNotFound
from holdfast.state.layer.kv.operation import DeleteRangeRequest, KeyValue, PutRequest, WatchRequest
from holdfast.state.layer.kv.port import KeySpace
from holdfast.state.layer.kv.watch import WatchCompacted
from holdfast.state.protocol.etcd.concurrency.turn import Turns, keys_of
from holdfast.state.protocol.etcd.declarations import GOES_ON, LOOKS, WRITES, EtcdRouter, answered
from holdfast.state.protocol.etcd.dialect import ANSWER_HEADERS
from holdfast.state.protocol.etcd.wire.answer import AnswerWriter, base64_of, in_stream, kv_json
from holdfast.state.protocol.etcd.wire.body import object_of
from holdfast.state.protocol.etcd.wire.errors import NoLeader, NotLeader, SessionExpired
from holdfast.state.protocol.etcd.wire.field import Message, read_bytes, read_int64

_EXPIRED: Final = "election: session expired"
_LEADER_EXAMPLE: Final = {
    "name": "ZWw=",
    "key": "ZWwvNWY3OGExZTFiNzVjYjE0Mw==",
    "rev": "25",
    "lease": "6879426421624451395",
}


class CampaignRequest(NamedTuple):
    name: bytes = b""
    lease: int = 0
    value: bytes = b""


class LeaderKey(NamedTuple):
    name: bytes = b""
    key: bytes = b""
    rev: int = 0
    lease: int = 0


class LeaderRequest(NamedTuple):
    """What a leader says: who it is, and with proclaim a new value."""

    leader: LeaderKey = LeaderKey()
    value: bytes = b""


class ElectionRequest(NamedTuple):
    name: bytes = b""


_LEADER: Final = Message(
    LeaderKey, {"name": read_bytes, "key": read_bytes, "rev": read_int64, "lease": read_int64}
)
_CAMPAIGN: Final = Message(CampaignRequest, {"name": read_bytes, "lease": read_int64, "value": read_bytes})
_BY_LEADER: Final = Message(LeaderRequest, {"leader": _LEADER.of, "value": read_bytes})
_ELECTION: Final = Message(ElectionRequest, {"name": read_bytes})


class ElectionRoutes:
    """`service`, `answers` and `turns` are set while the store is open."""

    service: KeySpace
    answers: AnswerWriter
    turns: Turns

    def __init__(self, drain: Drain, waits: Waits) -> None:
        self._drain = drain
        self._waits = waits
        declared = EtcdRouter("election")
        declared.add(
            "/election/campaign",
            self.campaign,
            summary="Become the leader, waiting for it.",
            example={"name": "ZWw=", "lease": "0", "value": "bWU="},
            errors=(KvLeaseNotFound, SessionExpired),
            admission=WRITES,
            duration=Duration.WAITING,
        )
        declared.add(
            "/election/proclaim",
            self.proclaim,
            summary="As the leader, change its value.",
            example={"leader": _LEADER_EXAMPLE, "value": "bWU="},
            errors=(KvLeaseNotFound, NotLeader),
            admission=GOES_ON,
        )
        declared.add(
            "/election/resign",
            self.resign,
            summary="As the leader, stop being it.",
            example={"leader": _LEADER_EXAMPLE},
            admission=GOES_ON,
            is_repeatable=True,
        )
        declared.add(
            "/election/leader",
            self.leader,
            summary="The key and value of the leader.",
            example={"name": "ZWw="},
            errors=(NoLeader,),
            admission=LOOKS,
            is_repeatable=True,
        )
        declared.add(
            "/election/observe",
            self.observe,
            summary="Each leader from now on, and each value that it proclaims, as lines of JSON.",
            example={"name": "ZWw="},
            admission=LOOKS,
            is_repeatable=True,
            duration=Duration.ENDLESS,
        )
        self.router = declared.router

    async def campaign(self, request: Request, body: None) -> Answer:
        """A caller that goes away before it leads is no candidate any more."""
        asked = _CAMPAIGN.of(object_of(request.body))
        self._drain.refuse_new_work()
        try:
            turn = await self.turns.take(asked.name, asked.lease, asked.value)
        except SessionExpired as error:
            raise SessionExpired(_EXPIRED) from error
        revision = turn.revision
        if not turn.is_new:  # Its earlier campaign may have had another value.
            revision = await self._proclaim(turn.key, turn.create_revision, asked.value, turn.lease)
        leader = b'{"name":"%b","key":"%b","rev":"%d","lease":"%d"}' % (
            base64_of(asked.name),
            base64_of(turn.key),
            turn.create_revision,
            turn.lease,
        )
        answer = b'%b,"leader":%b}' % (self.answers.begin(revision), leader)
        return HandOver(200, answer, ANSWER_HEADERS, partial(self.turns.give_back, turn))

    async def proclaim(self, request: Request, body: None) -> Answer:
        members = object_of(request.body)
        leader = _leader_of(members)
        value = _BY_LEADER.of(members).value
        revision = await self._proclaim(leader.key, leader.rev, value, leader.lease)
        return answered(self.answers.header(revision))

    async def _proclaim(self, key: bytes, create_revision: int, value: bytes, lease: int) -> int:
        result = await self.turns.change(key, create_revision, PutRequest(key, value, lease))
        if not result.succeeded:
            raise NotLeader
        return result.revision

    async def resign(self, request: Request, body: None) -> Answer:
        """Of one who leads no more nothing is asked."""
        leader = _leader_of(object_of(request.body))
        result = await self.turns.change(leader.key, leader.rev, DeleteRangeRequest(leader.key))
        return answered(self.answers.header(result.revision))

    async def leader(self, request: Request, body: None) -> Answer:
        found = await self.turns.first(_name_of(request))
        if not found.kvs:
            raise NoLeader
        return answered(self._shown(found.revision, found.kvs[0]))

    async def observe(self, request: Request, body: None) -> StreamAnswer:
        name = _name_of(request)
        self._drain.refuse_new_work()
        return StreamAnswer(200, ANSWER_HEADERS, None, self._observed(name), is_endless=True)

    async def _observed(self, name: bytes) -> AsyncGenerator[bytes, None]:
        """The answer begins when there is a leader."""
        while True:
            found = await self.turns.first(name)
            leader = found.kvs[0] if found.kvs else None
            start, end = (leader.key, b"") if leader is not None else keys_of(name)
            request = WatchRequest(start, end, start_revision=found.revision + 1, no_delete=leader is None)
            with closing(await self.service.watch(request)) as watch:
                if leader is not None:
                    yield in_stream(self._shown(found.revision, leader))
                try:
                    while True:
                        batch = await self._waits.until_drain(watch.next())
                        if leader is None:
                            break  # Look again: others may have come and gone since.
                        for event in takewhile(lambda event: not event.is_delete, batch.events):
                            yield in_stream(self._shown(batch.revision, event.kv))
                        if any(event.is_delete for event in batch.events):
                            break
                except WatchCompacted:
                    continue
                except Draining:
                    return

    def _shown(self, revision: int, kv: KeyValue) -> bytes:
        return b'%b,"kv":%b}' % (self.answers.begin(revision), kv_json(kv))


def _leader_of(members: dict[str, Any]) -> LeaderKey:
    leader = _BY_LEADER.of(members).leader
    if not leader.key:
        raise KvInvalid('"leader" field must be provided')
    return leader


def _name_of(request: Request) -> bytes:
    name = _ELECTION.of(object_of(request.body)).name
    if not name:
        raise KeyMissing
    return name
