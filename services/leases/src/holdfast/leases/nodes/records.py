"""How nodes announce themselves in the store that they share, and what they know each other by."""

import secrets
from dataclasses import dataclass
from typing import Final

from holdfast.leases.layer.records_pb2 import LockLink, LockNode
from holdfast.storage.keys import unpack
from holdfast.storage.port import Event, Store, Transaction
from holdfast.storage.tables import Row, Table

NODES: Final = Table("lock", LockNode)
LINKS: Final = Table("lock", LockLink)
NODE: Final = "node"
LINK: Final = "link"
NODES_MAX: Final = 1000
_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Member:
    """A node as it announced itself."""

    id: str
    address: str
    serves_from_ms: int
    ends_at_ms: int
    is_ready: bool = True
    """False: it is home already, and decides in a moment."""


def member_of(row: Row[LockNode]) -> Member:
    message = row.message
    return Member(str(row.parts[-1]), message.address, message.serves_from_ms, message.ends_at_ms)


def member_of_event(event: Event) -> tuple[str, Member | None]:
    """Whose announcement changed, and what it says now."""
    record = event.record
    if record is not None:
        found = member_of(NODES.row(record))
        return found.id, found
    return str(unpack(event.key)[-1]), None


async def link_key(store: Store) -> bytes:
    """The secret of this store's nodes; made by the first of them."""
    fresh = secrets.token_bytes(_KEY_BYTES)

    def read(tx: Transaction) -> bytes:
        found = LINKS.get(tx, LINK)
        if found is not None:
            return bytes(found.key)
        LINKS.put(tx, LockLink(key=fresh), LINK)
        return fresh

    return await store.transact(read)
