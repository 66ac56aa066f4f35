"""`python -m tests.system.state.index_crasher FOLDER`: does the background work of the index, unless it is killed at it."""

import asyncio
import sys

from holdfast.storage.opening import open_store
from tests.service.state.indexed_plane import IndexedPlane


async def main(folder: str) -> None:
    async with open_store(f"disk://{folder}") as store:
        plane = IndexedPlane(store)
        await plane.builder.prepare()
        await plane.builder.catch_up()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
