"""Locks, semaphores and signals over TCP: dflockd's protocol, without HTTP.

`TcpClient` blocks, `AsyncTcpClient` awaits.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from holdfast.client.locks.view import Signal
from holdfast.client.tcp.options import TcpOptions

if TYPE_CHECKING:
    from holdfast.client.aio.tcp.client import TcpClient as AsyncTcpClient
    from holdfast.client.aio.tcp.lock import TcpLock as AsyncTcpLock
    from holdfast.client.sync.tcp.client import TcpClient
    from holdfast.client.sync.tcp.lock import TcpLock

__all__ = ["AsyncTcpClient", "AsyncTcpLock", "Signal", "TcpClient", "TcpLock", "TcpOptions"]

_LATE: Final = {
    "AsyncTcpClient": ("holdfast.client.aio.tcp.client", "TcpClient"),
    "AsyncTcpLock": ("holdfast.client.aio.tcp.lock", "TcpLock"),
    "TcpClient": ("holdfast.client.sync.tcp.client", "TcpClient"),
    "TcpLock": ("holdfast.client.sync.tcp.lock", "TcpLock"),
}

if not TYPE_CHECKING:  # A type checker would take it for a module that has every name.

    def __getattr__(name: str) -> object:
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, attribute = _LATE[name]
        globals()[name] = found = getattr(import_module(module), attribute)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LATE})
