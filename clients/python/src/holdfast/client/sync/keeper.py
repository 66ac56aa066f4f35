"""Keeps a lease alive from a thread of its own."""

import threading
from contextlib import AbstractContextManager, nullcontext

from holdfast.client.errors import ClientError
from holdfast.client.renewal import Renewable
from holdfast.client.sync.transport import Transport


class Keeper:
    """Renews at half time until it is stopped or the lease is lost; each time inside of `guard`."""

    def __init__(
        self,
        transport: Transport,
        hold: Renewable,
        guard: AbstractContextManager[object] | None = None,
    ) -> None:
        self._transport = transport
        self._hold = hold
        self._guard = guard or nullcontext()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"holdfast.keepalive.{hold.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Renew no more. Does not wait: a renewal under way does no harm."""
        self._stopped.set()

    def _run(self) -> None:
        wait_s = self._hold.keepalive_in_s()
        while not self._stopped.wait(wait_s):
            try:
                with self._guard:
                    if self._stopped.is_set():
                        return
                    self._transport.run(self._hold.keepalive())
            except ClientError as problem:
                if self._stopped.is_set():
                    return
                lost_because = self._hold.verdict(problem)
                if lost_because is not None:
                    self._hold.lose(lost_because)
                    return
                wait_s = self._hold.keepalive_in_s(after_failure=True)
            else:
                wait_s = self._hold.keepalive_in_s()
