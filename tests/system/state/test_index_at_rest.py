"""With encryption on, an indexed value is found by a query and by no search through the store's files."""

from dataclasses import replace
from pathlib import Path

from holdfast.storage.codec.keyring import Keyring
from holdfast.storage.opening import open_store
from tests.conformance.backends import KEYRING, SMALL
from tests.service.state.indexed_plane import IndexedPlane

MARKER = "the-marker-that-must-not-be-found"
FOUND = {"eq": {"field": "/secret", "value": MARKER}}


def holding(folder: Path, text: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]


async def test_a_marker_is_found_by_equality_and_in_no_file(tmp_path: Path) -> None:
    async with open_store(f"disk://{tmp_path}", replace(SMALL, keyring=KEYRING)) as store:
        plane = IndexedPlane(store)
        await plane.turn_on()
        for number in range(3):
            await plane.publish("k", {"secret": MARKER, "n": number, MARKER[:3] + "-field": MARKER * 10})
        await plane.publish("other", {"secret": f"{MARKER}!"})
        found = await plane.keys(FOUND)
        await plane.remove("other")

    assert found == ["k"]
    assert holding(tmp_path, MARKER[:12].encode()) == []
    assert holding(tmp_path, b"/secret") != []  # Names of fields stay readable, so the index is there.


async def test_without_encryption_the_same_marker_is_in_the_files(tmp_path: Path) -> None:
    async with open_store(f"disk://{tmp_path}", SMALL) as store:
        plane = IndexedPlane(store)
        await plane.turn_on()
        await plane.publish("k", {"secret": MARKER})

    assert holding(tmp_path, MARKER.encode()) != []


async def test_after_a_rotation_of_the_root_key_the_index_is_made_again(tmp_path: Path) -> None:
    async with open_store(f"disk://{tmp_path}", replace(SMALL, keyring=KEYRING)) as store:
        plane = IndexedPlane(store)
        await plane.turn_on()
        await plane.publish("k", {"secret": MARKER})
        before = await plane.index_entries()

    rotated = Keyring(bytes(32), [bytes(range(32))])
    async with open_store(f"disk://{tmp_path}", replace(SMALL, keyring=rotated)) as store:
        plane = IndexedPlane(store)
        await plane.builder.prepare()
        meanwhile = await plane.keys(FOUND)
        await plane.builder.catch_up()
        afterwards = await plane.keys(FOUND)

        assert meanwhile == afterwards == ["k"]
        assert set(await plane.index_entries()).isdisjoint(before)
