"""Tables speak in messages; records evolve without losing what an older version does not know."""

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from holdfast.storage.errors import StoreCorrupt
from holdfast.storage.keys import next_key, pack
from holdfast.storage.port import BlobRef, Record
from holdfast.storage.records_pb2 import BackendIdentity, Payload
from holdfast.storage.tables import Table, blob_message, blob_ref
from holdfast.storage.transact import BufferedTransaction
from tests.infra.dict_store import DictStore

identities = Table("sys", BackendIdentity)


def newer_identity_class() -> type[Message]:
    """BackendIdentity as a later version might have it: one field more."""
    file = descriptor_pb2.FileDescriptorProto(name="newer.proto", package="newer", syntax="proto3")
    message = file.message_type.add(name="BackendIdentity")
    message.field.add(name="id", number=1, type=9, label=1)
    message.field.add(name="region", number=99, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("newer.BackendIdentity"))


def test_a_message_that_was_put_is_read_back() -> None:
    store = DictStore()
    tx = BufferedTransaction(store)

    identities.put(tx, BackendIdentity(id="one"), "backend-id", blobs=("b1",))
    store.apply(tx)

    found = identities.get(BufferedTransaction(store), "backend-id")
    assert found == BackendIdentity(id="one")
    assert tx.batch.blobs == {pack(("sys", "backend-id")): ("b1",)}
    assert identities.get(BufferedTransaction(store), "other") is None


def test_fields_of_a_newer_version_survive_a_read_modify_write() -> None:
    newer = newer_identity_class()
    key = identities.key("backend-id")
    stored = newer(id="one", region="north").SerializeToString()

    old = identities.decode(Record(key, stored, 1, 1, 1))
    old.created_at_ms = 5
    tx = BufferedTransaction(DictStore())
    identities.put(tx, old, "backend-id")

    reread = newer.FromString(tx.batch.puts[key])
    assert reread == newer.FromString(newer(id="one", region="north").SerializeToString() + b"\x10\x05")


def test_a_range_returns_rows_below_its_prefix_page_by_page() -> None:
    store = DictStore()
    tx = BufferedTransaction(store)
    for namespace, name in [("a", "1"), ("a", "2"), ("a", "3"), ("b", "1")]:
        identities.put(tx, BackendIdentity(id=namespace + name), namespace, name)
    store.apply(tx)
    reader = BufferedTransaction(store)

    first = identities.range(reader, "a", limit=2)
    rest = identities.range(reader, "a", limit=2, start=next_key(first[-1].record.key))
    last = identities.range(reader, "a", limit=1, reverse=True)

    assert [row.parts for row in first] == [("a", "1"), ("a", "2")]
    assert [row.message.id for row in rest] == ["a3"]
    assert [row.message.id for row in last] == ["a3"]
    assert identities.range(reader, "a", limit=2, end=identities.key("a")) == []


def test_a_delete_is_buffered() -> None:
    tx = BufferedTransaction(DictStore())

    identities.delete(tx, "gone")

    assert tx.batch.deletes == {identities.key("gone")}


def test_a_value_that_is_no_such_message_is_corrupt() -> None:
    with pytest.raises(StoreCorrupt, match="BackendIdentity"):
        identities.decode(Record(b"key", b"\xff\xff\xff", 1, 1, 1))


def test_a_blob_reference_survives_its_message() -> None:
    ref = BlobRef("id", 1 << 40, b"s" * 32, b"descriptor")

    payload = Payload.FromString(Payload(blob=blob_message(ref), size_bytes=1 << 40).SerializeToString())

    assert payload.WhichOneof("content") == "blob"
    assert blob_ref(payload.blob) == ref
