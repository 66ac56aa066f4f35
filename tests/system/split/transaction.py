"""One transaction of a split plane, over two keys, a message it took and a message it sends: begun, ended, and looked at
when all has healed."""

import json
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

import httpx

from holdfast.common.ids import new_xid
from holdfast.leases.layer.records import held_range, held_txn_of
from holdfast.queue.layer.message.records import MESSAGES
from holdfast.state.layer.records import DOCUMENTS
from holdfast.storage.keys import prefix_range
from holdfast.storage.port import Store
from tests.system.split.plane import HEAL_S, until
from tests.wire.lockd.queue_wire import MULTIPART, deliveries, message_body

KEYS: Final = ("first", "second")


class Seen(NamedTuple):
    """What everybody can see of a transaction."""

    documents: tuple[Any, ...]
    versions: tuple[int, ...]
    writes: tuple[int, ...]
    """How often each document was written: a decision that is applied twice shows here."""
    message: str
    """`gone`, `ready`, or `held`."""
    sent: str
    """Of the message that it sends: `gone`, `ready`, or `held`."""

    @property
    def is_committed(self) -> bool:
        once = (1,) * len(KEYS)
        return self == Seen(({"n": 1},) * len(KEYS), once, once, "gone", "ready")

    @property
    def is_rolled_back(self) -> bool:
        never = (0,) * len(KEYS)
        return self == Seen((None,) * len(KEYS), never, never, "ready", "gone")


class Reached(Protocol):
    """A plane, by its entrance."""

    @property
    def client(self) -> httpx.AsyncClient: ...


class SplitTransaction:
    """Its keys and its queue are named after it, so that no other is in its way."""

    def __init__(self, plane: Reached, ttl_s: int = 30) -> None:
        self.plane = plane
        self.txn_id = self._name = new_xid()
        self.queue = f"q-{self._name}"
        self.sent_queue = f"sent-{self._name}"
        self._ttl_s = ttl_s
        self._leases: list[dict[str, Any]] = []
        self._message: dict[str, Any] = {}

    async def begin(self) -> None:
        """Both keys staged, the message taken, another one sent."""
        await self._enqueue()
        await self._stage()
        await self._take(txn_id=self.txn_id)
        await self._send()

    async def begin_by_message(self) -> None:
        """The same, under the id that the delivery of the message minted."""
        await self._enqueue()
        await self._take()
        self.txn_id = self._message["txn_id"]
        await self._send()
        await self._stage()

    async def _enqueue(self) -> None:
        body = message_body(b"work", queue=self.queue)
        _ok(await self.plane.client.post("/v1/queue/enqueue", content=body, headers=MULTIPART))

    async def _send(self) -> None:
        body = message_body(b"follows", queue=self.sent_queue, txn_id=self.txn_id)
        _ok(await self.plane.client.post("/v1/queue/enqueue", content=body, headers=MULTIPART))
        assert await self._seen_message(self.sent_queue) != "ready", "it is seen before the commit"

    async def _stage(self) -> None:
        for name in KEYS:
            lease = _ok(await self._post("/v1/acquire", **self._wish(name), txn_id=self.txn_id)).json()
            self._leases.append(lease)
            _ok(
                await self.plane.client.post(
                    "/v1/update", params={"key": lease["key"]}, content=b'{"n":1}', headers=_claim(lease)
                )
            )

    async def _take(self, **more: object) -> None:
        taken = _ok(await self._dequeue(self.queue, visibility_timeout_seconds=self._ttl_s, **more))
        ((self._message, _),) = deliveries(taken.headers["content-type"], taken.content)

    async def release(self, *, rollback: bool = False) -> httpx.Response | None:
        """None: no answer came."""
        lease = self._leases[0]
        claim = {name: lease[name] for name in ("key", "lease_id", "txn_id")}
        with suppress(httpx.TransportError):
            return await self.plane.client.post(
                "/v1/release", json={**claim, "rollback": rollback}, headers=_claim(lease)
            )
        return None

    async def keepalive(self, ttl_s: int) -> httpx.Response:
        lease = self._leases[0]
        claim = {name: lease[name] for name in ("key", "lease_id", "txn_id")}
        return await self.plane.client.post(
            "/v1/keepalive", json={**claim, "ttl_seconds": ttl_s}, headers=_claim(lease)
        )

    async def ack(self) -> httpx.Response:
        return await self._resolve("ack")

    async def nack(self) -> httpx.Response:
        return await self._resolve("nack")

    async def _resolve(self, verb: str) -> httpx.Response:
        names = ("queue", "message_id", "lease_id", "txn_id", "fencing_token", "meta_etag")
        return await self._post(f"/v1/queue/{verb}", **{name: self._message[name] for name in names})

    async def decide(self, state: str) -> httpx.Response:
        return await self._post("/v1/txn/decide", txn_id=self.txn_id, state=state)

    async def try_decide(self, state: str) -> None:
        """Of a coordinator that may die of it."""
        with suppress(httpx.TransportError):
            await self.decide(state)

    async def replay(self) -> str:
        told: str = _ok(await self._post("/v1/txn/replay", txn_id=self.txn_id)).json()["state"]
        return told

    async def healed(self, store: Store) -> Seen:
        """What is there when nothing of it is under way any more."""
        await until(lambda: self.is_over(store), HEAL_S)
        return await self._seen(store)

    async def is_over(self, store: Store) -> bool:
        return not await leftovers(store, self.txn_id)

    async def _seen(self, store: Store) -> Seen:
        documents: list[Any] = []
        versions: list[int] = []
        for name in KEYS:
            answer = await self.plane.client.post("/v1/get", params={"key": self.key(name), "public": "1"})
            assert answer.status_code in (200, 204), answer.text
            documents.append(json.loads(answer.content) if answer.status_code == 200 else None)
            versions.append(int(answer.headers.get("x-key-version", 0)))
        records = [await store.get(DOCUMENTS.key("default", self.key(name))) for name in KEYS]
        writes = tuple(0 if record is None else record.version for record in records)
        messages = [await self._seen_message(queue, store) for queue in (self.queue, self.sent_queue)]
        return Seen(tuple(documents), tuple(versions), writes, *messages)

    async def _seen_message(self, queue: str, store: Store | None = None) -> str:
        taken = await self._dequeue(queue, wait_seconds=-1)
        assert taken.status_code in (200, 409), taken.text
        if taken.status_code == 200:
            return "ready"
        # Its id is not known if the sender died first; the queue is its own.
        is_there = store is not None and await MESSAGES.fetch_range(store, "default", queue, limit=1)
        return "held" if is_there else "gone"

    async def is_free(self) -> bool:
        """Whether everybody can have its keys."""
        answers = [await self._post("/v1/acquire", **self._wish(name)) for name in KEYS]
        return all(answer.status_code == 200 for answer in answers)

    def key(self, name: str) -> str:
        return f"{name}-{self._name}"

    def _wish(self, name: str) -> dict[str, object]:
        return {"key": self.key(name), "owner": "worker", "ttl_seconds": self._ttl_s, "block_seconds": -1}

    async def _dequeue(self, queue: str, **more: object) -> httpx.Response:
        return await self._post("/v1/queue/dequeue", queue=queue, owner="worker", **more)

    async def _post(self, path: str, **body: object) -> httpx.Response:
        return await self.plane.client.post(path, json=body)


async def leftovers(store: Store, txn_id: str) -> list[bytes]:
    """Records that only a transaction under way may have."""
    found: list[bytes] = []
    for name in ("txn", "stage", "sent"):
        start, end = prefix_range((name,))
        found += [
            record.key
            for record in await store.range(start, end, limit=1000, keys_only=True)
            if txn_id.encode() in record.key
        ]
    start, end = held_range()
    held = await store.range(start, end, limit=1000, keys_only=True)
    return found + [record.key for record in held if held_txn_of(record.key) == txn_id]


def _claim(lease: dict[str, Any]) -> dict[str, str]:
    return {
        "X-Lease-ID": lease["lease_id"],
        "X-Txn-ID": lease["txn_id"],
        "X-Fencing-Token": str(lease["fencing_token"]),
    }


def _ok(answer: httpx.Response) -> httpx.Response:
    assert answer.status_code == 200, answer.text
    return answer
