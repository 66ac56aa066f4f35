"""A bank on a split plane: clients move amounts between accounts, two keys in one transaction each."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import httpx

from holdfast.common.ids import new_xid
from holdfast.leases.layer.records import held_range
from holdfast.storage.keys import prefix_range
from holdfast.storage.port import Store
from tests.system.split.plane import HEAL_S, SplitPlane

CLIENTS: Final = 8
ACCOUNTS: Final = tuple(f"account-{number:02}" for number in range(20))
CROWDED: Final = 3
OPENING_AMOUNT: Final = 100
TTL_S: Final = 15
_RETRY_S: Final = 0.2


class Move(NamedTuple):
    """One transaction over two accounts, and what its client was told of it."""

    txn_id: str
    accounts: frozenset[str]
    outcome: str
    """`commit`, `rollback`, or `unknown`."""


@dataclass(slots=True)
class Bank:
    """Each account holds its amount and the transactions that changed it, so that a lost or half one shows."""

    plane: SplitPlane
    store: Store
    chance: random.Random
    moves: list[Move] = field(default_factory=list[Move])
    progress: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def open(self) -> None:
        await asyncio.gather(*map(self._open_account, ACCOUNTS))

    async def day(self, disturb: Callable[[], Awaitable[None]]) -> None:
        """Clients work until the disturbance is over; when nothing is under way any more, the books are checked."""
        closing = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for number in range(CLIENTS):
                tasks.create_task(self._work(f"client-{number}", closing))
            await disturb()
            closing.set()
        await self.plane.until(self.is_quiet, TTL_S + HEAL_S)
        await self.check()

    async def grown_by(self, count: int) -> None:
        """Wait until that many more moves are told to be committed."""
        target = self.committed + count
        async with self.progress:
            await self.progress.wait_for(lambda: self.committed >= target)

    @property
    def committed(self) -> int:
        return sum(move.outcome == "commit" for move in self.moves)

    async def is_quiet(self) -> bool:
        """Nothing is staged, no transaction is in doubt, no key is held."""
        ranges = [prefix_range(("txn",)), prefix_range(("stage",)), held_range()]
        found = [await self.store.range(*one, limit=1, keys_only=True) for one in ranges]
        return not any(found)

    async def check(self) -> None:
        """Only when quiet: readers may see one key of a transaction before the other."""
        books = {key: await self._published(key) for key in ACCOUNTS}
        assert sum(account["amount"] for account in books.values()) == OPENING_AMOUNT * len(ACCOUNTS)
        for key, account in books.items():
            assert len(set(account["moves"])) == len(account["moves"]), f"{key} has a move twice"
        for move in self.moves:
            seen_in = {key for key in move.accounts if move.txn_id in books[key]["moves"]}
            is_everywhere, is_nowhere = len(seen_in) == len(move.accounts), not seen_in
            assert is_everywhere or is_nowhere, f"half of {move} is there"
            assert not (is_nowhere and move.outcome == "commit"), f"{move} is lost"
            assert not (is_everywhere and move.outcome == "rollback"), f"{move} is there"

    async def are_keys_free(self) -> bool:
        """Whether everybody can have every key at once."""
        leases = [await self._acquire(key, new_xid(), block_seconds=-1) for key in ACCOUNTS]
        for lease in leases:
            await self._release(lease)
        return await self.is_quiet()

    async def _open_account(self, key: str) -> None:
        lease = await self._acquire(key, new_xid())
        await self._write(lease, {"amount": OPENING_AMOUNT, "moves": []})
        await self._release(lease)

    async def _work(self, owner: str, closing: asyncio.Event) -> None:
        while not closing.is_set():
            self.moves.append(await self._move(owner))
            async with self.progress:
                self.progress.notify_all()

    async def _move(self, owner: str) -> Move:
        txn_id, amount = new_xid(), self.chance.randint(1, 10)
        # Half of the moves crowd on a few accounts, where the next client takes a key the moment it is free.
        source, target = self.chance.sample(self.chance.choice((ACCOUNTS[:CROWDED], ACCOUNTS)), 2)
        started_s = time.monotonic()
        try:
            # Always in the same order, so that no two clients wait for each other.
            leases = [await self._acquire(key, txn_id, owner=owner) for key in sorted((source, target))]
            for lease in leases:
                account = await self._read(lease)
                account["amount"] += amount if lease["key"] == target else -amount
                account["moves"].append(txn_id)
                await self._write(lease, account)
            await self._release(leases[0])
        except httpx.HTTPError:
            outcome = await self._give_up(txn_id)
        else:
            # A release of a lease that has run out is answered alike, without effect.
            outcome = "commit" if time.monotonic() - started_s < TTL_S - 1 else "unknown"
        return Move(txn_id, frozenset((source, target)), outcome)

    async def _give_up(self, txn_id: str) -> str:
        """Roll back what may be there; the answer is what was decided, by any process."""
        async with asyncio.timeout(HEAL_S):
            while True:
                try:
                    answer = await self._post("/v1/txn/decide", txn_id=txn_id, state="rollback")
                    return str(answer.json()["state"])
                except httpx.HTTPError:
                    await asyncio.sleep(_RETRY_S)

    async def _acquire(
        self, key: str, txn_id: str, *, owner: str = "bank", block_seconds: int = 5
    ) -> dict[str, Any]:
        params = {"key": key, "owner": owner, "ttl_seconds": TTL_S, "block_seconds": block_seconds}
        lease: dict[str, Any] = (await self._post("/v1/acquire", **params, txn_id=txn_id)).json()
        return lease

    async def _read(self, lease: dict[str, Any]) -> dict[str, Any]:
        answer = await self.plane.client.post("/v1/get", params={"key": lease["key"]}, headers=_claim(lease))
        account: dict[str, Any] = answer.raise_for_status().json()
        return account

    async def _write(self, lease: dict[str, Any], account: dict[str, Any]) -> None:
        answer = await self.plane.client.post(
            "/v1/update", params={"key": lease["key"]}, json=account, headers=_claim(lease)
        )
        answer.raise_for_status()

    async def _release(self, lease: dict[str, Any]) -> None:
        claim = {name: lease[name] for name in ("key", "lease_id", "txn_id")}
        answer = await self.plane.client.post("/v1/release", json=claim, headers=_claim(lease))
        answer.raise_for_status()

    async def _published(self, key: str) -> dict[str, Any]:
        answer = await self.plane.client.post("/v1/get", params={"key": key, "public": "1"})
        account: dict[str, Any] = answer.raise_for_status().json()
        return account

    async def _post(self, path: str, **body: object) -> httpx.Response:
        return (await self.plane.client.post(path, json=body)).raise_for_status()


def _claim(lease: dict[str, Any]) -> dict[str, str]:
    return {
        "X-Lease-ID": lease["lease_id"],
        "X-Txn-ID": lease["txn_id"],
        "X-Fencing-Token": str(lease["fencing_token"]),
    }
