"""Where a replica is: the base URL of a setting, parsed once."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[0-9A-Za-z._:%-]+")


@dataclass(frozen=True, slots=True)
class Address:
    """One base URL, without a path."""

    host: str
    port: int
    is_tls: bool

    @property
    def authority(self) -> str:
        """As the Host header has it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.is_tls else 'http'}://{self.authority}"


def parse_address(text: str) -> Address:
    """The address of `http://host[:port]` or `https://…`; a ValueError says what is expected."""
    expected = f"expected http://host:port or https://host:port, without a path, not {text!r}"
    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(expected) from None
    is_plain = parts.path in ("", "/") and not (parts.query or parts.fragment or parts.username)
    if parts.scheme not in _PORTS or not host or not _HOST.fullmatch(host) or not is_plain:
        raise ValueError(expected)
    return Address(host, _PORTS[parts.scheme] if port is None else port, parts.scheme == "https")
