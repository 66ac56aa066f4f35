"""New stores on a file system with next to no room: refused as full, whatever step met it; created once there is room."""

import asyncio
import shutil
import sys
from pathlib import Path

from holdfast.storage.disk.store import open_disk
from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch
from tests.system.cli import holdfast

FREE_KIB = (0, 16, 40, 64, 1000, 10_000)


def fill(folder: Path, free_kib: int) -> Path:
    """A file that leaves so much."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
        file.truncate(file.tell() - (free_kib << 10))
    return filler


async def create(folder: Path) -> None:
    """Over whatever the refused start has left there."""
    async with open_disk(folder, StoreOptions()) as store:
        assert await store.commit(Batch(puts={b"key": b"value"})) > 0


def main(folder: Path) -> None:
    home = folder.with_name("home")
    for free_kib in FREE_KIB:
        store = folder / f"store{free_kib}"
        flags = ("--disable-mtls", "--listen", "127.0.0.1:0", "--store", f"disk://{store}")
        filler = fill(folder, free_kib)
        refused = holdfast(home, "serve", *flags)
        filler.unlink()
        assert refused.returncode != 0, free_kib
        assert "Traceback" not in refused.stderr, refused.stderr
        assert "(storage_full)" in refused.stderr, (free_kib, refused.stderr)
        assert "free some space" in refused.stderr, refused.stderr
        is_below_reserve = "less than 64 MiB free" in refused.stderr
        assert is_below_reserve == (free_kib >= 10_000), (free_kib, refused.stderr)
        asyncio.run(create(store))
        shutil.rmtree(store)
    sys.stdout.write("every size refused, then created\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
