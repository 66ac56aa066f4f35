"""Where a server listens, and what a service declares to listen on.

TCP on one or both address families, or a unix socket that cleans up after itself; HTTP of the whole app, HTTP of some of
its paths, or any protocol of a service's own.
"""

import errno
import ipaddress
import os
import socket
import ssl
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from holdfast.common.serving.connections import ConnectionFactory
from holdfast.common.settings import PlaneSettings

ListenProtocol = Literal["tcp", "tcp4", "tcp6", "unix"]

SOCKET_MODE: Final = 0o660
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}  # A minute and a quarter.
_FAMILIES: Final = {"tcp": socket.AF_UNSPEC, "tcp4": socket.AF_INET, "tcp6": socket.AF_INET6}


class ListenError(OSError):
    """A listener that cannot be opened; the text says which, why, and what to do."""


class AddressTaken(ListenError):
    """Another server listens there."""


@dataclass(frozen=True, slots=True)
class Listener:
    """`address` is `host:port` (an empty host is every interface) or, for unix, the path of the socket."""

    address: str
    protocol: ListenProtocol = "tcp"
    tls: ssl.SSLContext | None = None
    name: str = "main"
    paths: tuple[str, ...] = ()
    """The only paths of the app that are served here, all below one that ends with `/`; none given: all of them."""
    version: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    """What `/version` tells here, where it is among the paths; nothing given: what it tells everywhere."""
    connections: ConnectionFactory | None = None
    """What serves a connection, in place of HTTP."""
    is_public: bool = False
    """Nothing is served that strangers may not see."""
    is_optional: bool = False
    """The server starts without it if another one has its address."""
    closes_at_once: bool = False
    """Refuses new clients from the signal on, and not only after the drain."""

    @property
    def is_main(self) -> bool:
        """Whether it serves the whole app."""
        return not self.paths and self.connections is None

    def has(self, path: str) -> bool:
        """Whether the app serves this path here."""
        return not self.paths or any(
            path == one or (one.endswith("/") and path.startswith(one)) for one in self.paths
        )

    @property
    def is_open(self) -> bool:
        """Whether strangers may reach it and do what they like."""
        if self.protocol == "unix" or self.tls is not None or self.is_public:
            return False
        return not _is_loopback(split_address(self.address)[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerDeclaration:
    """What a service listens on; its settings say where, and whether at all."""

    name: str
    address: Callable[[PlaneSettings], str]
    """Where; nothing if the listener is off."""
    protocol: Callable[[PlaneSettings], ListenProtocol] | None = None
    """The kind of socket; TCP if nothing says otherwise."""
    paths: tuple[str, ...] = ()
    """As those of a `Listener`."""
    version: Mapping[str, str] = field(default_factory=dict[str, str])
    """What clients of its protocol look for at `/version`: here nothing else, at the main listener besides our own."""
    connections: ConnectionFactory | None = None
    has_tls: bool = True
    """Asks for certificates when the plane does."""
    own_tls: Callable[[PlaneSettings], ssl.SSLContext | None] | None = None
    """TLS of its own, in place of the plane's."""
    is_public: bool = False
    is_optional: Callable[[PlaneSettings], bool] | None = None
    closes_at_once: bool = False

    @property
    def is_http(self) -> bool:
        """Then it opens where clients are: in a split plane at the gateway, and not at the service."""
        return self.connections is None

    def at(self, settings: PlaneSettings, tls: ssl.SSLContext | None) -> Listener | None:
        """The listener that these settings mean; None if it is off."""
        address = self.address(settings)
        if not address:
            return None
        if self.own_tls is not None:
            tls = self.own_tls(settings)
        elif not self.has_tls:
            tls = None
        return Listener(
            address,
            "tcp" if self.protocol is None else self.protocol(settings),
            tls,
            name=self.name,
            paths=self.paths,
            version=self.version,
            connections=self.connections,
            is_public=self.is_public,
            is_optional=self.is_optional is not None and self.is_optional(settings),
            closes_at_once=self.closes_at_once,
        )


MAIN: Final = ListenerDeclaration(
    name="main",
    address=lambda settings: settings.listen,
    protocol=lambda settings: settings.listen_proto,
)
# Numbers and health are no secrets, and probes and scrapers seldom have a client certificate.
METRICS: Final = ListenerDeclaration(
    name="metrics",
    address=lambda settings: settings.metrics_listen,
    paths=("/metrics",),
    has_tls=False,
    is_public=True,
)
HEALTH: Final = ListenerDeclaration(
    name="health",
    address=lambda settings: settings.health_listen,
    paths=("/healthz", "/readyz"),
    has_tls=False,
    is_public=True,
)
COMMON_LISTENERS: Final = (MAIN, METRICS, HEALTH)


def refuse_open_listener(listener: Listener, *, disable_mtls: bool) -> None:
    """Raise unless strangers cannot reach this listener, or TLS is on, or the operator said not to mind."""
    if listener.is_open and not disable_mtls:
        raise ListenError(
            f"listening on {listener.address} without TLS is open to the network: give a bundle (--bundle), "
            "listen on a loopback address, or say --disable-mtls"
        )


def split_address(address: str) -> tuple[str, int]:
    """Host and port; an IPv6 host stands in brackets."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ListenError(f"{address!r} is no listen address: write host:port, [v6 host]:port or :port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ListenError(f"{address!r} is no listen address: put the IPv6 host in brackets")
    return host, int(port)


def _is_loopback(host: str) -> bool:
    if not host:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def open_sockets(listener: Listener) -> list[socket.socket]:
    """Bound sockets, one per address; not yet listening."""
    try:
        if listener.protocol == "unix":
            return [_open_unix(Path(listener.address))]
        return _open_tcp(listener)
    except ListenError:
        raise
    except OSError as error:
        problem = f"cannot listen on {listener.address}: {error.strerror or error}"
        if error.errno == errno.EADDRINUSE:
            raise AddressTaken(f"{problem}; is another server running there?") from error
        raise ListenError(problem) from error


def _open_tcp(listener: Listener) -> list[socket.socket]:
    host, port = split_address(listener.address)
    flags = socket.AI_PASSIVE
    found = socket.getaddrinfo(
        host or None, port, family=_FAMILIES[listener.protocol], type=socket.SOCK_STREAM, flags=flags
    )
    opened: list[socket.socket] = []
    try:
        for family, kind, number, _, address in found:
            bound = socket.socket(family, kind, number)
            opened.append(bound)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _enable_keepalive(bound)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind((address[0], port or _port_of(opened), *address[2:]))
    except OSError:
        for bound in opened:
            bound.close()
        raise
    return opened


def _enable_keepalive(bound: socket.socket) -> None:
    """Accepted sockets inherit it: the end of a client whose machine is gone is seen by nothing else."""
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            bound.setsockopt(socket.IPPROTO_TCP, option, value)


def _port_of(opened: list[socket.socket]) -> int:
    """With port 0 the system picks for the first address; the others follow it."""
    return int(opened[0].getsockname()[1]) if len(opened) > 1 else 0


def _open_unix(path: Path) -> socket.socket:
    _remove_stale(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o777 & ~SOCKET_MODE)  # So that the socket never exists with a wider mode.
    try:
        bound.bind(str(path))
    except OSError:
        bound.close()
        raise
    finally:
        os.umask(mask)
    return bound


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ListenError(f"{path} exists and is no socket; choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)  # No process listens: left behind by a server that was killed.
            return
    raise ListenError(f"{path} belongs to a server that is running")


def identity_of(path: Path) -> tuple[Path, int]:
    """A socket file and its inode, to know it again when it is removed."""
    return path, path.lstat().st_ino


def remove_socket(path: Path, inode: int) -> None:
    """Remove our socket file, unless another one was put in its place."""
    try:
        if path.lstat().st_ino == inode:
            path.unlink()
    except FileNotFoundError:
        return
