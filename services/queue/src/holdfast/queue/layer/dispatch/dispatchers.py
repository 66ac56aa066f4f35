"""The dispatchers of a process: one for each queue that was asked for lately, and the tasks they start."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from holdfast.common.clock import SteadyClock
from holdfast.common.logging import get_logger
from holdfast.queue.layer.dispatch.dispatcher import Dispatcher
from holdfast.queue.layer.dispatch.window import Entry
from holdfast.queue.layer.limits import QueueLimits
from holdfast.queue.layer.message.types import QueueAddress
from holdfast.queue.layer.records_pb2 import QueuePolicy
from holdfast.storage.port import Demand, Store

UNUSED_S = 30.0  # After that a queue at which no consumer waits is as good as unknown to this process.
QUEUES_MAX = 1024  # Beyond that, queues without a waiting consumer are forgotten, and read again on demand.

_log = get_logger("queue.dispatcher")


class Dispatchers:
    """Told by address, so that the caller needs no dispatcher: a queue without demand has none."""

    def __init__(
        self,
        store: Store,
        clock: SteadyClock,
        expired: Callable[[Dispatcher, Entry], bool],
        limits: QueueLimits,
    ) -> None:
        self._store = store
        self._clock = clock
        self._expired = expired
        self._limits = limits
        self.by_address: dict[QueueAddress, Dispatcher] = {}
        self.demand = Demand()
        """For what other processes do to queues: there while one is in use here, and some time longer."""
        self._used_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[Dispatcher]:
        return iter(self.by_address.values())

    def find(self, address: QueueAddress) -> Dispatcher | None:
        return self.by_address.get(address)

    async def loaded(self, address: QueueAddress) -> Dispatcher:
        self._note_use()
        while True:
            queue = self.by_address.get(address) or self._open(address)
            if queue.is_loaded:
                return queue
            await (
                queue.load()
            )  # A caller that waited for another one's load may find that it was forgotten since.

    def tell(self, address: QueueAddress, entries: Sequence[Entry]) -> None:
        queue = self.by_address.get(address)
        if queue is not None:
            queue.tell(entries)

    def forget(self, address: QueueAddress, message_id: str) -> None:
        queue = self.by_address.get(address)
        if queue is not None:
            queue.forget(message_id)

    def set_policy(self, address: QueueAddress, policy: QueuePolicy) -> None:
        queue = self.by_address.get(address)
        if queue is not None:
            queue.set_policy(policy)
            queue.pump()

    def reset(self, address: QueueAddress) -> None:
        """Something went wrong on the way to the store: what is known of this queue may be wrong."""
        queue = self.by_address.get(address)
        if queue is not None:
            queue.reset()

    def reset_all(self) -> None:
        for queue in list(self.by_address.values()):
            queue.reset()

    def _open(self, address: QueueAddress) -> Dispatcher:
        if len(self.by_address) >= QUEUES_MAX:
            self._forget_idle()
        queue = Dispatcher(address, self._store, self._clock, self, self._limits)
        self.by_address[address] = queue
        return queue

    def _forget_idle(self) -> None:
        """The oldest half of those that are idle."""
        idle = [queue for queue in self.by_address.values() if queue.is_idle]
        for queue in idle[: (len(idle) + 1) // 2]:
            queue.close()
            del self.by_address[queue.address]

    def _note_use(self) -> None:
        loop = asyncio.get_running_loop()
        self._used_s = loop.time()
        self.demand.set(True)
        if self._timer is None:
            self._timer = loop.call_later(UNUSED_S, self._look_whether_used)

    def _look_whether_used(self) -> None:
        loop = asyncio.get_running_loop()
        left_s = self._used_s + UNUSED_S - loop.time()
        is_used = left_s > 0 or not all(queue.is_idle for queue in self)
        self.demand.set(is_used)
        self._timer = loop.call_later(max(left_s, UNUSED_S / 2), self._look_whether_used) if is_used else None

    # -- what a dispatcher needs

    def expired(self, dispatcher: Dispatcher, entry: Entry) -> bool:
        return self._expired(dispatcher, entry)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="queue")
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("queue.task.failed", exception=error)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for queue in self.by_address.values():
            queue.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
