"""Answers to range requests for single keys, kept in memory by the body of the request that they answer.

The store forgets an answer before a change of its key can be read (`PublishedCache`); the revision in the header is that of
now. Keys of queues are never kept: who reads them may be a consumer, who has to be seen.
"""

from typing import Final

from holdfast.state.layer.document.published import PublishedCache
from holdfast.state.layer.kv.operation import RangeRequest, RangeResult
from holdfast.state.layer.kv.port import KeySpace
from holdfast.state.layer.kv.records import key_of
from holdfast.state.protocol.etcd.wire.answer import AnswerWriter

BODY_BYTES_MAX: Final = 1024


class WarmRanges:
    """What of an answer follows its header."""

    def __init__(self, cache: PublishedCache[bytes], service: KeySpace, answers: AnswerWriter) -> None:
        self._cache = cache
        self._service = service
        self._answers = answers

    async def answer(self, body: bytes) -> bytes | None:
        """The whole answer; None: it is not there."""
        revision = self._service.known_revision or await self._service.revision()
        # Nothing is awaited from here on: header and keys are of one moment.
        members = self._cache.get(body)
        return None if members is None else self._answers.begin(revision) + members

    async def read(self, request: RangeRequest, body: bytes) -> bytes:
        """The answer, which is kept if it was asked for before."""
        wanted = (
            not request.range_end
            and request.revision == 0
            and len(body) <= BODY_BYTES_MAX
            and self._cache.wants(body)
        )
        if not wanted:
            return await self._answers.rendered_range(await self._service.range(request))
        members: list[bytes] = []

        def keep(result: RangeResult) -> None:
            rest = self._answers.range_members(result)
            self._cache.keep(key_of(request.key), body, rest, len(rest))
            members[:] = [rest]

        result = await self._service.range(request, on_read=keep)
        if members:
            return self._answers.begin(result.revision) + members[0]
        return await self._answers.rendered_range(result)
