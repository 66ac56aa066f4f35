"""A process that commits as fast as it can and tells each acknowledged commit on stdout, until it is killed.

`python -m tests.system.disk.crash_writer FOLDER WRITERS loop|thread`: who syncs.
"""

import asyncio
import os
import sys
from pathlib import Path

from holdfast.storage.disk.store import open_disk
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch

WRITERS = 8


async def write(folder: Path, writers: int, syncs_by: str) -> None:
    """Each commit writes two keys with one count, so that a torn one shows."""
    options = StoreOptions(
        journal_segment_bytes=256 << 10, free_bytes_min=0, loop_syncs_after=0 if syncs_by == "loop" else None
    )
    async with open_disk(folder, options) as store:

        async def loop(writer: int) -> None:
            left = await store.get(b"left%d" % writer)
            count = int(left.value.split()[0]) if left else 0
            while True:
                count += 1
                value = b"%d %s" % (count, b"x" * (count % 700))
                revision = await store.commit(
                    Batch(puts={b"left%d" % writer: value, b"right%d" % writer: value})
                )
                os.write(1, b"%d %d %d\n" % (writer, count, revision))

        await asyncio.gather(*[loop(writer) for writer in range(writers)])


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
