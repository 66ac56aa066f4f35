"""Where servers are: endpoint lists as people write them, and the order in which they are tried."""

import ipaddress
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

from holdfast.client.errors import InvalidArgument

PORT_DEFAULT: Final = 9341
ENDPOINTS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One server: the base URL of requests, and the socket they go through if it is a unix one."""

    name: str
    base_url: str
    socket_path: str | None = None

    @property
    def is_tls(self) -> bool:
        return self.base_url.startswith("https://")


def parse_endpoints(servers: str | Iterable[str], *, is_mtls_on: bool) -> tuple[Endpoint, ...]:
    """Endpoints of a comma separated list or of several; a bare `host[:port]` is https, or http without mTLS."""
    words = [servers] if isinstance(servers, str) else list(servers)
    names = [name.strip() for word in words for name in word.split(",") if name.strip()]
    if not names:
        raise InvalidArgument("no server: name at least one endpoint, such as http://127.0.0.1:9341")
    if len(names) > ENDPOINTS_MAX:
        raise InvalidArgument(f"{len(names)} endpoints are more than the {ENDPOINTS_MAX} that are allowed")
    endpoints = tuple(dict.fromkeys(_parse(name, is_mtls_on=is_mtls_on) for name in names))
    if len(endpoints) > 1 and any(endpoint.socket_path for endpoint in endpoints):
        raise InvalidArgument("a unix socket can't be combined with other endpoints")
    return endpoints


def is_loopback(host: str) -> bool:
    """Whether only this machine can be meant."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _parse(name: str, *, is_mtls_on: bool) -> Endpoint:
    if name.startswith("unix:"):
        return _unix_endpoint(name)
    if "://" not in name:
        name = f"{'https' if is_mtls_on else 'http'}://{name}"
    try:
        parts = urlsplit(name)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidArgument(f"endpoint {name!r}: {error}") from error
    if parts.scheme not in {"http", "https"} or not host:
        raise InvalidArgument(f"endpoint {name!r}: expected http://, https:// or unix:// and a host")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InvalidArgument(f"endpoint of {host}: only scheme, host, port and path are allowed")
    shown_host = f"[{host}]" if ":" in host else host
    base = f"{parts.scheme}://{shown_host}:{port or PORT_DEFAULT}{_prefix(parts.path)}"
    return Endpoint(base, base)


def _unix_endpoint(name: str) -> Endpoint:
    """`unix:///path/to.sock`, optionally with `?path=/prefix`."""
    parts = urlsplit(name)
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/") or "\0" in path:
        raise InvalidArgument(f"endpoint {name!r}: expected unix:///path/to.sock")
    prefix = parse_qs(parts.query).get("path", [""])[0]
    return Endpoint(name, f"http://unix{_prefix(quote(prefix))}", path)


def _prefix(path: str) -> str:
    trimmed = path.strip("/")
    return f"/{trimmed}" if trimmed else ""


class EndpointOrder:
    """Tries endpoints in a shuffled order, the one that answered last first."""

    def __init__(self, endpoints: Sequence[Endpoint], chance: random.Random) -> None:
        self._endpoints = tuple(endpoints)
        self._chance = chance
        self.preferred: Endpoint | None = None

    def next(self) -> list[Endpoint]:
        """The order for one request."""
        preferred = self.preferred
        others = [endpoint for endpoint in self._endpoints if endpoint != preferred]
        self._chance.shuffle(others)
        return others if preferred is None else [preferred, *others]

    def prefer(self, endpoint: Endpoint) -> None:
        """This one answered."""
        self.preferred = endpoint
