"""A process of the two-process test: counts up a shared key and watches everything meanwhile."""

import asyncio
import json
import sys

from holdfast.storage.options import StoreOptions
from holdfast.storage.port import Batch, Store, Transaction
from holdfast.storage.postgres.store import open_postgres

COUNTER = b"counter"
WRITERS = 4


async def increment(store: Store, ledger_key: bytes) -> None:
    def body(tx: Transaction) -> None:
        record = tx.get(COUNTER)
        tx.put(COUNTER, str(1 + (0 if record is None else int(record.value))).encode())
        tx.put(ledger_key, b"")

    await store.transact(body, attempts_max=1000)


async def watch_until(store: Store, total: int) -> list[tuple[int, str]]:
    seen: list[tuple[int, str]] = []
    async with store.watch(b"", None, after=0) as watch:
        async for events in watch:
            seen += [(event.revision, event.key.decode()) for event in events]
            if any(event.record and event.record.value == str(total).encode() for event in events):
                break
    return seen


async def main(url: str, name: str, increments: int, total: int) -> None:
    async with open_postgres(url, StoreOptions(postgres_poll_interval_s=0.5)) as store:
        watching = asyncio.create_task(watch_until(store, total))
        await store.commit(Batch(puts={f"started/{name}".encode(): b""}))

        async def write(writer: int) -> None:
            for n in range(increments // WRITERS):
                await increment(store, f"ledger/{name}/{writer}/{n}".encode())

        await asyncio.gather(*(write(writer) for writer in range(WRITERS)))
        seen = await watching
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
