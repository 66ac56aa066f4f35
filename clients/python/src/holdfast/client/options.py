"""How a client connects and how patient it is."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SERVER_DEFAULT: Final = "http://127.0.0.1:9341"
SERVER_DEFAULT_TLS: Final = "https://127.0.0.1:9341"
DOCUMENT_BYTES_MAX: Final = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """The defaults are lockd's where lockd has one."""

    namespace: str = "default"
    owner: str = ""
    """Who holds what this client acquires; empty: host name and process id."""
    bundle: Path | None = None
    """PEM bundle with CA, certificate and key for mutual TLS."""
    disable_mtls: bool = False
    timeout_s: float = 15.0
    close_timeout_s: float = 5.0
    keepalive_timeout_s: float = 5.0
    drain_aware: bool = True
    """Release what is held at a server that is about to stop."""
    correlation_id: str = ""
    """Sent with every call; empty: each acquire gets a new one, which its session goes on using."""
    connections_max: int = 256
    """For plain calls, and as many for keepalives."""
    waits_max: int = 1024
    """How many acquires wait at a server at once, each on a connection; the others wait here for their turn."""
    document_bytes_max: int = DOCUMENT_BYTES_MAX
    """Above this a document is not read into memory; streams have no limit."""

    def owner_or_default(self) -> str:
        return self.owner or f"{socket.gethostname()}-{os.getpid()}"
