"""What the header of every answer says of the node: the cluster is the store, the member this process."""

import os
import secrets
import socket
from hashlib import sha256
from typing import NamedTuple

from holdfast.common.settings import PlaneSettings
from holdfast.storage.port import Store
from holdfast.txn.layer.island import backend_hash_of


class Identity(NamedTuple):
    """Constant as long as a store and the place of a node stay: clients compare them."""

    cluster_id: int
    member_id: int
    raft_term: int = 1
    name: str = ""
    """Of the member, for people."""
    client_url: str = ""


async def identity_of(store: Store, settings: PlaneSettings) -> Identity:
    """After the store is open. Two nodes on one store have the same cluster, and as members their host and listener."""
    backend = await backend_hash_of(store)
    host = socket.gethostname()
    place = settings.listen
    if settings.listen_proto != "unix" and place.endswith(":0"):
        place = f"{place} {os.getpid()} {secrets.token_hex(8)}"  # Only known once it listens, and another one each time.
    scheme = "http" if settings.listen_proto == "unix" or not settings.is_mtls_on else "https"
    return Identity(
        cluster_id=_u64("cluster", backend),
        member_id=_u64("member", backend, host, place),
        name=host,
        client_url=f"{scheme}://{settings.etcd_listen or settings.listen}",
    )


def _u64(*parts: str) -> int:
    """Never zero, which answers would leave out."""
    return int.from_bytes(sha256("\0".join(parts).encode()).digest()[:8], "big") or 1
