"""Where a server listens: TCP on one or both address families, or a unix socket that cleans up after itself."""

import errno
import ipaddress
import os
import socket
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

ListenProtocol = Literal["tcp", "tcp4", "tcp6", "unix"]

SOCKET_MODE: Final = 0o660
_FAMILIES: Final = {"tcp": socket.AF_UNSPEC, "tcp4": socket.AF_INET, "tcp6": socket.AF_INET6}


class ListenError(OSError):
    """A listener that cannot be opened; the text says which, why, and what to do."""


@dataclass(frozen=True, slots=True)
class Listener:
    """`address` is `host:port` (an empty host is every interface) or, for unix, the path of the socket."""

    address: str
    protocol: ListenProtocol = "tcp"
    tls: ssl.SSLContext | None = None


def refuse_open_listener(listener: Listener, *, disable_mtls: bool) -> None:
    """Raise unless strangers cannot reach this listener, or TLS is on, or the operator said not to mind."""
    if listener.protocol == "unix" or listener.tls is not None or disable_mtls:
        return
    host, _ = split_address(listener.address)
    if not _is_loopback(host):
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
        hint = "; is another server running there?" if error.errno == errno.EADDRINUSE else ""
        raise ListenError(f"cannot listen on {listener.address}: {error.strerror or error}{hint}") from error


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
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind((address[0], port or _port_of(opened), *address[2:]))
    except OSError:
        for bound in opened:
            bound.close()
        raise
    return opened


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
            path.unlink(missing_ok=True)  # Nobody listens: left behind by a server that was killed.
            return
    raise ListenError(f"{path} belongs to a server that is running")


def identity_of(path: Path) -> tuple[Path, int]:
    """A socket file and its inode, to know it again when it is removed."""
    return path, path.lstat().st_ino


def remove_socket(path: Path, inode: int) -> None:
    """Remove our socket file, unless somebody has put another one in its place."""
    try:
        if path.lstat().st_ino == inode:
            path.unlink()
    except FileNotFoundError:
        return
