"""How a client of the TCP listener connects, and which of several servers has a key."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from zlib import crc32

from holdfast.client.errors import InvalidArgument

PORT_DEFAULT: Final = 6388
SERVER_DEFAULT: Final = f"127.0.0.1:{PORT_DEFAULT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpOptions:
    """The same for every server of a client."""

    token: str = ""
    """Sent first, if the servers ask for one."""
    tls: ssl.SSLContext | None = None
    """With it, TLS: `ssl.create_default_context(cafile=…)`."""
    connect_timeout_s: float = 10.0
    timeout_s: float = 10.0
    """For an answer, beside the time that a request waits at the server."""
    idle_s_max: float = 10.0
    """A connection that was not used for longer is not used again: servers cut off silent ones after 23 s."""


class Server(NamedTuple):
    """Where one is."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def server_of(text: str) -> Server:
    """`host:port`, `host` or `[address]:port`."""
    host, port = text, ""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not host or (port and not (port.isascii() and port.isdigit() and int(port[:9]) < 1 << 16)):
        raise InvalidArgument(f"{text!r}: a server is host:port")
    return Server(host, int(port) if port else PORT_DEFAULT)


def shard_of(key: str, servers: Sequence[Server]) -> Server:
    """All clients choose alike: CRC-32 (IEEE) of the key, modulo their number."""
    return servers[crc32(key.encode()) % len(servers)]
