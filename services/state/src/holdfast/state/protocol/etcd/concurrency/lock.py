"""HTTP in, turns at a name, HTTP out: etcd's lock and unlock."""

from functools import partial
from typing import Final, NamedTuple

from holdfast.common.express.message import Answer, HandOver, Request
from holdfast.common.express.traits import Duration
from holdfast.common.serving.drain import Drain
from holdfast.state.layer.kv.errors import KvLeaseNotFound
from holdfast.state.layer.kv.operation import DeleteRangeRequest
from holdfast.state.layer.kv.port import KeySpace
from holdfast.state.protocol.etcd.concurrency.turn import Turns
from holdfast.state.protocol.etcd.declarations import GOES_ON, WRITES, EtcdRouter, answered
from holdfast.state.protocol.etcd.dialect import ANSWER_HEADERS
from holdfast.state.protocol.etcd.wire.answer import AnswerWriter, base64_of
from holdfast.state.protocol.etcd.wire.body import object_of
from holdfast.state.protocol.etcd.wire.errors import SessionExpired
from holdfast.state.protocol.etcd.wire.field import Message, read_bytes, read_int64


class LockRequest(NamedTuple):
    name: bytes = b""
    lease: int = 0


class UnlockRequest(NamedTuple):
    key: bytes = b""


_LOCK: Final = Message(LockRequest, {"name": read_bytes, "lease": read_int64})
_UNLOCK: Final = Message(UnlockRequest, {"key": read_bytes})


class LockRoutes:
    """`service`, `answers` and `turns` are set while the store is open."""

    service: KeySpace
    answers: AnswerWriter
    turns: Turns

    def __init__(self, drain: Drain) -> None:
        self._drain = drain
        declared = EtcdRouter("lock")
        declared.add(
            "/lock/lock",
            self.lock,
            summary="Take a lock, waiting for it; it ends with its lease, which is one of a minute if none is named.",
            example={"name": "bGs=", "lease": "0"},
            errors=(KvLeaseNotFound, SessionExpired),
            admission=WRITES,
            duration=Duration.WAITING,
        )
        declared.add(
            "/lock/unlock",
            self.unlock,
            summary="Give a lock back by the key that lock answered.",
            example={"key": "bGsvNWY3OGExZTFiNzVjYjEzZg=="},
            admission=GOES_ON,
            is_repeatable=True,
        )
        self.router = declared.router

    async def lock(self, request: Request, body: None) -> Answer:
        """A caller that goes away before it has the lock leaves nothing behind."""
        asked = _LOCK.of(object_of(request.body))
        self._drain.refuse_new_work()
        turn = await self.turns.take(asked.name, asked.lease)
        answer = b'%b,"key":"%b"}' % (self.answers.begin(turn.revision), base64_of(turn.key))
        return HandOver(200, answer, ANSWER_HEADERS, partial(self.turns.give_back, turn))

    async def unlock(self, request: Request, body: None) -> Answer:
        asked = _UNLOCK.of(object_of(request.body))
        result = await self.service.delete_range(DeleteRangeRequest(asked.key))
        return answered(self.answers.header(result.revision))
