"""The island: the one store this process works on, and the name it goes by in transactions over several of them."""

from holdfast.storage.codec.identity import IDENTITY_KEY
from holdfast.storage.errors import StoreCorrupt
from holdfast.storage.port import Store
from holdfast.storage.records_pb2 import BackendIdentity


async def backend_hash_of(store: Store) -> str:
    """Chosen when the store was first opened, and kept in it."""
    record = await store.get(IDENTITY_KEY)
    if record is None:
        raise StoreCorrupt(f"the store at {store.url} has no identity; open it as a server does")
    return BackendIdentity.FromString(record.value).id
