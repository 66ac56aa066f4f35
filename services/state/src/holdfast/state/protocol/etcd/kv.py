"""HTTP in, key space, HTTP out: range, put, deleterange, txn, compaction."""

from holdfast.common.express.message import Answer, Request
from holdfast.state.layer.kv.errors import KvForbidden, KvLeaseNotFound, RevisionOutOfRange
from holdfast.state.layer.kv.port import KeySpace
from holdfast.state.protocol.etcd.declarations import LOOKS, WRITES, EtcdRouter, answered
from holdfast.state.protocol.etcd.warm import WarmRanges
from holdfast.state.protocol.etcd.wire.answer import AnswerWriter
from holdfast.state.protocol.etcd.wire.request import (
    compaction_request,
    delete_range_request,
    put_request,
    range_request,
    txn_request,
)


class KvRoutes:
    """`service` and `answers` are set while the store is open."""

    service: KeySpace
    answers: AnswerWriter
    warm: WarmRanges | None = None

    def __init__(self) -> None:
        declared = EtcdRouter("kv")
        declared.add(
            "/kv/range",
            self.range,
            summary="Keys, now or at an older revision.",
            example={"key": "YS8=", "range_end": "YTA=", "limit": "10"},
            errors=(RevisionOutOfRange,),
            admission=LOOKS,
            is_repeatable=True,
        )
        declared.add(
            "/kv/put",
            self.put,
            summary="Put a key, as a new revision.",
            example={"key": "YS8x", "value": "b25l", "lease": "0", "prev_kv": True},
            errors=(KvLeaseNotFound, KvForbidden),
            admission=WRITES,
        )
        declared.add(
            "/kv/deleterange",
            self.delete_range,
            summary="Delete keys, all in one revision.",
            example={"key": "YS8=", "range_end": "YTA=", "prev_kv": True},
            errors=(KvForbidden,),
            admission=WRITES,
        )
        declared.add(
            "/kv/txn",
            self.txn,
            summary="Compare, and do one thing or the other: all in one revision.",
            example={
                "compare": [{"key": "dA==", "target": "CREATE", "create_revision": "0"}],
                "success": [{"request_put": {"key": "dA==", "value": "djE="}}],
                "failure": [{"request_range": {"key": "dA=="}}],
            },
            errors=(KvLeaseNotFound, RevisionOutOfRange, KvForbidden),
            admission=WRITES,
        )
        declared.add(
            "/kv/compaction",
            self.compact,
            summary="Forget the history before a revision.",
            example={"revision": "18", "physical": True},
            errors=(RevisionOutOfRange,),
        )
        self.router = declared.router

    async def range(self, request: Request, body: None) -> Answer:
        asked, warm = request.body, self.warm
        if warm is None:
            result = await self.service.range(range_request(asked))
            return answered(await self.answers.rendered_range(result))
        answer = await warm.answer(asked)
        if answer is None:
            answer = await warm.read(range_request(asked), asked)
        return answered(answer)

    async def put(self, request: Request, body: None) -> Answer:
        return answered(self.answers.put(await self.service.put(put_request(request.body))))

    async def delete_range(self, request: Request, body: None) -> Answer:
        result = await self.service.delete_range(delete_range_request(request.body))
        return answered(self.answers.delete_range(result))

    async def txn(self, request: Request, body: None) -> Answer:
        return answered(self.answers.txn(await self.service.txn(txn_request(request.body))))

    async def compact(self, request: Request, body: None) -> Answer:
        asked = compaction_request(request.body)
        return answered(
            self.answers.header(await self.service.compact(asked.revision, physical=asked.physical))
        )
