"""Keeps everything alive that a client holds, from one thread; calls under way have threads of their own."""

import os
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Final
from weakref import WeakSet

from holdfast.client.errors import ClientError
from holdfast.client.options import ClientOptions
from holdfast.client.session.hold import Hold
from holdfast.client.session.keepalive_batch import BATCH_MAX, NotBatched
from holdfast.client.session.renewal import Renewable, Renewal, Schedule, tell
from holdfast.client.sync.keepalive import KeepaliveCalls
from holdfast.client.sync.transport import Transport
from holdfast.client.wire.flow import Channel

_CALLS_MAX: Final = 16
_IDLE_S: Final = 1.0
"""How long the thread waits for something new to keep alive before it ends."""


_renewers: "WeakSet[Renewer]" = WeakSet()


class Renewer:
    """Renews at half time, what ends first goes first; leases that are due together go as one batch.

    No holder is told anything, and no call is made, while the lock is held.
    """

    def __init__(self, transport: Transport, channel: Channel, options: ClientOptions) -> None:
        self._keepalive = KeepaliveCalls(transport, channel, options)
        self._schedule = Schedule(
            channel.monotonic_s, channel.chance, jobs_max=_CALLS_MAX, batch_max=BATCH_MAX
        )
        self._changed = threading.Condition()
        self._is_running = False
        self._is_closed = False
        _renewers.add(self)

    def add(self, renewable: Renewable, guard: AbstractContextManager[object] | None = None) -> Renewal:
        """Keep this alive until it is discarded or lost; each call is made inside of `guard`."""
        renewal = Renewal(renewable, guard or nullcontext(), isinstance(renewable, Hold))
        with self._changed:
            is_next = self._schedule.add(renewal)
            if not self._is_running:
                self._begin_thread(renewal)
            elif is_next:
                self._changed.notify()
        return renewal

    def _begin_thread(self, first: Renewal) -> None:
        try:
            threading.Thread(target=self._run, name="holdfast.keepalive", daemon=True).start()
        except RuntimeError as error:
            self._schedule.discard(first)
            raise ClientError(f"no thread to keep a lease alive: {error}") from error
        self._is_running = True

    def begin_anew(self) -> None:
        """In a process that was forked: what was held before is the parent's, and so are the thread and the lock."""
        self._changed = threading.Condition()
        self._schedule.discard_all()
        self._is_running = False

    def move(self, renewal: Renewal) -> None:
        """Its holder has moved its end."""
        with self._changed:
            self._schedule.move(renewal)
            self._changed.notify()

    def discard(self, renewal: Renewal) -> None:
        """Renew it no more. Does not wait: a call under way does no harm."""
        with self._changed:
            self._schedule.discard(renewal)

    def close(self) -> None:
        """Wait for nothing new. What is still in care is told by its next renewal."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._is_over():
                    self._is_running = False
                    return
                losses = self._schedule.advance()
                jobs = list(iter(self._take, []))
                if not losses and not jobs:
                    self._changed.wait(self._schedule.next_in_s())
            tell(losses)
            for job in jobs:
                self._start(job)

    def _is_over(self) -> bool:
        if self._schedule.is_empty and not self._is_closed:
            self._changed.wait(_IDLE_S)
        return self._schedule.is_empty

    def _take(self) -> list[Renewal]:
        return self._schedule.take(is_batch_allowed=self._keepalive.is_batch_allowed)

    def _start(self, job: list[Renewal]) -> None:
        thread = threading.Thread(
            target=self._renew, args=(job,), name="holdfast.keepalive.call", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            # No more threads: tried again soon, and in the end told to the holders.
            self._done(job, [ClientError(f"no thread for a renewal: {error}")] * len(job))

    def _renew(self, job: list[Renewal]) -> None:
        try:
            problems = self._keepalive.renew(job)
        except NotBatched:
            with self._changed:
                self._schedule.put_back(job)
                self._changed.notify()
        else:
            self._done(job, problems)

    def _done(self, job: list[Renewal], problems: list[ClientError | None]) -> None:
        with self._changed:
            losses = self._schedule.done(job, problems)
            self._changed.notify()
        tell(losses)


def _begin_anew() -> None:
    for renewer in list(_renewers):
        renewer.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
