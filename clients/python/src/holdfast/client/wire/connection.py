"""What both twins hand to httpx: TLS, sockets, limits, headers; and what httpx's errors mean to us."""

import socket
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import httpx

from holdfast.client.errors import InvalidArgument, TransportFailed, TransportTimedOut, UnexpectedAnswer
from holdfast.client.options import ClientOptions
from holdfast.client.wire.call import Call, Pool
from holdfast.client.wire.endpoint import Endpoint, is_loopback, parse_endpoints

ERROR_BYTES_MAX: Final = 1024 * 1024
CONNECTED: Final = frozenset(
    f"connection.{step}.complete" for step in ("connect_tcp", "connect_unix_socket", "start_tls")
)
"""The events of httpx after which a fresh connection has a socket."""
_CONNECT_S_MAX: Final = 10.0
_IDLE_WAITS_MAX: Final = 16
IDLE_S_MAX: Final = 30.0
"""Shorter than servers and proxies keep an idle connection, so that it is we who close it."""

# A peer that is gone without a word is noticed after a minute, also by an acquire that waits for ever.
_TCP_OPTIONS: Final = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
]


class ServerConnection:
    """How to reach the endpoints: everything that is the same for every request."""

    def __init__(self, servers: str | Iterable[str], options: ClientOptions) -> None:
        has_bundle = options.bundle is not None
        is_mtls_on = not options.disable_mtls and (has_bundle or not _is_all_local(servers))
        self.endpoints = parse_endpoints(servers, is_mtls_on=is_mtls_on)
        self.socket_path = self.endpoints[0].socket_path
        self._connections_max = options.connections_max
        self._waits_max = options.waits_max
        self.verify = self._tls(options)

    def connections_max(self, pool: Pool) -> int:
        return self._waits_max if pool in ("wait", "stream") else self._connections_max

    def limits(self, pool: Pool) -> httpx.Limits:
        connections_max = self.connections_max(pool)
        # httpcore looks at all idle connections for each of them: many must not be kept where many wait.
        # A stream always gets a connection of its own, because it ends with it.
        idle_max = {"wait": _IDLE_WAITS_MAX, "stream": 0}.get(pool, connections_max)
        return httpx.Limits(
            max_connections=connections_max,
            max_keepalive_connections=min(idle_max, connections_max),
            keepalive_expiry=IDLE_S_MAX,
        )

    @property
    def socket_options(self) -> list[tuple[int, int, int]]:
        return [] if self.socket_path is not None else _TCP_OPTIONS

    def _tls(self, options: ClientOptions) -> ssl.SSLContext | bool:
        if not any(endpoint.is_tls for endpoint in self.endpoints):
            return False  # Nothing to verify; httpx would load every CA of the system.
        if options.bundle is None or options.disable_mtls:
            return ssl.create_default_context()
        # Only a client with a bundle pays for reading certificates: a third of a small program's start.
        from holdfast.common.security.bundle import read_bundle
        from holdfast.common.security.tls import client_context

        return client_context(read_bundle(options.bundle))


def _is_all_local(servers: str | Iterable[str]) -> bool:
    """A bare loopback address without a bundle is the plane on this machine, which needs no TLS."""
    words = [servers] if isinstance(servers, str) else list(servers)
    hosts = [name.strip().rsplit(":", 1)[0] for word in words for name in word.split(",")]
    return all(is_loopback(host) for host in hosts)


def url_of(call: Call, endpoint: Endpoint) -> httpx.URL:
    return httpx.URL(endpoint.base_url + call.path, params=dict(call.query))


def headers_of(call: Call) -> list[tuple[bytes, bytes]]:
    """UTF-8, as the server reads them. A line break in a value would begin a header of its own."""
    headers = {"Accept-Encoding": "identity", **call.headers}
    if call.body is not None and (size_bytes := call.body.size_bytes()) is not None:
        headers["Content-Length"] = str(size_bytes)
    for name, value in headers.items():
        if any(ord(character) < 0x20 or ord(character) == 0x7F for character in value):
            raise InvalidArgument(f"the value for {name} has a control character")
    return [
        (name.encode(), value.strip().encode("utf-8", "surrogateescape")) for name, value in headers.items()
    ]


def timeout_of(call: Call, timeout_s: float | None) -> httpx.Timeout:
    connect_s = _CONNECT_S_MAX if timeout_s is None else min(timeout_s, _CONNECT_S_MAX)
    # A call that waits for a key may as well wait for a connection to wait on.
    return httpx.Timeout(timeout_s, connect=connect_s, pool=timeout_s if call.pool == "wait" else connect_s)


def answer_headers(response: httpx.Response) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def check_size(size_bytes: int, bytes_max: int) -> None:
    if size_bytes > bytes_max:
        raise UnexpectedAnswer(f"the answer is larger than {bytes_max} bytes; read it as a stream")


@contextmanager
def mapped_errors(endpoint: Endpoint) -> Iterator[None]:
    """httpx's errors as ours, with the endpoint that failed."""
    try:
        yield
    except (httpx.LocalProtocolError, httpx.InvalidURL) as error:
        raise InvalidArgument(f"the request can't be sent: {error}") from error
    except (httpx.ConnectTimeout, httpx.PoolTimeout) as error:
        raise TransportTimedOut(_text(endpoint, error), is_sent=False) from error
    except httpx.TimeoutException as error:
        raise TransportTimedOut(_text(endpoint, error)) from error
    except (httpx.ConnectError, httpx.UnsupportedProtocol) as error:
        raise TransportFailed(_text(endpoint, error), is_sent=False) from error
    except httpx.TransportError as error:
        raise TransportFailed(_text(endpoint, error)) from error


def _text(endpoint: Endpoint, error: Exception) -> str:
    if _is_refused(error):
        return f"{endpoint.name}: connection refused; is a server running there?"
    words = str(error) or type(error).__name__
    return f"{endpoint.name}: {words}"


def _is_refused(error: BaseException | None) -> bool:
    """Asked of the first cause, because each layer above it says it in other words."""
    if isinstance(error, BaseExceptionGroup):
        return any(_is_refused(one) for one in error.exceptions)
    if error is None or isinstance(error, ConnectionRefusedError):
        return error is not None
    return _is_refused(error.__cause__ or error.__context__)
