"""What was acknowledged can be read as of its revision after kill -9, and what was compacted stays so."""

from pathlib import Path

import pytest

from holdfast.storage.disk.store import open_disk
from holdfast.storage.errors import Compacted
from holdfast.storage.port import Store
from tests.system.disk.crash_writer import WRITERS
from tests.system.disk.test_crash import OPTIONS, run_and_kill

KILLS = 4


async def test_the_past_is_readable_after_kills(tmp_path: Path) -> None:
    acknowledged: list[tuple[int, int, int]] = []
    compacted = 0
    for kill in range(KILLS):
        lines = run_and_kill(tmp_path, WRITERS if kill % 2 else 1, acknowledgements=150)
        acknowledged += [(int(w), int(c), int(r)) for w, c, r in map(str.split, lines)]
        async with open_disk(tmp_path, OPTIONS) as store:
            assert store.compacted_revision == compacted
            for writer, count, revision in acknowledged:
                if revision > compacted:
                    await check_commit(store, writer, count, revision)
            compacted = acknowledged[-50][2]
            await store.compact(compacted)
            with pytest.raises(Compacted):
                await store.get(b"left0", at_revision=compacted - 1)


async def check_commit(store: Store, writer: int, count: int, revision: int) -> None:
    left = await store.get(b"left%d" % writer, at_revision=revision)
    right = await store.get(b"right%d" % writer, at_revision=revision)
    before = await store.get(b"left%d" % writer, at_revision=revision - 1)
    assert left is not None
    assert right is not None
    assert left.mod_revision == right.mod_revision == revision
    assert left.value == right.value
    assert int(left.value.split()[0]) == count
    assert (0 if before is None else before.version) == left.version - 1
