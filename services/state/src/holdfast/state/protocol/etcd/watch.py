"""Watches as a stream of lines: one chunk for each message, because clients parse chunks."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from pydantic_core import to_json

from holdfast.common.errors import Draining, HoldfastError
from holdfast.common.express.message import Request, StreamAnswer
from holdfast.common.express.traits import Duration
from holdfast.common.serving.drain import Drain, Waits
from holdfast.state.layer.kv.operation import UNBOUNDED, WatchRequest
from holdfast.state.layer.kv.port import KeySpace, Watch
from holdfast.state.layer.kv.watch import WatchCompacted, WatchEnded
from holdfast.state.protocol.etcd.declarations import LOOKS, EtcdRouter
from holdfast.state.protocol.etcd.dialect import ANSWER_HEADERS
from holdfast.state.protocol.etcd.wire.answer import AnswerWriter
from holdfast.state.protocol.etcd.wire.body import STREAM_BYTES_MAX
from holdfast.state.protocol.etcd.wire.errors import WrongTypeInStream
from holdfast.state.protocol.etcd.wire.watch_request import (
    StreamRequest,
    WatchCancel,
    WatchProgress,
    stream_requests,
)

PROGRESS_S: Final = 60.0
"""Of silence, after which a watch that asked for it is told how far it is."""
NO_WATCH: Final = -1
_CREATED: Final = b',"created":true'
_CANCELED: Final = b',"canceled":true'
_EMPTY_RANGE: Final = "mvcc: watcher range is empty"
_DUPLICATE_ID: Final = "mvcc: duplicate watch ID provided on the WatchStream"


class WatchRoutes:
    """`service` and `answers` are set while the store is open."""

    service: KeySpace
    answers: AnswerWriter

    def __init__(self, drain: Drain, waits: Waits) -> None:
        self._drain = drain
        self._waits = waits
        declared = EtcdRouter("watch")
        declared.add(
            "/watch",
            self.watch,
            summary="What changes from now on, or since a revision, as lines of JSON.",
            example={"create_request": {"key": "YS8=", "range_end": "YTA=", "prev_kv": True}},
            errors=(WrongTypeInStream,),
            admission=LOOKS,
            is_repeatable=True,
            duration=Duration.ENDLESS,
            body_bytes_max=STREAM_BYTES_MAX,
        )
        self.router = declared.router

    async def watch(self, request: Request, body: None) -> StreamAnswer:
        """The answer begins when the watch is registered: what is put after that is told. Several requests in one body are
        several watches in one stream, which ends when none of them is left."""
        requests = stream_requests(request.body)
        self._drain.refuse_new_work()
        stream = WatchStream(self.service, self.answers, self._waits)
        return StreamAnswer(200, ANSWER_HEADERS, None, stream.lines(requests), is_endless=True)


class WatchStream:
    """The watches of one answer, by their ids."""

    def __init__(self, service: KeySpace, answers: AnswerWriter, waits: Waits) -> None:
        self._service = service
        self._answers = answers
        self._waits = waits
        self._watches: dict[int, Watch] = {}
        self._tasks: dict[asyncio.Task[bytes], int] = {}
        self._next_id = 0

    async def lines(self, requests: Sequence[StreamRequest]) -> AsyncGenerator[bytes, None]:
        """First what the requests are told, in their order, then what happens, until the client goes or the server drains."""
        try:
            for request in requests:
                line = await self._told(request)
                if line:
                    yield line
            if not any(isinstance(request, WatchRequest) for request in requests):
                await self._waits.until_drain(asyncio.Event().wait())  # As etcd: it keeps the stream open.
            with self._waits.told(self._end):
                while self._watches:
                    yield await self._first()
        except (Draining, WatchEnded):
            return
        finally:
            for task in self._tasks:
                task.cancel()
            for watch in self._watches.values():
                watch.close()

    def _end(self) -> None:
        for watch in self._watches.values():
            watch.end()

    async def _told(self, request: StreamRequest) -> bytes:
        if isinstance(request, WatchRequest):
            return await self._create(request)
        if isinstance(request, WatchProgress):
            return self._answers.watch(await self._revision(), NO_WATCH)
        return self._cancel(request)

    async def _create(self, request: WatchRequest) -> bytes:
        problem = self._problem(request)
        if problem is not None:
            members = b'%b%b,"cancel_reason":%b' % (_CREATED, _CANCELED, to_json(problem))
            return self._answers.watch(await self._service.revision(), NO_WATCH, members)
        watch_id = request.watch_id or self._free_id()
        watch = self._watches[watch_id] = await self._service.watch(request)
        return self._answers.watch(watch.created_revision, watch_id, _CREATED)

    def _problem(self, request: WatchRequest) -> str | None:
        if request.range_end and request.range_end != UNBOUNDED and request.range_end <= request.key:
            return _EMPTY_RANGE
        return _DUPLICATE_ID if request.watch_id and request.watch_id in self._watches else None

    def _free_id(self) -> int:
        while self._next_id in self._watches:
            self._next_id += 1
        self._next_id += 1
        return self._next_id - 1

    def _cancel(self, request: WatchCancel) -> bytes:
        """One that is not there is not answered, as by etcd."""
        watch = self._watches.pop(request.watch_id, None)
        if watch is None:
            return b""
        told = watch.told_revision
        watch.close()
        return self._answers.watch(told, request.watch_id, _CANCELED)

    async def _revision(self) -> int:
        """Up to here every watch of the stream has been told what it wants."""
        if not self._watches:
            return await self._service.revision()
        return min(watch.told_revision for watch in self._watches.values())

    async def _first(self) -> bytes:
        """What happens first in any of the watches; a task for each is needed only if there are several."""
        if len(self._watches) == 1 and not self._tasks:
            return await self._next(next(iter(self._watches)))
        for watch_id in self._watches.keys() - self._tasks.values():
            self._tasks[asyncio.create_task(self._next(watch_id), name="etcd.watch")] = watch_id
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        task = done.pop()  # Others that are done are found at once by the next call.
        del self._tasks[task]
        return task.result()

    async def _next(self, watch_id: int) -> bytes:
        watch = self._watches[watch_id]
        try:
            if watch.request.progress_notify:
                async with asyncio.timeout(PROGRESS_S):
                    batch = await watch.next()
            else:
                batch = await watch.next()
        except TimeoutError:
            return self._answers.watch(watch.told_revision, watch_id)
        except WatchCompacted as error:
            return self._ended(watch_id, b',"compact_revision":"%d"' % error.compact_revision)
        except HoldfastError as error:
            return self._ended(watch_id, b',"cancel_reason":%b' % to_json(error.detail))
        return self._answers.watch_events(
            batch.revision, watch_id, batch.events, has_previous=watch.request.prev_kv
        )

    def _ended(self, watch_id: int, why: bytes) -> bytes:
        self._watches.pop(watch_id).close()
        return self._answers.watch(0, watch_id, _CANCELED + why)
